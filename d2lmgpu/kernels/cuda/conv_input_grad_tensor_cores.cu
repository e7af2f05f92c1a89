// The gradient of convolution + bias + ReLU + pooling with respect to its input, on tensor cores.
//
// Shapes, masks and arguments are those of conv_input_grad.cu. The pictures of correlation.cuh are dz, with KH - 1
// rows and KW - 1 columns of zeros around: s is an output channel, r an input channel, and kernels are turned by 180
// degrees.
//
// Rows and columns of x that no output reads get zeros. Rows of kernels that meet only zeros are left out by each warp.
//
// Macros: those of correlation.cuh. Grid: (images / IMAGES, input channels / (WO * NT * 8), regions of HEIGHT x WIDTH).
// Block: 32 * WP * WO.

#define SIDE 1
#define SUMMED O
#define RESULTS C
#define KERNEL(r, s, tap) (((s) * C + (r)) * (KH * KW) + KH * KW - 1 - (tap))
#include "correlation.cuh"
#include "unpool_units.cuh"

#define HEIGHT (ZH + KH - 1)  // the part of x that was read
#define WIDTH (ZW + KW - 1)
#define DOWN CEIL_DIV(YH + S - 1, S)  // squares, of which a region may have parts
#define ACROSS CEIL_DIV(YW + S - 1, S)

// dz of channels o0 and following; pixel (0, 0) of an image is dz[i0][j0], and what is outside of dz stays as it is.
static __device__ __forceinline__ void stage_gradients(
    const float* dy, const unsigned short* mask, int n0, int N, int o0, int i0, int j0, uint4* images)
{
    int p0 = i0 < 0 ? -((S - 1 - i0) / S) : i0 / S, q0 = j0 < 0 ? -((S - 1 - j0) / S) : j0 / S;
    for (int at = threadIdx.x; at < IMAGES * UNITS * DOWN * ACROSS; at += THREADS) {
        int p = p0 + at / ACROSS % DOWN, q = q0 + at % ACROSS;
        int unit = at / (DOWN * ACROSS) % UNITS, image = at / (DOWN * ACROSS * UNITS), n = n0 + image;
        if (n >= N || p < 0 || p >= PH || q < 0 || q >= PW) continue;
        int o = o0 + unit * UNIT;
        Gradients gradients = load_gradients(dy, mask, ((n * O + o) * PH + p) * PW + q, min(O, o0 + CB) - o);
#pragma unroll
        for (int z = 0; z < S * S; ++z) {
            int i = p * S + z / S - i0, j = q * S + z % S - j0;
            if (i >= 0 && i < YH && j >= 0 && j < YW)
                images[((image * YH + i) * YW + j) * PIXEL + unit] = unpool(gradients, z);
        }
    }
}

// The rows of this warp's positions, in the region: a range. All, if there are several images.
static __device__ __forceinline__ void find_rows(int* first, int* last)
{
    int square = WARP / WO * SQUARES * 8;
    *first = IMAGES == 1 ? square / RW : 0;
    *last = IMAGES == 1 ? min((square + SQUARES * 8 - 1) / RW, RH - 1) : RH - 1;
}

extern "C" __global__ void BOUNDS conv_input_grad_tensor_cores(
    const float* __restrict__ dy, const unsigned short* __restrict__ mask, const float* __restrict__ weight,
    float* __restrict__ dx, int N)
{
    __shared__ uint4 shared[SHARED_UNITS];
    uint4 *images = shared, *kernels = shared + PICTURE_UNITS;
    int n0 = blockIdx.x * IMAGES, c0 = blockIdx.y * BLOCK_RESULTS;
    int row0 = blockIdx.z / CEIL_DIV(WIDTH, RW) * RH, col0 = blockIdx.z % CEIL_DIV(WIDTH, RW) * RW;
    int pixel[MT];
    find_pixels(pixel);
    int first_row, last_row;  // of this warp; rows i0 <= i of the pictures that are not zero
    find_rows(&first_row, &last_row);
    int i0 = KH - 1 - row0, from = i0 - last_row, to = i0 + ZH - first_row;
    float sum[MT][NT][4] = {};
    const uint4 zero = {0, 0, 0, 0};
    for (int at = threadIdx.x; at < PICTURE_UNITS; at += THREADS) images[at] = zero;

    for (int o0 = 0; o0 < O; o0 += CB)
        for (int outer = 0; outer < KH; outer += OUTER) {
            __syncthreads();  // all have read, and there is zero
            if (outer == 0) stage_gradients(dy, mask, n0, N, o0, -i0, col0 - (KW - 1), images);
            stage_kernels(weight, c0, o0, outer, kernels);
            __syncthreads();
            correlate(images, pixel, kernels, outer, max(outer, from), min(min(outer + OUTER, KH), to), sum);
        }

    const int right = W - WIDTH, below = (H - HEIGHT) * W, border = below + HEIGHT * right, not_0 = max(border, 1);
    for (int at = threadIdx.x; blockIdx.z == 0 && at < IMAGES * BLOCK_RESULTS * border; at += THREADS) {
        int n = n0 + at / (BLOCK_RESULTS * not_0), c = c0 + at / not_0 % BLOCK_RESULTS, b = at % not_0;
        int h = b < below ? HEIGHT + b / W : (b - below) / max(right, 1);
        int w = b < below ? b % W : WIDTH + (b - below) % max(right, 1);
        if (n < N && c < C) dx[((n * C + c) * H + h) * W + w] = 0.0f;
    }
    int lane = threadIdx.x % 32, first = c0 + WARP % WO * NT * 8 + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < SQUARES; ++r) {
        Place place;
        bool there = find_square(r, lane / 4, &place);
        int n = n0 + place.image, h = row0 + place.row, w = col0 + place.col;
        if (!there || n >= N || h >= HEIGHT || w >= WIDTH) continue;
#pragma unroll
        for (int e = 0; e < 2 * NT; ++e) {
            int c = first + e / 2 * 8 + e % 2;
            if (c < C) dx[((n * C + c) * H + h) * W + w] = sum[r / 2][e / 2][r % 2 * 2 + e % 2];
        }
    }
}
