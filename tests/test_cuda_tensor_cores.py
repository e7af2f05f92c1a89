"""The kernels on tensor cores: they equal float64 loops on factors that were rounded as the kernels round them."""

import re

import cuda_machines
import numpy as np
import pytest
import references
from cuda_machines import OnGPU, close, normal, rounded, unwritten
from test_cuda_kernels import LENET_2, ODD, conv_id

from d2lmgpu.devices import find_gpus
from d2lmgpu.kernels.cuda import Convolution, convolution, read, sources, tensor_cores
from d2lmgpu.kernels.cuda.launch import Launch, macros

SOME_CONVOLUTIONS = [
    (1, LENET_2),
    (5, ODD),
    (2, Convolution(C=18, H=6, W=7, O=35, KH=3, KW=2)),
    (3, Convolution(C=9, H=5, W=6, O=17, KH=2, KW=2, S=4, relu=True)),  # several images in a block
    (1, Convolution(C=1, H=50, W=41, O=3, KH=3, KW=3, S=2)),  # more outputs than a block takes
    (1, Convolution(C=1, H=37, W=34, O=10, KH=32, KW=32, S=1)),  # one row of kernels at a time
    (2, Convolution(C=130, H=4, W=5, O=70, KH=3, KW=3, S=2, max_pool=True)),  # channels in chunks
]


@pytest.mark.parametrize("file", sources())
def test_needs_no_header_that_cupy_does_not_bring(file):
    """mma.h includes crt/mma.h, which only NVIDIA's compiler packages have."""
    assert set(re.findall(r"#include <(.+)>", read(file))) <= {"cuda_fp16.h", "cuda_bf16.h"}


def double(*arrays):
    return [array.astype(float) for array in arrays]


@pytest.fixture(params=tensor_cores.TYPES)
def kind(request, machine):
    if isinstance(machine, OnGPU):
        import cupy

        if int(cupy.cuda.Device().compute_capability) < tensor_cores.OLDEST[request.param]:
            pytest.skip(f"this GPU, {find_gpus()}, has no tensor cores for {request.param}")
    return request.param


ONE_INSTRUCTION = """
extern "C" __global__ void one_instruction(const float* a, const float* b, float* d)
{
    __shared__ uint4 a_s[32], b_s[32];  // 16 rows of A, and 8 columns of B, their units 0, then their units 1
    int lane = threadIdx.x;
    a_s[lane] = unit_of(a + (lane % 16 * 2 + lane / 16) * UNIT, 1, UNIT);
    b_s[lane] = unit_of(b + (lane % 8 * 2 + lane / 8 % 2) * UNIT, 1, UNIT);
    __syncthreads();
    unsigned in_a[4], in_b[2];
    load_units<4>(in_a, a_s + lane);
    load_units<2>(in_b, b_s + lane);
    float both[4] = {}, one[4] = {};
    multiply(both, in_a, in_b);
    multiply_one(one, in_a, in_b);
    for (int e = 0; e < 4; ++e) {
        int at = (lane / 4 + e / 2 * 8) * 8 + lane % 4 * 2 + e % 2;
        d[at] = both[e], d[128 + at] = one[e];
    }
}
"""


def test_one_instruction_by_the_layout_that_is_written_down(machine, kind, rng, monkeypatch):
    """On a GPU this shows that the shim does what a tensor core does."""
    monkeypatch.setattr(cuda_machines, "read", lambda file: read("mma.cuh") + ONE_INSTRUCTION)
    unit = tensor_cores.UNIT[kind]
    a, b, d = normal(rng, 16, 2 * unit), normal(rng, 8, 2 * unit), unwritten(2, 16, 8)
    launch = Launch("mma.cuh", "one_instruction", macros(TYPE=tensor_cores.TYPES[kind]), (1,), (32,))
    machine.run(launch, a, b, d)
    a, b = double(rounded(a, kind), rounded(b, kind))
    close(d[0], a @ b.T)
    close(d[1], a[:, :unit] @ b[:, :unit].T)


@pytest.mark.parametrize("N, D, O, relu", [(5, 200, 37, False), (34, 70, 10, True)])
def test_dense(machine, kind, rng, N, D, O, relu):
    x, weight, bias, dy = normal(rng, N, D), normal(rng, D, O), normal(rng, O), normal(rng, N, O)
    x_r, weight_r = double(rounded(x, kind), rounded(weight, kind))
    z, y = references.dense(x_r, weight_r, bias), unwritten(N, O)
    machine.run(tensor_cores.dense_forward(kind, D, O, N, relu), x, weight, bias, y, np.int32(N))
    close(y, np.where(z > 0, z, 0) if relu else z)
    dz = np.where(y > 0, rounded(dy, kind), 0) if relu else rounded(dy, kind)
    dx, dweight, dbias = unwritten(N, D), unwritten(D, O), unwritten(O)
    machine.run(tensor_cores.dense_input_grad(kind, D, O, N, relu), dy, y, weight, dx, np.int32(N))
    machine.run(tensor_cores.dense_weight_grad(kind, D, O, N, relu), x, dy, y, dweight, dbias, np.int32(N))
    for actual, expected in zip((dx, dweight, dbias), references.dense_grad(dz, x_r, weight_r), strict=True):
        close(actual, expected)


@pytest.mark.parametrize("N, conv", SOME_CONVOLUTIONS, ids=conv_id)
def test_convolution(machine, kind, rng, N, conv):
    x, weight = normal(rng, N, conv.C, conv.H, conv.W), normal(rng, conv.O, conv.C, conv.KH, conv.KW)
    bias = normal(rng, conv.O)
    x_r, weight_r = double(rounded(x, kind), rounded(weight, kind))
    y_expected, mask_expected = references.conv_relu_pool(x_r, weight_r, bias, conv.S, conv.max_pool, conv.relu)
    y, mask = unwritten(*y_expected.shape), unwritten(*y_expected.shape, dtype=np.uint16)
    machine.run(tensor_cores.conv_forward(kind, conv, N), x, weight, bias, y, mask, np.int32(N))
    close(y, y_expected)
    np.testing.assert_array_equal(mask, mask_expected)

    dy = normal(rng, *y.shape)
    shape = conv.H - conv.KH + 1, conv.W - conv.KW + 1
    dz = references.unpool(dy, mask, shape, conv.S, conv.max_pool)
    dz_r = rounded(dz.astype(np.float32), kind).astype(float)
    dx_expected, dweight_expected, _ = references.conv2d_grad(dz_r, x_r, weight_r)
    dx, dweight, dbias = unwritten(*x.shape), unwritten(*weight.shape), unwritten(conv.O)
    machine.run(tensor_cores.conv_input_grad(kind, conv, N), dy, mask, weight, dx, np.int32(N))
    close(dx, dx_expected)
    partial = tensor_cores.conv_weight_grad(kind, conv, N, multiprocessors=1)  # several images in a group
    workspace, rows = unwritten(partial.workspace), np.int32(partial.workspace // weight.size)
    machine.run(partial, x, dy, mask, workspace, np.int32(N))
    reduce = convolution.conv_weight_grad_reduce(conv, partial)
    machine.run(reduce, workspace, dy, mask, dweight, dbias, rows, np.int32(N))
    close(dweight, dweight_expected)
    close(dbias, dz.sum(axis=(0, 2, 3)))


def run(machine, name, kind, n, *args):
    machine.run(tensor_cores.mixed_precision(name, kind, n, interval=2), *args)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_casts_there_and_back(machine, rng, kind):
    x = np.concatenate([normal(rng, 700), normal(rng, 300) * 1e-6, np.float32([0, 65504, -65519, 1e-9, -0.0])])
    small = np.empty(len(x), np.float16 if kind == "float16" else np.uint16)
    back = unwritten(len(x))
    run(machine, "cast_from_float", kind, len(x), x, small, np.int32(len(x)))
    run(machine, "cast_to_float", kind, len(x), small, back, np.int32(len(x)))
    np.testing.assert_array_equal(back, rounded(x, kind))
    if kind == "float16":
        np.testing.assert_array_equal(small, x.astype(np.float16))


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_step_with_an_overflow_is_skipped_and_the_scale_adapts(machine, rng, bad):
    n, kind = 1001, "float16"
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
        run(machine, "check_finite", kind, n, scaled, overflow, count)
        assert overflow == is_bad
        run(machine, "scaled_sgd", kind, n, param, scaled, rates, step, scale, overflow, count)
        run(machine, "update_scale", kind, n, scale, overflow, good_steps)
        close(param, expected)
        assert scale == scale_after and overflow == 0
