"""Optimisers, against their definitions one number at a time."""

import math

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu import optimizers
from d2lmgpu.optimizers import OPTIMIZERS, adam, check_optimizer, momentum, sgd


def by_hand(name, value, grads, lr, batch_size):
    """One parameter, a float, through the steps of ``grads``."""
    v = m = s = 0.0
    for step, grad in enumerate(grads, start=1):
        g = grad / batch_size
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
    kept = [[d2l.put(np.zeros_like(array), device) for array in start] for _ in range(optimizer.kept)]
    for step, grad in enumerate(grads, start=1):
        on_device = [d2l.put(array, device) for array in grad]
        device.run(optimizer.update, params, on_device, *kept, step, 0.1, 32).result()
    for i, (param, array) in enumerate(zip(params, start, strict=True)):
        expected = np.empty(array.shape)
        for j in np.ndindex(array.shape):
            expected[j] = by_hand(name, float(array[j]), [float(grad[i][j]) for grad in grads], 0.1, 32)
        assert_close(param, expected, TOLERANCE[np.dtype(dtype)])


def test_arrays_that_are_no_piece_of_memory(rng):
    """Strided ones are updated too."""
    param, grad = rng.normal(0, 1, (6, 4))[:, ::2], rng.normal(0, 1, (6, 2))
    expected = param - 0.5 / 3 * grad
    sgd([param], [grad], 0.5, 3)
    assert_close(param, expected, 1e-12)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_they_find_the_minimum(name):
    """Of (x - 3)² · [1, 100], which is badly conditioned."""
    x, scale = np.zeros(2), np.array([1.0, 100.0])
    kept = [[np.zeros(2)] for _ in range(OPTIMIZERS[name].kept)]
    for step in range(1, 2001):
        OPTIMIZERS[name].update([x], [2 * scale * (x - 3)], *kept, step, 0.02 if name == "adam" else 0.002, 1)
    assert_close(x, np.array([3.0, 3.0]), 1e-2)


def test_device_arrays_go_in_by_name(make_devices):
    (device,) = make_devices(1)
    param, grad, *kept = (d2l.put(np.ones(3), device) for _ in range(4))
    sgd([param], [grad], 0.5, 2)
    momentum([param], [grad], [kept[0]], 0.5, 2)
    adam([param], [grad], [kept[0]], [kept[1]], 1, 0.5, 2)
    assert d2l.to_host(param)[0] < 0.1


def test_an_unknown_name():
    with pytest.raises(ValueError, match="'rmsprop' is unknown; choose from sgd, momentum, adam"):
        check_optimizer("rmsprop")
