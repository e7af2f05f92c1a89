// Pooling by itself, for networks in which no convolution stands right before it (see conv_forward.cu).
//
//   x (planes, H, W) -> y (planes, H/S, W/S), mask (planes, H/S, W/S) uint16      planes = N * C, float32
//   y[p,i,j] = mean or maximum of the S x S square at (i*S, j*S); rows and columns that fill no square are left out
//   dx[p,h,w] = dy of its square, times 1/S^2 for the mean, if the square's mask has bit (h%S)*S + w%S, else 0
//
// Macros: H W; S = 1 to 4; MAX_POOL 0 or 1; HALF_OUT of half.cuh, for y. Planes is an argument.
// Each element of the result is independent of the others and reads or writes memory once, so one thread makes one.
// Grid: elements of y, or of dx, / 256. Block: 256.

#define PH (H / S)
#define PW (W / S)

#include "half.cuh"

extern "C" __global__ void __launch_bounds__(256) pool(const float* x, float* y, unsigned short* mask, int planes)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= planes * PH * PW) return;
    int j = index % PW, i = index / PW % PH, plane = index / (PW * PH), first = 0;
    const float* square = x + (plane * H + i * S) * W + j * S;
    float result = square[0];
#pragma unroll
    for (int q = 1; q < S * S; ++q) {
        float value = square[q / S * W + q % S];
        if (!MAX_POOL) result += value;
        else if (value > result || value != value) result = value, first = q;
    }
    y[index] = OUT_OF(MAX_POOL ? result : result * (1.0f / (S * S)));
    mask[index] = (unsigned short)(MAX_POOL ? 1u << first : (1u << S * S) - 1);
}

extern "C" __global__ void __launch_bounds__(256) pool_grad(
    const float* dy, const unsigned short* mask, float* dx, int planes)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= planes * H * W) return;
    int w = index % W, h = index / W % H, plane = index / (W * H);
    float result = 0.0f;
    if (h < PH * S && w < PW * S) {
        int square = (plane * PH + h / S) * PW + w / S;
        if (mask[square] >> (h % S * S + w % S) & 1) result = MAX_POOL ? dy[square] : dy[square] * (1.0f / (S * S));
    }
    dx[index] = result;
}
