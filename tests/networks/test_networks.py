"""Networks as wholes: against loops in float64, against outputs that PyTorch computed, and with strides and padding."""

import importlib
import inspect
from pathlib import Path

import numpy as np
import pytest
import references
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.kernels.cpu.program import Program
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential


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
    with pytest.raises(ValueError, match="normal, he"):
        d2l.init_params(init="xavier")


def test_a_network_and_a_loss_are_printed_as_a_line():
    network = sequential((2, 6, 5), Conv2d(3, 2), Flatten(), Dense(4))
    assert repr(network) == "<Network: 3 layers, 271 parameters, images (2, 6, 5), 4 classes>"
    assert repr(networks.CROSS_ENTROPY) == "<Loss cross_entropy>"


@pytest.mark.parametrize("room", ["", ".plans", ".networks", ".collectives", ".layers", ".devices"])
def test_no_signature_shows_where_something_lies_in_memory(room):
    """As that of a function would which is an argument's default value, or a part of one: of a network, of a loss."""
    offered = vars(importlib.import_module(f"d2lmgpu{room}"))
    shown = {name: str(inspect.signature(value)) for name, value in offered.items() if inspect.isfunction(value)}
    assert len(shown) > 5
    assert not [name for name, signature in shown.items() if " at 0x" in signature]
    assert all(len(signature) < 400 for name, signature in shown.items() if name != "train")


STRIDED = sequential(
    (2, 9, 8),
    *(Conv2d(4, 3, padding=1), ReLU(), Conv2d(5, 3, stride=2, padding=1), ReLU()),
    *(Conv2d(3, 2), ReLU(), AvgPool2d(), Flatten(), Dense(4)),
)
NORMED = sequential(
    (2, 9, 8), Conv2d(4, 3, padding=1), BatchNorm(), ReLU(), Conv2d(3, 3, stride=2), Flatten(), Dense(4)
)
POOLED = sequential(  # pools that leave a rest, a wide convolution, kernels smaller than their stride
    (2, 9, 8),
    *(Conv2d(16, 5, stride=2, padding=4), ReLU(), AvgPool2d(), Conv2d(32, 3, padding=2), ReLU(), MaxPool2d()),
    *(Conv2d(6, 1, stride=2, padding=1), ReLU(), Flatten(), Dense(4)),
)
PADDED = sequential(
    (2, 9, 8),
    *(Conv2d(4, 3, padding=1), ReLU(), AvgPool2d(), Conv2d(5, 3, padding=2), ReLU(), Flatten(), Dense(4)),
)


@pytest.mark.parametrize("network", [STRIDED, NORMED, POOLED], ids=["strided", "normed", "pooled"])
def test_kernels_compute_strides_and_padding_as_the_layers(rng, network):
    for N, dtype in [(1, np.float64), (5, np.float32), (5, np.float64), (150, np.float32)]:
        X, y = rng.random((N, 2, 9, 8)).astype(dtype), rng.integers(0, 4, N)
        params = networks.init_params(1, init="he", network=network, dtype=dtype)
        tolerance = 20 * TOLERANCE[np.dtype(dtype)]
        for each in (network, networks.in_half(network)) if dtype == np.float64 else (network,):
            loss, grads = networks.loss_and_grads(X, y, params, each)
            expected_loss, expected = networks.loss_and_grads_as_written(X, y, params, each)
            assert float(loss) == pytest.approx(float(expected_loss), rel=tolerance)
            for i, (one, other) in enumerate(zip(grads, expected, strict=True)):
                if network is not NORMED or i != 1:  # whose gradient is 0 before batch norm
                    assert_close(one, other, tolerance)


def test_of_these_some_are_computed_by_winograds_method():
    program = Program(POOLED, networks.init_params(network=POOLED, dtype=float), POOLED.input_shape, float, 3)
    made = [type(stage).__name__ for stage in program.stages[:6]]
    assert made == ["Padding", "Convolution", "Padding", "WinogradConvolution", "Padding", "Convolution"]


def trained(devices, rng_seed, network, **settings):
    rng = np.random.default_rng(rng_seed)
    X, y = rng.integers(1, 256, (30, 2, 9, 8)).astype(np.uint8), rng.integers(0, 4, 30)
    settings = {"network": network, "batch_size": 7, "lr": 0.1, "init": "he", "progress": False, **settings}
    return d2l.train(devices, data=(X[:14], y[:14], X[14:], y[14:]), **settings)


@pytest.mark.long
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-4), ("mixed", 5e-3)])
@pytest.mark.parametrize("network", [PADDED, STRIDED], ids=["padded", "strided"])
def test_on_gpus(standin, network, precision, tolerance):
    """Where there is no kernel, the step is no graph, and its convolutions are the layers. 10 s of compiling."""
    settings = {"num_epochs": 1 + (network is PADDED), "precision": precision}
    gpus, cpus = (trained([make(0), make(1)], 2, network, **settings) for make in (d2l.gpu, d2l.cpu))
    assert (gpus.history.phases.get("step", 0) > 0) == (network is PADDED)
    for one, other in zip(gpus.params, cpus.params, strict=True):
        assert_close(one, other, tolerance)
