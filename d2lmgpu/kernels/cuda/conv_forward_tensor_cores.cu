// Convolution + bias + ReLU + pooling on tensor cores. Shapes, masks and arguments are those of conv_forward.cu.
//
// The pictures of correlation.cuh are the images: s is an input channel, r an output channel, a square is pooled.
//
// Macros: those of correlation.cuh. Grid: (images / IMAGES, output channels / (WO * NT * 8), regions of an image).
// Block: 32 * WP * WO.

#define SIDE S
#define SUMMED C
#define RESULTS O
#define KERNEL(r, s, tap) (((r) * C + (s)) * (KH * KW) + (tap))
#include "correlation.cuh"

static __device__ __forceinline__ void stage_images(
    const float* x, int n0, int N, int c0, int h0, int w0, uint4* images)
{
#pragma unroll 2
    for (int at = threadIdx.x; at < IMAGES * UNITS * YH * YW; at += THREADS) {
        int pixel = at % (YH * YW), unit = at / (YH * YW) % UNITS, image = at / (YH * YW * UNITS);
        int h = h0 + pixel / YW, w = w0 + pixel % YW, c = c0 + unit * UNIT, n = n0 + image;
        int count = n < N && h < H && w < W ? min(C, c0 + CB) - c : 0;
        images[(image * YH * YW + pixel) * PIXEL + unit] = unit_of(x + ((n * C + c) * H + h) * W + w, H * W, count);
    }
}

// One square z (bias already added) -> its y, and its mask. What is not a number stays so.
static __device__ __forceinline__ float pool(const float z[S * S], unsigned* bits)
{
    float y = 0.0f;
    *bits = 0;
#pragma unroll
    for (int q = 0; q < S * S; ++q) {
        bool passes = !RELU || z[q] > 0.0f;
        float value = RELU && z[q] <= 0.0f ? 0.0f : z[q];
        if (!MAX_POOL) {
            y += value * (1.0f / (S * S));
            *bits |= (unsigned)passes << q;
        } else if (q == 0 || value > y || value != value) {
            y = value;
            *bits = (unsigned)passes << q;
        }
    }
    return y;
}

extern "C" __global__ void BOUNDS conv_forward_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, unsigned short* __restrict__ mask, int N)
{
    __shared__ uint4 shared[SHARED_UNITS];
    uint4 *images = shared, *kernels = shared + PICTURE_UNITS;
    int n0 = blockIdx.x * IMAGES, o0 = blockIdx.y * BLOCK_RESULTS;
    int row0 = blockIdx.z / CEIL_DIV(PW, RW) * RH, col0 = blockIdx.z % CEIL_DIV(PW, RW) * RW;
    int pixel[MT];
    find_pixels(pixel);
    float sum[MT][NT][4] = {};

    for (int c0 = 0; c0 < C; c0 += CB)
        for (int outer = 0; outer < KH; outer += OUTER) {
            if (c0 + outer > 0) __syncthreads();  // all have read
            if (outer == 0) stage_images(x, n0, N, c0, row0 * S, col0 * S, images);
            stage_kernels(weight, o0, c0, outer, kernels);
            __syncthreads();
            correlate(images, pixel, kernels, outer, outer, min(outer + OUTER, KH), sum);
        }

    int lane = threadIdx.x % 32, first = o0 + WARP % WO * NT * 8 + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < SQUARES; ++r) {
        Place place;
        bool there = find_square(r, lane / 4, &place);
        int n = n0 + place.image, row = row0 + place.row, col = col0 + place.col;
        int index0 = ((n * O + first) * PH + row) * PW + col;
        if (!there || n >= N || row >= PH || col >= PW) continue;
#pragma unroll
        for (int e = 0; e < 2 * NT; ++e) {
            int o = first + e / 2 * 8 + e % 2, index = index0 + (o - first) * (PH * PW);
            if (o >= O) continue;
            float z[S * S];
#pragma unroll
            for (int q = 0; q < S * S; ++q) {
                int group = r * S * S + q;
                z[q] = sum[group / 2][e / 2][group % 2 * 2 + e % 2] + bias[o];
            }
            unsigned bits;
            y[index] = pool(z, &bits);
            mask[index] = (unsigned short)bits;
        }
    }
}
