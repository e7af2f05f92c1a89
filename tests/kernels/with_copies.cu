// Asynchronous copies, into which test_cuda_on_cpu.py puts mistakes.
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
