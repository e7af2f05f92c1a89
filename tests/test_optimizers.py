"""Optimisers, against their definitions one number at a time."""

import math

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, traced_memory
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.networks import optimizers
from d2lmgpu.networks.optimizers import OPTIMIZERS, adam, make_optimizer, momentum, sgd


def by_hand(name, value, grads, lr, batch_size, decay=0.0):
    """One parameter, a float, through the steps of ``grads``."""
    v = m = s = 0.0
    for step, grad in enumerate(grads, start=1):
        g = grad / batch_size + decay * value
        if name == "sgd":
            value -= lr * g
        elif name == "momentum":
            v = 0.9 * v + g
            value -= lr * v
        else:
            m = 0.9 * m + 0.1 * g
            s = 0.999 * s + 0.001 * g * g
            value -= lr * (m / (1 - 0.9**step)) / (math.sqrt(s / (1 - 0.999**step)) + 1e-8)
    return value


@pytest.mark.parametrize("piece", [3, 2**18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_against_the_definition(make_devices, rng, monkeypatch, name, dtype, piece):
    monkeypatch.setattr(optimizers, "PIECE", piece)
    (device,) = make_devices(1)
    start = [rng.normal(0, 1, shape).astype(dtype) for shape in ((4, 5), (7,))]
    grads = [[rng.normal(0, 10, a.shape).astype(dtype) for a in start] for _ in range(4)]
    params = [d2l.put(array, device) for array in start]
    optimizer = OPTIMIZERS[name]
    state = [[d2l.put(np.zeros_like(array), device) for array in start] for _ in range(optimizer.states)]
    for step, grad in enumerate(grads, start=1):
        on_device = [d2l.put(array, device) for array in grad]
        device.run(optimizer.update, params, on_device, *state, step, 0.1, 32).result()
    for i, (param, array) in enumerate(zip(params, start, strict=True)):
        expected = np.empty(array.shape)
        for j in np.ndindex(array.shape):
            expected[j] = by_hand(name, float(array[j]), [float(grad[i][j]) for grad in grads], 0.1, 32)
        assert_close(param, expected, TOLERANCE[np.dtype(dtype)])


LAYOUTS = {
    "in order": lambda array: array.copy(),
    "every second": lambda array: np.repeat(array, 2, axis=1)[:, ::2],
    "by columns": np.asfortranarray,
    "backwards": lambda array: array[::-1].copy()[::-1],
    "a part of rows": lambda array: np.pad(array, ((0, 0), (1, 2)))[:, 1:-2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_arrays_that_are_no_piece_of_memory(rng, name, layout):
    """However parameters lie, or gradients, or the state, they are updated, in their place."""
    states, spread = OPTIMIZERS[name].states, LAYOUTS[layout]
    start = rng.normal(0, 1, (6, 4))
    grads = rng.normal(0, 1, (3, 6, 4))
    expected, others = start.copy(), [np.zeros((6, 4)) for _ in range(states)]
    for step, grad in enumerate(grads, start=1):
        OPTIMIZERS[name].update([expected], [grad], *([array] for array in others), step, 0.5, 3)
    for which in range(2 + states):  # the parameter, its gradient, the state
        arrays = [start.copy(), *(np.zeros((6, 4)) for _ in range(states))]
        param, *keeping = (spread(array) if which == i else array for i, array in zip([0, 2, 3], arrays, strict=False))
        for step, grad in enumerate(grads, start=1):
            given = spread(grad) if which == 1 else grad
            OPTIMIZERS[name].update([param], [given], *([array] for array in keeping), step, 0.5, 3)
        for array, wanted in zip([param, *keeping], [expected, *others], strict=True):
            assert_close(array, wanted, 1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_takes_no_more_memory(name):
    """What holds the results of a piece is made once."""
    optimizer = OPTIMIZERS[name]
    param, grad, *state = ([np.ones((3, 5))] for _ in range(2 + optimizer.states))
    held, _ = traced_memory(lambda: optimizer.update(param, grad, *state, 1, 0.1, 32), 3)
    assert held < optimizers.PIECE  # an array of PIECE numbers has eight times as many bytes


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_they_find_the_minimum(name):
    """Of (x - 3)² · [1, 100], which is badly conditioned."""
    x, scale = np.zeros(2), np.array([1.0, 100.0])
    state = [[np.zeros(2)] for _ in range(OPTIMIZERS[name].states)]
    for step in range(1, 2001):
        OPTIMIZERS[name].update([x], [2 * scale * (x - 3)], *state, step, 0.02 if name == "adam" else 0.002, 1)
    assert_close(x, np.array([3.0, 3.0]), 1e-2)


def test_device_arrays_go_in_by_name(make_devices):
    (device,) = make_devices(1)
    param, grad, *state = (d2l.put(np.ones(3), device) for _ in range(4))
    sgd([param], [grad], 0.5, 2)
    momentum([param], [grad], [state[0]], 0.5, 2)
    adam([param], [grad], [state[0]], [state[1]], 1, 0.5, 2)
    assert d2l.to_host(param)[0] < 0.1


@pytest.mark.parametrize("batch_size", [0, -4, np.nan])
def test_a_batch_size_that_is_none(batch_size):
    """With one below 0 it would climb; nothing is changed."""
    param = np.ones(3)
    with pytest.raises(ValueError, match=f"batch_size is {batch_size}; it should be a finite number, above 0"):
        sgd([param], [np.ones(3)], 0.1, batch_size)
    assert (param == 1).all()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weight_decay(rng, name, dtype):
    optimizer = make_optimizer(d2l.Settings(optimizer=name, weight_decay=0.3))
    params = [rng.normal(size=size).astype(dtype) for size in (5, 1, 0)]
    state = [[np.zeros_like(param) for param in params] for _ in range(optimizer.states)]
    steps = [[rng.normal(size=param.shape).astype(dtype) for param in params] for _ in range(3)]
    expected = [
        [by_hand(name, float(x), given, 0.1, 4, decay=0.3) for x, *given in zip(param, *grads, strict=True)]
        for param, *grads in zip(params, *steps, strict=True)
    ]
    for step, grads in enumerate(steps, start=1):
        optimizer.update(params, [grad.copy() for grad in grads], *state, step, 0.1, 4)
    for param, values in zip(params, expected, strict=True):
        assert_close(param, np.array(values), 10 * TOLERANCE[np.dtype(dtype)])
    assert make_optimizer(d2l.Settings(optimizer=name)) is OPTIMIZERS[name] and not optimizer.in_graphs


def test_weight_decay_in_training(small):
    """Equal on any number of devices; it keeps parameters small."""
    settings = {"num_epochs": 1, "batch_size": 50}
    one, three, without = (
        quick([d2l.cpu(i) for i in range(k)], small, weight_decay=decay, **settings)
        for k, decay in ((1, 0.1), (3, 0.1), (1, 0))
    )
    assert one.history.train_loss == pytest.approx(three.history.train_loss, rel=2e-3)
    sizes = [sum(float((param**2).sum()) for param in run.params) for run in (one, without)]
    assert sizes[0] < 0.97 * sizes[1] and one.history.weight_decay == 0.1
