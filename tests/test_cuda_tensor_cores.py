"""The kernels on tensor cores: they equal float64 loops on factors that were rounded as the kernels round them."""

import re

import cuda_machines
import numpy as np
import pytest
import references
from conftest import long
from cuda_machines import SOURCES, OnGPU, close, normal, rounded, unwritten

from d2lmgpu.devices import find_gpus
from d2lmgpu.kernels.cuda import TENSOR_CORES, launch, read
from d2lmgpu.kernels.cuda.dense import dense
from d2lmgpu.kernels.cuda.launch import Launch

pytestmark = pytest.mark.threads


@pytest.mark.parametrize("file", SOURCES)
def test_needs_no_header_that_cupy_does_not_bring(file):
    """mma.h includes crt/mma.h, which only NVIDIA's compiler packages have."""
    assert set(re.findall(r"#include <(.+)>", read(file))) == set()


def double(*arrays):
    return [array.astype(float) for array in arrays]


@pytest.fixture
def kind(machine):
    if isinstance(machine, OnGPU):
        import cupy

        if int(cupy.cuda.Device().compute_capability) < TENSOR_CORES:
            pytest.skip(f"this GPU, {find_gpus()}, has no tensor cores for float16")
    return "float16"


ONE_INSTRUCTION = """
extern "C" __global__ void one_instruction(const float* a, const float* b, float* d)
{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;  // A is 16 rows of 8 words, B 8 columns of 8 words
    unsigned in_a[4], in_b[2];
    auto word = [](const float* numbers, int i) { return pack(numbers[2 * i], numbers[2 * i + 1]); };
    for (int e = 0; e < 4; ++e) in_a[e] = word(a, (g + e % 2 * 8) * 8 + t + e / 2 * 4);
    for (int e = 0; e < 2; ++e) in_b[e] = word(b, g * 8 + t + e * 4);
    float sum[4] = {};
    multiply(sum, in_a, in_b);
    for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = sum[e];
}
"""


def test_one_instruction_by_the_layout_that_is_written_down(machine, kind, rng, monkeypatch):
    """On a GPU this shows that the shim does what a tensor core does."""
    monkeypatch.setattr(cuda_machines, "read", lambda file: read("mma.cuh") + ONE_INSTRUCTION)
    a, b, d = normal(rng, 16, 16), normal(rng, 8, 16), unwritten(16, 8)
    launch = Launch("mma.cuh", "one_instruction", (), (1,), (32,))
    machine.run(launch, a, b, d)
    a, b = double(rounded(a, kind), rounded(b, kind))
    close(d, a @ b.T)


@pytest.mark.parametrize(
    "N, D, O, relu", [(40, 65, 130, True), *long((1, 3, 2, True), (7, 200, 37, False), (33, 70, 10, True))]
)
def test_dense(machine, kind, rng, N, D, O, relu):
    x, weight, bias, dy = normal(rng, N, D), normal(rng, D, O), normal(rng, O), normal(rng, N, O)
    x_r, weight_r = double(rounded(x, kind), rounded(weight, kind))
    z, y = references.dense(x_r, weight_r, bias), unwritten(N, O)
    how = dense(D, O, N, relu, kind)
    machine.run(how.forward, x, weight, bias, y, np.int32(N))
    close(y, np.where(z > 0, z, 0) if relu else z)
    dz = np.where(y > 0, rounded(dy, kind), 0) if relu else rounded(dy, kind)
    dx, dweight, dbias = unwritten(N, D), unwritten(D, O), unwritten(O)
    machine.run(how.input_grad, dy, y, weight, dx, np.int32(N))
    machine.run(how.weight_grad, x, dy, y, dweight, dbias, np.int32(N))
    for actual, expected in zip((dx, dweight, dbias), references.dense_grad(dz, x_r, weight_r), strict=True):
        close(actual, expected)


def run(machine, name, n, *args):
    machine.run(launch.mixed_precision(name, n, interval=2), *args)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_with_an_overflow_is_skipped_and_the_scale_adapts(machine, rng, bad):
    n = 1001
    count = np.int32(n)
    param, grad = normal(rng, n), normal(rng, n)
    rates, step = np.array([0.5], np.float32), np.zeros(1, np.int32)
    scale, overflow, good_steps = np.array([1024], np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    for is_bad, scale_after in [
        (False, 1024),
        (False, 2048),
        (False, 2048),
        (True, 1024),
        (False, 1024),
        (False, 2048),
    ]:
        scaled = grad * scale[0]
        scaled[-1] = bad if is_bad else scaled[-1]
        expected = param if is_bad else param - 0.5 * grad.astype(float)
        run(machine, "check_finite", n, scaled, overflow, count)
        assert overflow == is_bad
        run(machine, "scaled_sgd", n, param, scaled, rates, step, scale, overflow, count)
        run(machine, "update_scale", n, scale, overflow, good_steps)
        close(param, expected)
        assert scale == scale_after and overflow == 0
