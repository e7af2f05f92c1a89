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
extern "C" __global__ void vector_at(const float* x, float* y, int n) { y[0] = ((const float4*)(x + n))->w; }
extern "C" __global__ void warp_sum(const float* x, float* y)
{
    float sum = x[threadIdx.x];
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    y[threadIdx.x] = sum;
}
"""

COPIES = """
extern "C" __global__ void copies(float* x, float* y)
{
    __shared__ float shared[192];
    int i = threadIdx.x;
    Shared mine = address(shared + i);
    shared[128 + i] = 5;
    __syncthreads();
    copy(mine, 0, x + i, true);
    end_of_group();  // first
    copy(mine, 64, x + 64 + i, i != 3);
    end_of_group();  // second
    wait_for_groups<0>();
    __syncthreads();  // all is there
    for (int k = 0; k < 3; ++k) y[64 * k + 63 - i] = shared[64 * k + 63 - i];
    __syncthreads();
    end_of_group();
    wait_for_groups<0>();  // whatever is left
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


def copied(right="", wrong=""):
    """What a kernel finds of x, which it copied asynchronously in two groups, and of other numbers."""
    assert right in COPIES
    x, y = np.arange(128, dtype=np.float32), np.empty((3, 64), np.float32)
    module = cuda_on_cpu.RawModule(code=COPIES.replace(right, wrong, 1))
    module.get_function("copies")((1,), (64,), (x, y))
    return y


def test_asynchronous_copies_are_there_after_a_wait_and_a_barrier():
    expected = np.stack([np.arange(64), np.arange(64, 128), np.full(64, 5)])
    expected[1, 3] = 0
    np.testing.assert_array_equal(copied(), expected)
    expected[2] = expected[0]  # by a third group, for which it does not wait at first
    more = "end_of_group(); copy(mine, 128, x + i, true); end_of_group(); wait_for_groups<1>(); wait_for_groups<0>();"
    np.testing.assert_array_equal(copied("end_of_group();  // second", more), expected)


@pytest.mark.parametrize(
    "right, wrong, expected",
    [
        ("wait_for_groups<0>();", "wait_for_groups<1>();", [0, 64, 0]),
        ("wait_for_groups<0>();", "", [64, 64, 0]),
        ("__syncthreads();  // all is there", "", [32, 32, 0]),  # the copies of other threads
        ("wait_for_groups<0>();", "wait_for_groups<0>(); copy(mine, 128, x, true);", [0, 0, 64]),  # over what is read
        ("wait_for_groups<0>();", "if (i == 7) x[7] = x[71] = -1; wait_for_groups<0>();", [1, 1, 0]),  # what is copied
    ],
)
def test_what_an_asynchronous_copy_may_have_changed_or_not_is_not_a_number(right, wrong, expected):
    np.testing.assert_array_equal(np.isnan(copied(right, wrong)).sum(axis=1), expected)


@pytest.mark.parametrize("wrong", ["copy(mine, 0, x, true);", "copy(mine, 0, x, true); end_of_group();"])
def test_asynchronous_copies_for_which_nobody_waits_are_an_error(wrong):
    with pytest.raises(cuda_on_cpu.KernelError, match="copies: .* nobody waits"):
        copied("wait_for_groups<0>();  // whatever is left", wrong)


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


def test_vectors_must_lie_at_multiples_of_their_size(kernel):
    x, y = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
    kernel("vector_at")((1,), (1,), (x, y, np.int32(8)))
    assert y == 11
    with pytest.raises(cuda_on_cpu.KernelError, match="no multiple of its size"):
        kernel("vector_at")((1,), (1,), (x, y, np.int32(9)))


def test_writing_into_const_is_an_error(kernel):
    with pytest.raises(cuda_on_cpu.KernelError, match="x: const, but written"):
        kernel("into_const")((1,), (1,), (np.zeros(64, np.float32),))
