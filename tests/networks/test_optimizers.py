"""Optimisers, against their definitions one number at a time."""

import math

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu.networks import optimizers
from d2lmgpu.networks.optimizers import OPTIMIZERS, make_optimizer


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


@pytest.mark.parametrize("decay", [0.0, 0.3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_against_the_definition(make_devices, rng, monkeypatch, name, decay):
    """In pieces of any size, with weight decay and without, also of an empty array."""
    (device,) = make_devices(1)
    optimizer = make_optimizer(d2l.Settings(optimizer=name, weight_decay=decay))
    assert (optimizer is OPTIMIZERS[name]) == (decay == 0)
    for dtype, piece in [(np.float32, 2**18), (np.float64, 3)]:
        monkeypatch.setattr(optimizers, "PIECE", piece)
        start = [rng.normal(0, 1, shape).astype(dtype) for shape in ((4, 5), (7,), (0,))]
        grads = [[rng.normal(0, 10, a.shape).astype(dtype) for a in start] for _ in range(4)]
        params = d2l.get_params(start, device)
        state = [d2l.get_params([np.zeros_like(a) for a in start], device) for _ in range(optimizer.states)]
        for step, grad in enumerate(grads, start=1):
            device.run(optimizer.update, params, d2l.get_params(grad, device), *state, step, 0.1, 32).result()
        for i, (param, array) in enumerate(zip(params, start, strict=True)):
            expected = np.empty(array.shape)
            for j in np.ndindex(array.shape):
                expected[j] = by_hand(name, float(array[j]), [float(grad[i][j]) for grad in grads], 0.1, 32, decay)
            assert_close(param, expected, (10 if decay else 1) * TOLERANCE[np.dtype(dtype)])


@pytest.mark.parametrize("layout", [np.asfortranarray, lambda array: np.repeat(array, 2, axis=1)[:, ::2]])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_arrays_that_are_no_piece_of_memory(rng, name, layout):
    """However the parameter lies, its gradient, or the state, they are updated, in their place."""
    arrays = list(rng.random((2 + OPTIMIZERS[name].states, 6, 4)))

    def updated(which):
        """The arrays after a step, if number ``which`` is laid out in this way."""
        copies = [layout(array) if i == which else array.copy() for i, array in enumerate(arrays)]
        OPTIMIZERS[name].update(*([array] for array in copies), 1, 0.5, 3)
        return copies

    for which in range(len(arrays)):
        for array, wanted in zip(updated(which), updated(None), strict=True):
            assert_close(array, wanted, 1e-12)
