"""Optimisers, against their definitions in float64."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close
from one_device import update_by_formula

import d2lmgpu as d2l
from d2lmgpu.networks import optimizers
from d2lmgpu.networks.optimizers import OPTIMIZERS, make_optimizer


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
        expected = [array.astype(float) for array in start]
        moments = [[np.zeros_like(array) for array in expected] for _ in range(2)]
        for step, grad in enumerate(grads, start=1):
            means = [g.astype(float) / 32 + decay * param for g, param in zip(grad, expected, strict=True)]
            update_by_formula(name, expected, means, moments, step, 0.1)
        for param, wanted in zip(params, expected, strict=True):
            assert_close(param, wanted, (10 if decay else 1) * TOLERANCE[np.dtype(dtype)])


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
