"""Where the CUDA kernels round in mixed precision: each kernel to the bit, and whole networks as `in_half` says."""

import numpy as np
import pytest
from conftest import few, long
from cuda_machines import normal, rounded, unwritten
from test_cpu_kernels import AVERAGE, FLATTEN, MAX, RELU, conv, dense, norm
from test_cuda_kernels import CONVOLUTIONS, conv_arrays, conv_id, forward_ladder, input_grad_ladder
from test_cuda_networks import assert_near
from test_cuda_program import make_gpus  # noqa: F401
from test_cuda_winograd import CASES, arrays

import d2lmgpu as d2l
from d2lmgpu.kernels import cuda
from d2lmgpu.kernels.cuda import batch_norm, launch, winograd
from d2lmgpu.kernels.cuda.batch_norm import BatchNorm, Norm
from d2lmgpu.kernels.cuda.dense import Dense, Head, dense as dense_launches
from d2lmgpu.kernels.cuda.launch import rounding
from d2lmgpu.kernels.cuda.stages import Convolution
from d2lmgpu.layers import zero_moments
from d2lmgpu.networks import Network, channels, half_weights, in_half, init_params
from d2lmgpu.networks.losses import CROSS_ENTROPY
from d2lmgpu.networks.plain import sums_as_written

pytestmark = pytest.mark.threads

LARGEST = 65504


def assert_writes_rounded(machine, how, inputs, out, *more):
    """With HALF_OUT the kernel writes to ``out`` what it else would, rounded; to other arrays the same."""
    results = []
    for step in (how, rounding(how)):
        arrays = [array.copy() if isinstance(array, np.ndarray) else array for array in (out, *more)]
        machine.run(step, *inputs, *arrays)
        results.append(arrays)
    (plain, *others), (found, *same) = results
    assert not np.array_equal(plain, rounded(plain, "float16"), equal_nan=True)  # there is something to round
    np.testing.assert_array_equal(found, rounded(plain, "float16"))
    for one, other in zip(others, same, strict=True):
        np.testing.assert_array_equal(one, other)


def assert_reads_rounded(machine, how, inputs, weight, outputs):
    """With HALF_WEIGHT the kernel computes, bit for bit, what it else would from rounded weights."""
    results = []
    for step, value in (how, rounded(weight, "float16")), (rounding(how, out=False, weight=True), weight):
        arrays = [array.copy() if isinstance(array, np.ndarray) else array for array in outputs]
        machine.run(step, *(value if array is weight else array for array in inputs), *arrays)
        results.append(arrays)
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


def test_numbers_of_every_size(machine, rng):
    """Small ones to multiples of 2^-24, of two equally near to the even one, and beyond 65519 they are infinite."""
    x = np.concatenate([np.abs(normal(rng, 300)) * np.float32(10.0) ** e for e in (-9, -7, -5, -2, 0, 3)])
    x = np.float32(
        [*x, LARGEST, 65519, 65520, 1e9, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11, np.inf, np.nan, 0]
    )
    y = unwritten(x.size)
    machine.run(rounding(launch.relu(x.size)), x, y, np.int32(x.size))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))
    assert np.isinf(y[-9]) and y[-11] == LARGEST == y[-10] and y[-7] == 0 and y[-5] == 1


@pytest.mark.parametrize(
    "N, conv", long(CONVOLUTIONS[0], CONVOLUTIONS[2], CONVOLUTIONS[8], CONVOLUTIONS[11]), ids=conv_id
)
def test_convolutions(machine, rng, N, conv):
    """All rungs of the ladder."""
    x, weight, bias, y, mask, dy = conv_arrays(rng, N, conv._replace(max_pool=False))  # numbers that are not whole
    n = np.int32(N)
    for step in forward_ladder(conv, N):
        outputs = unwritten(*y.shape), unwritten(*y.shape, dtype=np.uint16), n
        assert_writes_rounded(machine, step, (x, weight, bias), *outputs)
        assert_reads_rounded(machine, step, (x, weight, bias), weight, outputs)
    for step in input_grad_ladder(conv, N):
        assert_writes_rounded(machine, step, (dy, mask, weight), unwritten(*x.shape), n)
        assert_reads_rounded(machine, step, (dy, mask, weight), weight, (unwritten(*x.shape), n))


@pytest.mark.parametrize("N, conv, tile", long(CASES[0], CASES[1], CASES[4], CASES[6]), ids=conv_id)
def test_winograds_method(machine, rng, N, conv, tile):
    x, weight, bias = arrays(rng, N, conv)
    how, n = winograd.Winograd(conv, *tile, N), np.int32(N)
    forward, back = winograd.conv_forward(how), winograd.conv_input_grad(how)
    u, u_back = unwritten(forward.workspace), unwritten(back.workspace)
    weights = winograd.weights(how, input_grad=True)
    assert_reads_rounded(machine, weights, [weight], weight, (u, u_back))
    machine.run(weights, weight, u, u_back)
    shape = N, conv.O, conv.PH, conv.PW
    y, mask = unwritten(*shape), unwritten(*shape, dtype=np.uint16)
    assert_writes_rounded(machine, forward, (x, u, bias), y, mask, n)
    machine.run(forward, x, u, bias, y, mask, n)
    assert_writes_rounded(machine, back, (normal(rng, *shape), mask, u_back), unwritten(*x.shape), n)


@pytest.mark.parametrize(
    "norm", [Norm(C=3, H=5, W=6, S=2, relu=True), Norm(C=40, max_pool=True)], ids=["images", "dense"]
)
def test_batch_norm(machine, rng, norm):
    N = 4
    x, weight, bias = normal(rng, N, norm.C, norm.H, norm.W), normal(rng, norm.C), normal(rng, norm.C)
    moments = np.stack([np.full(norm.C, 7.0), rng.normal(0, 1, norm.C), 9 + rng.random(norm.C)])
    mean, variance, count = normal(rng, norm.C), 1 + rng.random(norm.C).astype(np.float32), np.array([3], np.int32)
    shape = N, norm.C, norm.H // norm.S, norm.W // norm.S
    outputs = unwritten(*shape), unwritten(*shape, dtype=np.uint16), np.int32(N)
    for name, given in {"normalise": (moments,), "normalise_fixed": (mean, variance)}.items():
        how = batch_norm.over_images(name, norm, N)
        assert_writes_rounded(machine, how, (x, weight, bias, *given, count), *outputs)


def test_images_and_pooling(machine, rng):
    images, labels = rng.integers(256, size=(9, 77)).astype(np.uint8), rng.integers(10, size=9).astype(np.uint8)
    order, starts, step = rng.permutation(9).astype(np.int32), np.array([0, 3], np.int32), np.zeros(1, np.int32)
    inputs = images, labels, order, starts, step
    outputs = unwritten(4, 77), unwritten(4, dtype=np.int32), unwritten(1, dtype=np.int32)
    assert_writes_rounded(machine, launch.gather(77, 4), inputs, *outputs, np.int32(4))
    for max_pool in (False, True):
        outputs = unwritten(6, 2, 2), unwritten(6, 2, 2, dtype=np.uint16)
        assert_writes_rounded(machine, launch.pool(5, 4, 2, max_pool, 6), [normal(rng, 6, 5, 4)], *outputs, np.int32(6))


@pytest.mark.parametrize("relu", [False, True])
def test_a_dense_layers_input_grad(machine, rng, relu):
    N, D, O = 33, 70, 10
    dy, y, weight = normal(rng, N, O), normal(rng, N, O), normal(rng, D, O)
    how = dense_launches(D, O, N, relu, "float16").input_grad
    assert_writes_rounded(machine, how, (dy, y, weight), unwritten(N, D), np.int32(N))


def test_the_loss_is_that_of_rounded_logits(machine, rng):
    N, classes = 5, 37
    logits, labels = 5 * normal(rng, N, classes), rng.integers(classes, size=N).astype(np.int32)
    count, scale, n = np.array([4], np.int32), np.array([1024], np.float32), np.int32(N)
    how, results = launch.softmax_cross_entropy(classes, N), []
    for step, values in (how, rounded(logits, "float16")), (rounding(how), logits):
        arrays = unwritten(N, classes), unwritten(N), unwritten(N, dtype=np.int32)
        machine.run(step, values, labels, count, scale, *arrays, n)
        results.append(arrays)
    (plain, *others), (found, *same) = results
    np.testing.assert_array_equal(found, rounded(plain, "float16"))
    for one, other in zip(others, same, strict=True):
        np.testing.assert_array_equal(one, other)


NETWORKS = {
    "convolutions": (
        (2, 9, 8),
        [conv(5, 2, 2, 3), conv(4, 5, 3, 3), RELU, AVERAGE, conv(3, 4, 2, 2), FLATTEN, dense(6, 4)],
    ),
    "Winograd": (
        (3, 14, 14),
        [conv(8, 3, 3, 3), RELU, conv(24, 8, 5, 5), RELU, AVERAGE, conv(6, 24, 3, 3), RELU, FLATTEN, dense(24, 4)],
    ),
    "what comes between": ((2, 12, 11), [RELU, MAX, RELU, conv(3, 2, 2, 2), MAX, AVERAGE, conv(4, 3, 1, 1), FLATTEN]),
    "batch norm": (
        (1, 9, 9),
        [
            conv(4, 1, 2, 2),
            norm(4),
            RELU,
            AVERAGE,
            conv(5, 4, 2, 2),
            norm(5),
            conv(3, 5, 2, 1),
            norm(3),
            FLATTEN,
            dense(18, 4),
        ],
    ),
    "batch norm first": (
        (2, 6, 6),
        [norm(2), conv(3, 2, 3, 3), RELU, FLATTEN, dense(48, 7), norm(7), RELU, dense(7, 4)],
    ),
    "dense layers": ((1, 4, 5), [FLATTEN, dense(20, 9), RELU, dense(9, 6), dense(6, 40)]),
    "ReLU at the end": ((1, 4, 4), [FLATTEN, dense(16, 6), RELU]),
}


@pytest.mark.parametrize("scale", [*long(1.0), 2.0**12])
@pytest.mark.parametrize("name", few(NETWORKS, "dense layers"))
def test_networks_are_those_of_in_half(make_gpus, rng, name, scale):  # noqa: F811
    """Against the layers in float64, kernel by kernel. Sums in float32 differ, and some round the other way."""
    (device,) = make_gpus(1)
    shape, made = NETWORKS[name]
    network, N = Network(made, shape, 0), 5
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(1, init="he", network=network, dtype=np.float64)]
    params = [param.astype(np.float32) for param in params]
    X, y = rng.normal(0, 1, (N, *shape)).astype(np.float32), rng.integers(0, params[-1].size, N)
    working = half_weights([param.astype(float) for param in params])
    expected, moments = [np.zeros_like(param) for param in working], zero_moments(channels(network))
    how = in_half(network), expected, CROSS_ENTROPY, scale
    expected_loss, _ = sums_as_written(X.astype(float), y, working, *how, moments=moments)

    def compute_on_gpu(X, y, *raws):
        program = cuda.Program(network, raws, shape, N, "mixed")
        program.use_statistics(program.new_moments())
        program.scale.fill(scale)
        grads = [raw.copy() for raw in raws]
        program.forward(raws, X, y)
        program.backward(raws, grads)
        check_stages(program)
        return [array.get() for array in (program.loss, *grads)]

    arrays = [d2l.put(array, device).raw for array in (X, y.astype(np.int32), *params)]
    loss, *grads = device.submit(compute_on_gpu, *arrays).result()
    assert float(loss[0]) == pytest.approx(float(expected_loss), rel=1e-3)
    for grad, value in zip(grads, expected, strict=True):
        if np.abs(value).max() > 1e-9 * scale:  # else it is a bias before batch norm
            assert_near(grad, value, 2e-3)


def check_stages(program):
    """What convolutions read is rounded, and the dx of whatever multiplies; what batch norm reads and writes is not."""

    def is_rounded(array):
        values = array.get()
        return np.array_equal(values, rounded(values, "float16"))

    for stage in program.stages:
        if isinstance(stage, Convolution):
            assert is_rounded(stage.x)
        if isinstance(stage, (Convolution, Dense, Head)) and stage.dx is not None:
            assert is_rounded(stage.dx)
        if isinstance(stage, BatchNorm):
            assert not is_rounded(stage.x)
            assert stage.dx is None or not is_rounded(stage.dx)
    assert isinstance(program.stages[-1], Head) == is_rounded(program.logits)  # else they are rounded as they are read
    assert isinstance(program.stages[-1], Head) != is_rounded(program.dlogits)
