// Convolution, bias, ReLU and pooling in one kernel, by Winograd's method. winograd.cuh has the method and the product.
//
//   x (N, C, H, W), u (from winograd_weights.cu), bias (O) -> y (N, O, PH, PW), mask: as conv_forward.cu, which is the
//   simple version of this kernel and the reference for it.
//
// A block has 16 tiles of MH x MW outputs z, of one image or of several small ones, and PART output channels. For CB
// channels of x at a time:
//   1  the part of x that the tiles read is copied to shared memory (asynchronously, while the chunk before it is
//      multiplied, from compute capability 8.0)
//   2  a thread takes a tile of one channel to its registers, makes V = B^T x B of it, and puts it into shared memory
//   3  all threads multiply
// Then the sums change hands, and a thread makes z = A^T M A of one tile and output channel, with bias, ReLU, pooling.
//
// A tile of zeros stays exactly zero, and its z exactly the bias; where a tile is zero only in part, an output that
// sees only zeros is its bias and a rounding error.
//
// Counted for LeNet's second convolution, 256 images on an H100, 128 blocks of 256 threads, one a multiprocessor: see
// the figures in d2lmgpu/kernels/cuda/winograd.py.
//
// Macros: those of winograd.cuh, also Q RO CB ROUND; TR TC: the tiles of an image that a block has, rows and columns.
// Grid: (groups of images, parts of O, regions of an image). Block: THREADS.

#include "winograd.cuh"
#include "squares.cuh"

#define IMAGES (TILES / (TR * TC))
#define REGIONS_X CEIL_DIV(PW * S, TC * MW)
#define XH (TR * MH + KH - 1)  // rows and columns of x that a region reads
#define XW (TC * MW + KW - 1)
#define WHOLE (TR * MH >= PH * S && TC * MW >= PW * S && XH <= H && XW <= W)  // whole images are one long copy
#define X_ROW (WHOLE ? W : XW)
#define X_PLANE (WHOLE ? H * W : XH * XW)
#define X_IMAGE (CB * X_PLANE + (33 - CB * X_PLANE % 32) % 32)  // images begin at neighbouring banks
#define SUMMING (CB * PLANE + IMAGES * X_IMAGE)

// Four bytes from global to shared memory, or zero.
static __device__ __forceinline__ void copy(float* to, const float* from, bool there)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned shared = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared), "l"(from), "r"(there ? 4 : 0) : "memory");
#else
    *to = there ? *from : 0.0f;
#endif
}

// My copies are done.
static __device__ __forceinline__ void wait_for_copies()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) winograd_forward(
    const float* __restrict__ x, const float* __restrict__ u, const float* __restrict__ bias, float* __restrict__ y,
    unsigned short* __restrict__ mask, int N)
{
    __shared__ __align__(16) float shared[SUMMING > EXCHANGE ? SUMMING : EXCHANGE];
    float *v_s = shared, *x_s = shared + CB * PLANE;
    int n0 = blockIdx.x * IMAGES, part = blockIdx.y;
    int tile_row0 = blockIdx.z / REGIONS_X * TR, tile_col0 = blockIdx.z % REGIONS_X * TC;

    auto copy_x = [&](int c0) {
        for (int image = 0; image < IMAGES; ++image)
            for (int i = threadIdx.x; i < CB * X_PLANE; i += THREADS) {
                int c = c0 + i / X_PLANE, h = tile_row0 * MH + i / X_ROW % (X_PLANE / X_ROW);
                int w = tile_col0 * MW + i % X_ROW, n = n0 + image;
                int at = WHOLE ? (n * C + c0) * H * W + i : ((n * C + c) * H + h) * W + w;
                bool there = n < N && (WHOLE ? i < (C - c0) * X_PLANE : c < C && h < H && w < W);
                copy(x_s + image * X_IMAGE + i, x + (there ? at : 0), there);
            }
    };

    u = my_u(u, part, C);
    Ahead ahead;
    float sum[RO][8] = {};
    copy_x(0);
    load(u, 0, C, ahead.now);
    load(u, 1, C, ahead.next);
    for (int c0 = 0; c0 < C; c0 += CB) {
        wait_for_copies();
        __syncthreads();  // x_s is there, and v_s is no longer needed
#pragma unroll 1
        for (int item = threadIdx.x; item < CB * TILES; item += THREADS) {
            int tile = item % TILES, c = item / TILES, image = tile / (TR * TC), inside = tile % (TR * TC);
            if (image >= IMAGES) continue;
            const float* from = x_s + image * X_IMAGE + c * X_PLANE + inside / TC * MH * X_ROW + inside % TC * MW;
            float values[TH][TW];
#pragma unroll
            for (int i = 0; i < TH; ++i)
#pragma unroll
                for (int j = 0; j < TW; ++j) values[i][j] = from[i * X_ROW + j];
#pragma unroll
            for (int j = 0; j < TW; ++j) by_rows<BtH, TW, TW>(&values[0][j], &values[0][j]);
#pragma unroll
            for (int i = 0; i < TH; ++i) {
                by_rows<BtW, 1, 1>(values[i], values[i]);
#pragma unroll
                for (int j = 0; j < TW; ++j) v_s[c * PLANE + place(i * TW + j, tile)] = values[i][j];
            }
        }
        __syncthreads();  // v_s is there, and x_s is no longer needed
        if (c0 + CB < C) copy_x(c0 + CB);
        multiply(u, ahead, v_s, c0, min(CB, C - c0), C, sum);
    }

#pragma unroll 1
    for (int round = 0; round < CEIL_DIV(RO, ROUND); ++round) {
        __syncthreads();
        exchange(sum, round, shared);
        __syncthreads();
#pragma unroll 1
        for (int item = threadIdx.x; item < ROWS; item += THREADS) {
            int slot = item / 32 * 2 + item / 8 % 2, tile = item / 16 % 2 * 8 + item % 8;
            int image = tile / (TR * TC), inside = tile % (TR * TC), n = n0 + image;
            int r = round * ROUND + slot / Q, o = part * PART + round * ROUND * Q + slot;
            if (image >= IMAGES || n >= N || slot >= ROUND * Q || r >= RO || o >= O) continue;
            const float* from = shared + row_of(slot, tile);
            float half[TH][MW], z[MH][MW], points[TW];
#pragma unroll
            for (int i = 0; i < TH; ++i) {
#pragma unroll
                for (int j = 0; j < TW; ++j) points[j] = from[i * TW + j];
                by_columns<AW, 1, 1>(points, half[i]);
            }
#pragma unroll
            for (int j = 0; j < MW; ++j) by_columns<AH, MW, MW>(&half[0][j], &z[0][j]);
            int row0 = (tile_row0 + inside / TC) * (MH / S), col0 = (tile_col0 + inside % TC) * (MW / S);
            float b = bias[o];
#pragma unroll
            for (int p = 0; p < MH / S; ++p)
#pragma unroll
                for (int q = 0; q < MW / S; ++q) {
                    if (row0 + p >= PH || col0 + q >= PW) continue;
                    float square[S * S];
#pragma unroll
                    for (int k = 0; k < S * S; ++k) square[k] = z[p * S + k / S][q * S + k % S] + b;
                    int index = ((n * O + o) * PH + row0 + p) * PW + col0 + q;
                    y[index] = pool(square, &mask[index]);
                }
        }
    }
}
