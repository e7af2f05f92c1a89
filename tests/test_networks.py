"""LeNet as a whole: against loops in float64, and against outputs that PyTorch computed."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close, few

import d2lmgpu as d2l
from d2lmgpu import networks


@pytest.mark.parametrize("scale", [0.01, 0.1])
@pytest.mark.parametrize("N", few(range(1, 10), 3))
def test_lenet_against_loops(rng, N, scale):
    X, y = rng.random((N, 1, 28, 28)), rng.integers(0, 10, N)
    params = d2l.init_params(seed=N, scale=scale, dtype=np.float64)
    params = [p if p.ndim > 1 else rng.normal(0, scale, p.shape) for p in params]  # biases other than zero
    logits, loss, grads = references.lenet(X, y, params)
    assert_lenet(X, y, params, logits, loss, grads)
    # the same numbers rounded to float32 are other numbers: give the loops the rounded ones
    X32, params32 = X.astype(np.float32), [p.astype(np.float32) for p in params]
    logits, loss, grads = references.lenet(X32, y, params32)
    assert_lenet(X32, y, params32, logits, loss, grads)


def assert_lenet(X, y, params, logits, loss, grads):
    tolerance = TOLERANCE[X.dtype]
    assert_close(d2l.lenet(X, params), logits, tolerance)
    for function in (d2l.loss_and_grads, networks.loss_and_grads_as_written):
        actual_loss, actual_grads = function(X, y, params)
        assert actual_loss.dtype == X.dtype
        assert float(actual_loss) == pytest.approx(loss, rel=tolerance)
        for actual, expected in zip(actual_grads, grads, strict=True):
            assert actual.dtype == X.dtype
            assert_close(actual, expected, tolerance)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lenet_against_stored_outputs(make_devices, dtype):
    """Outputs of PyTorch in float64; benchmarks/make_reference_outputs.py wrote them."""
    (device,) = make_devices(1)
    stored = np.load(Path(__file__).with_name("reference_outputs.npz"))
    X, y, params = reference_inputs()
    X = d2l.put(X.astype(dtype), device)
    device_params = d2l.get_params([p.astype(dtype) for p in params], device)
    tolerance = TOLERANCE[X.dtype]
    assert_close(d2l.lenet(X, device_params), stored["logits"], tolerance)
    loss, grads = d2l.loss_and_grads(X, d2l.put(y, device), device_params)
    assert float(loss) == pytest.approx(float(stored["loss"]), rel=tolerance)
    for i, grad in enumerate(grads):
        assert_close(d2l.to_host(grad).reshape(-1)[::97], stored[f"grad{i}"], tolerance)


def reference_inputs():
    """The inputs of the stored outputs, from a formula, so that no generator of random numbers can change them."""

    def wave(shape, scale):
        count = np.arange(int(np.prod(shape)), dtype=float)
        return (scale * np.sin(1 + 0.7 * count + 0.01 * (count % 89) ** 2)).reshape(shape)

    shapes = [p.shape for p in d2l.init_params()]
    params = [wave(shape, 0.3 / len(shape)) for shape in shapes]
    return np.abs(wave((5, 1, 28, 28), 1.0)), np.array([3, 0, 9, 5, 3]), params


def test_no_examples_give_zero_gradients(make_devices):
    """An empty shard adds nothing to the sum, as it should."""
    (device,) = make_devices(1)
    params = d2l.get_params(d2l.init_params(), device)
    loss, grads = d2l.loss_and_grads(
        d2l.put(np.zeros((0, 1, 28, 28), np.float32), device), d2l.put(np.zeros(0, int), device), params
    )
    assert float(loss) == 0
    assert all(np.all(d2l.to_host(grad) == 0) and grad.shape == p.shape for grad, p in zip(grads, params, strict=True))


def test_micro_batches_add_up(rng, monkeypatch):
    X, y, params = rng.random((7, 1, 28, 28)), rng.integers(0, 10, 7), d2l.init_params(scale=0.1, dtype=np.float64)
    whole_loss, whole = d2l.loss_and_grads(X, y, params)
    monkeypatch.setattr("d2lmgpu.kernels.cpu.program.MICRO_BATCH", 3)
    loss, grads = d2l.loss_and_grads(X, y, params)
    assert loss == pytest.approx(whole_loss, rel=1e-14)
    for grad, expected in zip(grads, whole, strict=True):
        assert_close(grad, expected, 1e-13)


def test_initial_parameters():
    params = d2l.init_params(seed=3)
    weights, biases = params[::2], params[1::2]
    assert [p.shape for p in weights] == [(20, 1, 3, 3), (50, 20, 5, 5), (800, 128), (128, 10)]
    assert [p.shape for p in biases] == [(20,), (50,), (128,), (10,)]
    assert sum(p.size for p in params) == 129_068 and all(p.dtype == np.float32 for p in params)
    assert not any(p.any() for p in biases)
    assert params[4].std() == pytest.approx(0.01, rel=0.02)
    assert d2l.init_params(3, init="he")[4].std() == pytest.approx((2 / 800) ** 0.5, rel=0.02)
    assert d2l.init_params(3, init="he")[2].std() == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert not np.array_equal(params[0], d2l.init_params(seed=4)[0])
    with pytest.raises(ValueError, match="normal, he"):
        d2l.init_params(init="xavier")


def test_a_network_and_a_loss_are_printed_as_a_line():
    network = networks.sequential((2, 6, 5), networks.Conv2d(3, 2), networks.Flatten(), networks.Dense(4))
    assert repr(network) == "<Network: 3 layers, 271 parameters, images (2, 6, 5), 4 classes>"
    assert repr(networks.CROSS_ENTROPY) == "<Loss cross_entropy>"


@pytest.mark.parametrize("room", ["", ".plans", ".networks", ".collectives", ".layers", ".devices"])
def test_no_signature_shows_where_something_lies_in_memory(room):
    """As that of a function would which is an argument's default value, or a part of one: of a network, of a loss."""
    offered = vars(importlib.import_module(f"d2lmgpu{room}"))
    functions = {name: value for name, value in offered.items() if inspect.isfunction(value)}
    assert len(functions) > 5
    assert not [name for name, function in functions.items() if " at 0x" in str(inspect.signature(function))]
    assert all(len(str(inspect.signature(value))) < 400 for name, value in functions.items() if name != "train")
