"""The shim that runs CUDA kernels on the CPU: what works, and that mistakes are found."""

import cuda_on_cpu
import numpy as np
import pytest

pytestmark = pytest.mark.threads

CODE = """
extern "C" __global__ void __launch_bounds__(SIZE) reverse(const float* __restrict__ x, float* y, int n)
{
    __shared__ float shared[SIZE];  // (a comment with a brace {
    shared[threadIdx.x] = x[blockIdx.x * SIZE + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * SIZE + threadIdx.x] = shared[SIZE - 1 - threadIdx.x];
}
extern "C" __global__ void without_barrier(const float* x, float* y)
{
    __shared__ float shared[SIZE];
    shared[threadIdx.x] = x[threadIdx.x];
    y[threadIdx.x] = shared[SIZE - 1 - threadIdx.x];
}
extern "C" __global__ void half_a_barrier(float* y)
{
    if (threadIdx.x < 20) __syncthreads();
    y[threadIdx.x] = 1;
}
extern "C" __global__ void two_barriers(float* y)
{
    if (threadIdx.x < 20) __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void beyond(float* y, int n) { y[n] = 1; }
extern "C" __global__ void into_const(const float* x) { ((float*)x)[0] = 5; }
extern "C" __global__ void add_beyond(float* y, const float* x, int n) { y[n] += x[n]; }
extern "C" __global__ void vector_at(const float* x, float* y, int n) { y[0] = ((const float4*)(x + n))->w; }
extern "C" __global__ void warp_sum(const float* x, float* y)
{
    float sum = x[threadIdx.x];
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    y[threadIdx.x] = sum;
}
"""


@pytest.fixture
def kernel():
    return cuda_on_cpu.RawModule(code=CODE, options=("-std=c++17", "-DSIZE=64")).get_function


def test_threads_meet_at_barriers_and_share_memory(kernel, rng):
    x, y = rng.normal(size=192).astype(np.float32), np.empty(192, np.float32)
    kernel("reverse")((3,), (64,), (x, y, np.int32(192)))
    np.testing.assert_array_equal(y.reshape(3, 64), x.reshape(3, 64)[:, ::-1])


def test_lanes_of_a_warp_meet_by_shuffles(kernel):
    x, y = np.arange(96, dtype=np.float32), np.empty(96, np.float32)
    kernel("warp_sum")((1,), (96,), (x, y))
    np.testing.assert_array_equal(y, np.repeat(x.reshape(3, 32).sum(axis=1), 32))


def test_what_was_not_written_is_not_a_number(kernel):
    y = np.zeros(64, np.float32)
    kernel("without_barrier")((1,), (64,), (np.ones(64, np.float32), y))
    assert np.isnan(y).sum() == 32


@pytest.mark.parametrize(
    "name, message", [("half_a_barrier", "20 of 64 threads"), ("two_barriers", "64 of 64 threads")]
)
def test_a_barrier_that_some_do_not_reach_is_an_error(kernel, name, message):
    with pytest.raises(cuda_on_cpu.KernelError, match=message):
        kernel(name)((1,), (64,), (np.zeros(64, np.float32),))
    test_threads_meet_at_barriers_and_share_memory(kernel, np.random.default_rng(1))  # and the next launch works


@pytest.mark.parametrize("n", [-1, 64])
def test_writing_outside_of_an_array_is_an_error(kernel, n):
    with pytest.raises(cuda_on_cpu.KernelError, match="y: written outside"):
        kernel("beyond")((1,), (1,), (np.zeros(64, np.float32), np.int32(n)))


def test_adding_outside_of_an_array_is_an_error(kernel):
    x, y = np.ones(64, np.float32), np.ones(64, np.float32)
    with pytest.raises(cuda_on_cpu.KernelError, match="y: written outside"):
        kernel("add_beyond")((1,), (1,), (y, x, np.int32(64)))


def test_vectors_must_lie_at_multiples_of_their_size(kernel):
    x, y = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    kernel("vector_at")((1,), (1,), (x, y, np.int32(8)))
    assert y == 11
    with pytest.raises(cuda_on_cpu.KernelError, match="no multiple of its size"):
        kernel("vector_at")((1,), (1,), (x, y, np.int32(9)))


def test_writing_into_const_is_an_error(kernel):
    with pytest.raises(cuda_on_cpu.KernelError, match="x: const, but written"):
        kernel("into_const")((1,), (1,), (np.zeros(64, np.float32),))


@pytest.mark.parametrize(
    "args, message",
    [
        ((np.zeros(64, np.float32),), "takes 3 arguments, not 1"),
        ((np.zeros(64), np.zeros(64, np.float32), np.int32(64)), "x is a ndarray of float64"),
        ((np.zeros(64, np.float32), np.zeros(64, np.float32), 64), "n is a int; it should be generic of int32"),
        ((np.zeros(64, np.float32), np.zeros((64, 2), np.float32)[:, 0], np.int32(64)), "y is not contiguous"),
    ],
)
def test_wrong_arguments_are_errors(kernel, args, message):
    with pytest.raises(TypeError, match=message):
        kernel("reverse")((1,), (64,), args)


@pytest.mark.parametrize("grid, block", [((0,), (64,)), ((1,), (2048,)), ((1, 70000), (64,))])
def test_a_launch_that_no_gpu_takes_is_an_error(kernel, grid, block):
    with pytest.raises(cuda_on_cpu.KernelError, match="no GPU launches"):
        kernel("half_a_barrier")(grid, block, (np.zeros(64, np.float32),))
