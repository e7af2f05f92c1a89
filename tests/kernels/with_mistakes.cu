// Kernels that show what the shim for CUDA kernels does, and which mistakes it finds (test_cuda_on_cpu.py).
extern "C" __global__ void __launch_bounds__(SIZE) reverse(const float* __restrict__ x, float* y, int n)
{
    __shared__ float shared[SIZE];  // (a comment with a brace {
    shared[threadIdx.x] = x[blockIdx.x * SIZE + threadIdx.x];
    if (n) __syncthreads();
    y[blockIdx.x * SIZE + threadIdx.x] = shared[SIZE - 1 - threadIdx.x];
}
extern "C" __global__ void half_a_barrier(const float* x, float* y, int n)
{
    if (threadIdx.x < n) __syncthreads();
}
extern "C" __global__ void two_barriers(const float* x, float* y, int n)
{
    if (threadIdx.x < n) __syncthreads();
    else
        __syncthreads();
}
extern "C" __global__ void beyond(const float* x, float* y, int n) { y[n] = 1; }
extern "C" __global__ void into_const(const float* x, float* y, int n) { ((float*)x)[n] = 5; }
extern "C" __global__ void vector_at(const float* x, float* y, int n) { y[0] = ((const float4*)(x + n))->w; }
extern "C" __global__ void warp_sum(const float* x, float* y, int n)
{
    float sum = x[threadIdx.x];
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    y[threadIdx.x] = sum;
}
