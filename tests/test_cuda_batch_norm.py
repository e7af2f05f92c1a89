"""Batch norm on GPUs: its kernels against float64, and networks with it against the layers, however devices meet."""

import numpy as np
import pytest
import references
from conftest import assert_close, few, sampled
from cuda_machines import close, normal, unwritten
from plan_steps import copies, execution_of, step
from test_cpu_kernels import AVERAGE, FLATTEN, MAX, RELU, conv, dense, norm
from test_cuda_program import make_gpus  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu import layers
from d2lmgpu.kernels.cuda import batch_norm
from d2lmgpu.kernels.cuda.batch_norm import Norm
from d2lmgpu.layers import track_statistics
from d2lmgpu.networks import (
    Network,
    init_params,
    init_statistics,
    logits,
    loss_and_grads,
    loss_and_grads_as_written,
)

pytestmark = pytest.mark.threads

NORMS = [
    Norm(C=3, H=5, W=6, S=2, relu=True),  # a row that is in no square
    Norm(C=2, H=9, W=7, S=2, max_pool=True, relu=True),
    Norm(C=5, H=7, W=11, S=3),
    Norm(C=2, H=9, W=8, S=4, max_pool=True),
    Norm(C=4, H=3, W=3, relu=True),
    Norm(C=33, H=2, W=2, S=2, relu=True),  # small images: neighbouring threads are neighbouring channels
    Norm(C=40, relu=True),
    Norm(C=1),
    Norm(C=2, H=40, W=31, S=2),  # several blocks a channel
]


def unpacked(x):
    """(N, C) as images of one place."""
    return x.reshape(*x.shape[:2], *(x.shape[2:] or (1, 1)))


class Reference:
    """In float64, of the first ``count`` images."""

    def __init__(self, x, weight, bias, norm, count):
        self.x, self.norm, self.count = unpacked(x).astype(float)[:count], norm, count
        values = self.x.transpose(1, 0, 2, 3).reshape(norm.C, -1)
        self.moments = np.stack([np.full(norm.C, values.shape[1]), values.sum(1), (values**2).sum(1)])
        n, sums, squares = self.moments
        self.mean, n = sums / np.maximum(n, 1), np.maximum(n, 1)
        self.factor = 1 / np.sqrt(squares / n - self.mean**2 + 1e-5)
        self.weight, self.n = weight, n
        wide = lambda values: values[:, None, None]  # noqa: E731
        self.x_hat = (self.x - wide(self.mean)) * wide(self.factor)
        z = wide(weight) * self.x_hat + wide(bias)
        # pooling is a convolution with a kernel of one pixel and weight 1, pooled
        one, zero = np.ones((1, 1, 1, 1)), np.zeros(1)
        self.y = np.zeros((count, norm.C, norm.H // norm.S, norm.W // norm.S))
        self.mask = np.zeros(self.y.shape, np.uint16)
        for i, c in np.ndindex(count, norm.C):
            pooled = references.conv_relu_pool(z[i, c][None, None], one, zero, norm.S, norm.max_pool, norm.relu)
            self.y[i, c], self.mask[i, c] = (array[0, 0] for array in pooled)

    def backward(self, dy):
        norm, shape = self.norm, (self.norm.H, self.norm.W)
        dz = references.unpool(unpacked(dy).astype(float)[: self.count], self.mask, shape, norm.S, norm.max_pool)
        self.sums = np.stack([dz.sum((0, 2, 3)), (dz * self.x_hat).sum((0, 2, 3))])
        along_one, along_x = (self.sums / self.n)[:, :, None, None]
        self.dx = (dz - along_one - self.x_hat * along_x) * (self.weight * self.factor)[:, None, None]


def after(array, count, expected):
    """Of ``count`` images as expected, of the others 0."""
    close(unpacked(array)[:count], expected)
    assert not array[count:].any()


@pytest.mark.parametrize("N, count", [(5, 5), (4, 3), (2, 0), (1, 1)])
@pytest.mark.parametrize(
    "norm",
    few(NORMS, *NORMS[:2], NORMS[6]),
    ids=lambda norm: "x".join(str(int(value)) for value in norm),
)
def test_kernels(machine, rng, norm, N, count):
    """What is beyond ``count`` counts for nothing."""
    shape, pooled = (N, norm.C, norm.H, norm.W), (N, norm.C, norm.H // norm.S, norm.W // norm.S)
    x, dy = 3 + 2 * normal(rng, *shape), normal(rng, *pooled)
    dy[count:] = 0
    if norm.H == norm.W == 1:
        x, dy = x[:, :, 0, 0], dy[:, :, 0, 0]
    weight, bias = normal(rng, norm.C), normal(rng, norm.C)
    expected = Reference(x, weight, bias, norm, count)
    n, examples = np.int32(N), np.array([count], np.int32)
    step = batch_norm.over_images("moments", norm, N)
    workspace, moments = unwritten(step.workspace, dtype=np.float64), unwritten(3, norm.C, dtype=np.float64)
    machine.run(step, x, examples, workspace, n)
    add_up = batch_norm.over_channels("moments_sum", norm)
    machine.run(add_up, workspace, examples, moments, np.int32(step.grid[0]), n)
    np.testing.assert_array_equal(moments[0], expected.moments[0])
    close(moments[1:], expected.moments[1:], 1e-6)
    y, mask = unwritten(*dy.shape), unwritten(*dy.shape, dtype=np.uint16)
    machine.run(batch_norm.over_images("normalise", norm, N), x, weight, bias, moments, examples, y, mask, n)
    after(y, count, expected.y)
    differ = unpacked(mask)[:count] != expected.mask
    assert differ.mean() < 0.02 if differ.size else True  # but for rounding, where z is 0
    expected.mask = unpacked(mask)[:count]
    expected.backward(dy)

    step = batch_norm.over_images("gradient_sums", norm, N)
    workspace, sums = unwritten(step.workspace, dtype=np.float64), unwritten(2, norm.C, dtype=np.float64)
    dweight, dbias = unwritten(norm.C), unwritten(norm.C)
    machine.run(step, x, dy, mask, moments, examples, workspace, n)
    reduce = batch_norm.over_channels("gradient_sums_sum", norm)
    machine.run(reduce, workspace, moments, sums, dweight, dbias, np.int32(step.grid[0]))
    scale = np.abs(dy).sum() / norm.C + 1e-30
    np.testing.assert_allclose(sums, expected.sums, rtol=0, atol=1e-5 * scale)
    np.testing.assert_allclose([dbias, dweight], expected.sums, rtol=0, atol=1e-5 * scale)
    dx = unwritten(*x.shape)
    machine.run(batch_norm.over_images("input_grad", norm, N), x, dy, mask, weight, moments, sums, examples, dx, n)
    largest = np.abs(expected.factor * weight).max() * (1 + np.abs(dy).max())
    np.testing.assert_allclose(unpacked(dx)[:count], expected.dx, rtol=0, atol=1e-5 * largest)
    assert not dx[count:].any()


@pytest.mark.parametrize("norm", [NORMS[0], NORMS[6]], ids=["images", "dense"])
def test_fixed_statistics(machine, rng, norm):
    N, count, shape = 3, 2, (norm.C, norm.H, norm.W) if norm.H > 1 else (norm.C,)
    x, weight, bias, mean = normal(rng, N, *shape), *(normal(rng, norm.C) for _ in range(3))
    variance = rng.random(norm.C).astype(np.float32)
    plain = layers.batch_norm_fixed(*(a.astype(float) for a in (x, weight, bias, mean, variance)))
    expected = np.maximum(plain, 0)
    if norm.S > 1:
        expected, _ = layers.avg_pool2d(expected)
    y, mask = unwritten(*expected.shape), unwritten(*expected.shape, dtype=np.uint16)
    arguments = x, weight, bias, mean, variance, np.array([count], np.int32), y, mask, np.int32(N)
    machine.run(batch_norm.over_images("normalise_fixed", norm, N), *arguments)
    after(y, count, unpacked(expected)[:count])


def test_a_large_mean_leaves_the_variance_its_digits(machine, rng):
    norm, N = Norm(C=2, H=40, W=30), 5
    x = (1000 + rng.normal(0, 0.1, (N, 2, 40, 30))).astype(np.float32)
    x[0, 1, 0, 0] = -1000  # the first number of a thread is far from all others
    step = batch_norm.over_images("moments", norm, N)
    workspace, moments, count = np.zeros(step.workspace), np.zeros((3, 2)), np.array([N], np.int32)
    machine.run(step, x, count, workspace, np.int32(N))
    add_up = batch_norm.over_channels("moments_sum", norm)
    machine.run(add_up, workspace, count, moments, np.int32(step.grid[0]), np.int32(N))
    n, sums, squares = moments
    exact = x.astype(float)
    close(sums / n, exact.mean((0, 2, 3)), 1e-9)
    np.testing.assert_allclose(squares / n - (sums / n) ** 2, exact.var((0, 2, 3)), rtol=1e-5)


@pytest.mark.parametrize("C", [1, 300])
def test_running_statistics(machine, rng, C):
    mean, variance = normal(rng, C), rng.random(C).astype(np.float32)
    expected = mean.copy(), variance.copy()
    for n in (5, 1, 0):
        x = normal(rng, n, C).astype(float)
        moments = np.stack([np.full(C, n), x.sum(0), (x**2).sum(0)]).astype(float)
        machine.run(batch_norm.track(C), moments, mean, variance)
        track_statistics(*expected, moments)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-6)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-6)


NETWORKS = {
    "as in LeNet": (
        (1, 13, 12),
        [
            *(conv(3, 1, 3, 3), norm(3), RELU, AVERAGE),  # 11 x 10: a row is in no square
            *(conv(4, 3, 2, 2), norm(4), RELU, MAX),
            *(FLATTEN, dense(16, 6), RELU, dense(6, 4)),
        ],
    ),
    "everywhere": (
        (2, 9, 8),
        [
            *(norm(2), MAX, RELU, norm(2), conv(5, 2, 2, 3), norm(5)),
            *(FLATTEN, dense(30, 7), norm(7), RELU, dense(7, 3)),
        ],
    ),
}


def make(rng, name, N):
    shape, network = NETWORKS[name]
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(1, init="he", network=network, dtype=np.float64)]
    X, y = rng.normal(0, 1, (N, *shape)), rng.integers(0, params[-1].size, N)
    return X.astype(np.float32), y, [p.astype(np.float32) for p in params], network


@pytest.mark.parametrize("name, N", sampled([(name, N) for name in NETWORKS for N in (6, 0, 1)], 3))
def test_as_the_layers(make_gpus, rng, name, N):  # noqa: F811
    (device,) = make_gpus(1)
    X, y, params, network = make(rng, name, N)
    expected_loss, expected = loss_and_grads_as_written(X.astype(float), y, [p.astype(float) for p in params], network)
    arguments = d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device), network
    largest = max(np.abs(grad).max() for grad in expected)
    for _ in range(2):  # the second time with everything made already
        loss, grads = loss_and_grads(*arguments)
        assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
        for grad, value in zip(grads, expected, strict=True):  # biases before batch norm have but rounding
            np.testing.assert_allclose(d2l.to_host(grad), value, rtol=0, atol=2e-5 * largest)
    statistics = [value + rng.random(value.shape).astype(np.float32) for value in init_statistics(network)]
    for fixed in ([], statistics):
        on_gpu = logits(arguments[0], *arguments[2:], [d2l.put(array, device) for array in fixed])
        assert_close(on_gpu, logits(X, params, network, fixed), 1e-4)


@pytest.mark.parametrize("statistics", ["local", "aggregated"])
@pytest.mark.parametrize("k, loads", few([(1, None), (2, [1, 0.4]), (3, [2, 0, 1])], (2, [1, 0.4])))
def test_steps_equal_those_of_the_layers(make_gpus, rng, k, loads, statistics):  # noqa: F811
    """Eager steps with kernels and, on as many CPU devices in float64, by the layers; also with an empty shard."""
    _, _, params, network = make(rng, "as in LeNet", 1)
    batches = [make(rng, "as in LeNet", n)[:2] for n in (6, 5)]
    results = []
    for devices, dtype in [(make_gpus(k), np.float32), ([d2l.cpu(i) for i in range(k)], np.float64)]:
        network, given = Network(tuple(network), (1, 13, 12), 4), [param.astype(dtype) for param in params]
        execution = execution_of(given, devices, network, batch_statistics=statistics)
        losses = [step(execution, X.astype(dtype), y, 0.1, loads) for X, y in batches]
        results.append((losses, copies(execution)))
    (losses, arrays), (expected_losses, expected) = results
    assert losses == pytest.approx(expected_losses, rel=1e-4)
    for own, other in zip(arrays, expected, strict=True):
        for i, (array, value) in enumerate(zip(own, other, strict=True)):
            np.testing.assert_allclose(array, value, rtol=0, atol=1e-4 * max(1, np.abs(value).max()), err_msg=str(i))
