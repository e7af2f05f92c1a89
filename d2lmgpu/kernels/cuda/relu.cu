// The rectifier by itself, for networks in which it is not fused to the layer before it.
//
//   y = max(x, 0), and what is not a number stays so      dx = dy where x > 0, else 0      all (n,) float32
//
// Macro: HALF_OUT of half.cuh, for y. Grid: any number of blocks. Block: 256.

#include "half.cuh"

extern "C" __global__ void __launch_bounds__(256) relu(const float* x, float* y, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] <= 0.0f ? 0.0f : OUT_OF(x[i]);
}

extern "C" __global__ void __launch_bounds__(256) relu_grad(const float* dy, const float* x, float* dx, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        dx[i] = x[i] > 0.0f ? dy[i] : 0.0f;
}
