"""Convolutions with stride and padding, against loops, in networks, and on several devices."""

import itertools

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close

import d2lmgpu as d2l
from d2lmgpu import networks
from d2lmgpu.kernels.cpu.program import Program
from d2lmgpu.networks import AvgPool2d, BatchNorm, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential

CASES = [  # H, W, kh, kw, stride, padding
    (7, 6, 3, 3, 1, 1),
    (7, 6, 3, 3, 2, 0),
    (8, 5, 3, 2, 2, 1),
    (9, 9, 1, 1, 3, 0),
    (5, 4, 5, 4, 2, 2),
    (2, 2, 3, 3, 1, 1),
    (6, 11, 2, 4, 3, 3),
]


def by_loops(x, weight, bias, dy, stride, padding):
    """y, and the gradients of sum(y · dy): one product after the other."""
    N, C, H, W = x.shape
    O, _, kh, kw = weight.shape
    y = np.zeros((N, O, (H + 2 * padding - kh) // stride + 1, (W + 2 * padding - kw) // stride + 1))
    dx, dweight, dbias = np.zeros(x.shape), np.zeros(weight.shape), np.zeros(bias.shape)
    for n, o, i, j in np.ndindex(*y.shape):
        y[n, o, i, j] = bias[o]
        dbias[o] += dy(y.shape)[n, o, i, j]
        for c, a, b in itertools.product(range(C), range(kh), range(kw)):
            row, column = i * stride + a - padding, j * stride + b - padding
            if 0 <= row < H and 0 <= column < W:
                y[n, o, i, j] += x[n, c, row, column] * weight[o, c, a, b]
                dx[n, c, row, column] += dy(y.shape)[n, o, i, j] * weight[o, c, a, b]
                dweight[o, c, a, b] += dy(y.shape)[n, o, i, j] * x[n, c, row, column]
    return y, dx, dweight, dbias


@pytest.mark.parametrize("H, W, kh, kw, stride, padding", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_against_loops(make_devices, rng, dtype, H, W, kh, kw, stride, padding):
    (device,) = make_devices(1)
    x, weight, bias = (rng.normal(size=shape).astype(dtype) for shape in ((2, 2, H, W), (3, 2, kh, kw), (3,)))
    dy = rng.normal(size=(2, 3, 20, 20)).astype(dtype)
    expected = by_loops(x, weight, bias, lambda shape: dy[:, :, : shape[2], : shape[3]], stride, padding)
    here = [d2l.put(array, device) for array in (x, weight, bias)]
    y, cache = d2l.conv2d(*here, stride=stride, padding=padding)
    part = np.ascontiguousarray(dy[:, :, : y.shape[2], : y.shape[3]])
    for one, other in zip((y, *d2l.conv2d_grad(d2l.put(part, device), cache)), expected, strict=True):
        assert_close(one, other, TOLERANCE[np.dtype(dtype)])
    assert d2l.conv2d_grad(d2l.put(part, device), cache, input_grad=False)[0] is None


@pytest.mark.parametrize("bad", [{"stride": 0}, {"stride": 1.5}, {"padding": -1}, {"padding": None}])
def test_wrong_numbers(bad):
    with pytest.raises(ValueError, match=f"Conv2d: {next(iter(bad))} is .*whole number"):
        Conv2d(3, 3, **bad)


DEEP = sequential(
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


def test_of_these_some_are_computed_by_winograds_method():
    program = Program(POOLED, networks.init_params(network=POOLED, dtype=float), POOLED.input_shape, float, 3)
    made = [type(stage).__name__ for stage in program.stages[:6]]
    assert made == ["Padding", "Convolution", "Padding", "WinogradConvolution", "Padding", "Convolution"]


@pytest.mark.parametrize("network", [DEEP, NORMED, POOLED], ids=["deep", "normed", "pooled"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("N", [1, 5, 150])
def test_kernels_compute_the_same(rng, network, dtype, N):
    X, y = rng.random((N, 2, 9, 8)).astype(dtype), rng.integers(0, 4, N)
    params = networks.init_params(1, init="he", network=network, dtype=dtype)
    tolerance = 20 * TOLERANCE[np.dtype(dtype)]
    for half in (False, True) if dtype == np.float64 else (False,):
        each = networks.in_half(network) if half else network
        loss, grads = networks.loss_and_grads(X, y, params, each)
        expected_loss, expected = networks.loss_and_grads_as_written(X, y, params, each)
        assert float(loss) == pytest.approx(float(expected_loss), rel=tolerance)
        for i, (one, other) in enumerate(zip(grads, expected, strict=True)):
            if network is not NORMED or i != 1:  # whose gradient is 0 before batch norm
                assert_close(one, other, tolerance)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_k_devices_equal_one(rng, k):
    X, y = rng.random((30, 2, 9, 8), np.float32), rng.integers(0, 4, 30)
    settings = {"network": DEEP, "batch_size": 7, "num_epochs": 2, "lr": 0.1, "init": "he", "progress": False}
    settings["data"] = X[:25], y[:25], X[25:], y[25:]
    runs = [d2l.train([d2l.cpu(i) for i in range(count)], **settings) for count in (1, k)]
    for one, other in zip(runs[0].params, runs[1].params, strict=True):
        assert_close(one, other, 1e-4)


PADDED = sequential(
    (2, 9, 8),
    *(Conv2d(4, 3, padding=1), ReLU(), AvgPool2d(), Conv2d(5, 3, padding=2), ReLU(), Flatten(), Dense(4)),
)


def trained_on_both_kinds(rng, network, precision, num_epochs):
    """On two GPU devices, and on two CPU devices."""
    X, y = rng.integers(1, 256, (14, 2, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14)
    settings = {"network": network, "batch_size": 5, "num_epochs": num_epochs, "lr": 0.1, "init": "he"}
    settings |= {"data": (X[:11], y[:11], X[11:], y[11:]), "precision": precision, "progress": False}
    return [d2l.train([make(0), make(1)], **settings) for make in (d2l.gpu, d2l.cpu)]


@pytest.mark.long
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-4), ("mixed", 5e-3)])
def test_padding_in_graphs(standin, rng, precision, tolerance):
    """The kernels are compiled: 10 s."""
    gpus, cpus = trained_on_both_kinds(rng, PADDED, precision, 2)
    assert gpus.history.phases["step"] > 0
    for one, other in zip(gpus.params, cpus.params, strict=True):
        assert_close(one, other, tolerance)


@pytest.mark.long
@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-4), ("mixed", 5e-3)])
def test_on_a_gpu_that_has_no_kernel_for_it(standin, rng, precision, tolerance):
    """The step is no graph, and its convolutions are the layers. The kernels of the others are compiled: 10 s."""
    gpus, cpus = trained_on_both_kinds(rng, DEEP, precision, 1)
    assert "step" not in gpus.history.phases or gpus.history.phases["step"] == 0
    for one, other in zip(gpus.params, cpus.params, strict=True):
        assert_close(one, other, tolerance)
