"""Networks as wholes: against loops in float64, and against outputs that PyTorch computed."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu import networks


@pytest.mark.parametrize("N, scale", [(1, 0.01), (2, 0.1)])
def test_lenet_against_loops(rng, N, scale):
    X, y = rng.random((N, 1, 28, 28)), rng.integers(0, 10, N)
    params = [rng.normal(0, scale, p.shape) for p in d2l.init_params()]  # biases other than zero
    for dtype in (np.float64, np.float32):
        X, params = X.astype(dtype), [p.astype(dtype) for p in params]
        logits, loss, grads = references.lenet(X, y, params)
        tolerance = TOLERANCE[X.dtype]
        assert_close(d2l.lenet(X, params), logits, tolerance)
        for function in (d2l.loss_and_grads, networks.loss_and_grads_as_written):
            actual_loss, actual_grads = function(X, y, params)
            assert actual_loss.dtype == dtype and float(actual_loss) == pytest.approx(loss, rel=tolerance)
            for actual, expected in zip(actual_grads, grads, strict=True):
                assert actual.dtype == dtype
                assert_close(actual, expected, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lenet_against_stored_outputs(make_devices, dtype):
    """Outputs of PyTorch in float64; benchmarks/make_reference_outputs.py wrote them."""
    (device,) = make_devices(1)
    stored = np.load(Path(references.__file__).with_name("reference_outputs.npz"))
    X, y, params = references.reference_inputs([p.shape for p in d2l.init_params()])
    X = d2l.put(X.astype(dtype), device)
    device_params = d2l.get_params([p.astype(dtype) for p in params], device)
    tolerance = TOLERANCE[X.dtype]
    assert_close(d2l.lenet(X, device_params), stored["logits"], tolerance)
    loss, grads = d2l.loss_and_grads(X, d2l.put(y, device), device_params)
    assert float(loss) == pytest.approx(float(stored["loss"]), rel=tolerance)
    for i, grad in enumerate(grads):
        assert_close(d2l.to_host(grad).reshape(-1)[::97], stored[f"grad{i}"], tolerance)


def test_initial_parameters():
    params = d2l.init_params(seed=3)
    assert [p.shape for p in params[::2]] == [(20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10)]
    assert [p.shape for p in params[1::2]] == [(20,), (50,), (128,), (10,)]
    assert sum(p.size for p in params) == 129_068 and all(p.dtype == np.float32 for p in params)
    assert not any(p.any() for p in params[1::2])
    assert params[4].std() == pytest.approx(0.01, rel=0.02)
    he = d2l.init_params(3, init="he")
    assert [he[4].std(), he[2].std()] == [pytest.approx((2 / n) ** 0.5, rel=0.02) for n in (800, 500)]
    assert not np.array_equal(params[0], d2l.init_params(seed=4)[0])


@pytest.mark.parametrize("room", ["", ".plans", ".networks", ".collectives", ".layers", ".devices"])
def test_no_signature_shows_where_something_lies_in_memory(room):
    """As that of a function would which is an argument's default value, or a part of one: of a network, of a loss."""
    offered = vars(importlib.import_module(f"d2lmgpu{room}"))
    shown = {name: str(inspect.signature(value)) for name, value in offered.items() if inspect.isfunction(value)}
    assert len(shown) > 5
    assert not [name for name, signature in shown.items() if " at 0x" in signature]
    assert all(len(signature) < 400 for name, signature in shown.items() if name != "train")
