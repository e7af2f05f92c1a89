// Convolution, bias, ReLU and pooling in one kernel, because between them nothing need go through global memory.
//
//   x (N, C, H, W), weight (O, C, KH, KW), bias (O) -> y (N, O, PH, PW), mask (N, O, PH, PW), float32, NCHW
//   z[n,o,i,j] = bias[o] + sum_c,ki,kj x[n,c,i+ki,j+kj] * weight[o,c,ki,kj]     no padding, stride 1, no kernel flipped
//   y[n,o,p,q] = mean or maximum of relu(z) over the S x S square at (p*S, q*S)
//
// PH = (H-KH+1)/S and PW = (W-KW+1)/S are rounded down: outputs z that fill no whole square are not computed.
// For the backward pass, bit i*S+j of mask[n,o,p,q] says whether a gradient passes to output (i, j) of the square:
// with mean, where z > 0 (everywhere without ReLU); with maximum, to the first of the largest, if ReLU lets it.
//
// Macros: C O H W KH KW; S = 1 (no pooling) to 4; MAX_POOL and RELU 0 or 1; those of half.cuh; N is an argument.
// For v3 also OB, CB, RH, RW, explained there. d2lmgpu/kernels/cuda/launch.py computes them, and grid and block.
//
// The ladder (counting the instructions of LeNet's second convolution: C=20, O=50, K=5, S=2, 8 x 8 outputs z):
//   v1  one thread a y. Every multiplication loads its two factors from global memory.
//   v2  one block a tile of one channel of y; what its threads read again and again is in shared memory.
//       Still two shared loads a multiplication, and the load unit is as busy as four multipliers.
//   v3  one thread computes 4 channels x 2 x 4 outputs z in registers. For one channel of x it loads 12 vectors of x
//       and 25 vectors of weights, and multiplies 800 times: 21 multiplications a load.
//       For 256 images an H100's multiprocessor gets two blocks of four warps. A warp executes about 19,500
//       instructions, 16,000 of them multiplications; at one a clock (1.75 GHz) and scheduler, that is 22 us. An
//       estimate from the machine code; what waiting adds has to be measured.
//   Then there is Winograd's method, with a sixth of the multiplications: winograd_forward.cu.
//
// The idea of register tiles is that of every fast matrix product (Volkov and Demmel 2008; S. Boehm's notes on SGEMM).

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

#include "squares.cuh"

extern "C" __global__ void __launch_bounds__(256) conv_forward_v1(
    const float* x, const float* weight, const float* bias, float* y, unsigned short* mask, int N)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= N * O * PH * PW) return;
    int col = index % PW, row = index / PW % PH, o = index / (PW * PH) % O, n = index / (PW * PH * O);
    float z[S * S];
    for (int q = 0; q < S * S; ++q) {
        int i = row * S + q / S, j = col * S + q % S;
        float sum = bias[o];
        for (int c = 0; c < C; ++c)
            for (int ki = 0; ki < KH; ++ki)
                for (int kj = 0; kj < KW; ++kj)
                    sum += x[((n * C + c) * H + i + ki) * W + j + kj] *
                           WEIGHT_OF(weight[((o * C + c) * KH + ki) * KW + kj]);
        z[q] = sum;
    }
    y[index] = pool(z, &mask[index]);
}

// Block: T x T threads, one a y. Grid: (tiles of T x T over PH x PW, O, N).
#define T 8
#define PATCH_H (T * S + KH - 1)  // the part of a channel of x that a tile's z read
#define PATCH_W (T * S + KW - 1)

extern "C" __global__ void __launch_bounds__(T * T) conv_forward_v2(
    const float* x, const float* weight, const float* bias, float* y, unsigned short* mask, int N)
{
    __shared__ float patch[PATCH_H][PATCH_W], kernel[KH * KW];
    int thread = threadIdx.y * T + threadIdx.x, o = blockIdx.y, n = blockIdx.z;
    int row0 = blockIdx.x / CEIL_DIV(PW, T) * T, col0 = blockIdx.x % CEIL_DIV(PW, T) * T;
    float z[S * S];
    for (int q = 0; q < S * S; ++q) z[q] = bias[o];

    for (int c = 0; c < C; ++c) {
        for (int i = thread; i < PATCH_H * PATCH_W; i += T * T) {
            int h = row0 * S + i / PATCH_W, w = col0 * S + i % PATCH_W;
            patch[i / PATCH_W][i % PATCH_W] = h < H && w < W ? x[((n * C + c) * H + h) * W + w] : 0.0f;
        }
        for (int k = thread; k < KH * KW; k += T * T) kernel[k] = WEIGHT_OF(weight[(o * C + c) * KH * KW + k]);
        __syncthreads();  // all is there
#pragma unroll
        for (int q = 0; q < S * S; ++q)
            for (int ki = 0; ki < KH; ++ki)
                for (int kj = 0; kj < KW; ++kj)
                    z[q] += patch[threadIdx.y * S + q / S + ki][threadIdx.x * S + q % S + kj] * kernel[ki * KW + kj];
        __syncthreads();  // all have read, the next channel may come
    }
    int row = row0 + threadIdx.y, col = col0 + threadIdx.x;
    if (row < PH && col < PW) {
        int index = ((n * O + o) * PH + row) * PW + col;
        y[index] = pool(z, &mask[index]);
    }
}

#ifdef OB
// A block computes OB output channels (a multiple of 4) of a region of RH x RW outputs y of one image, and takes the
// input in chunks of CB channels. A thread computes a tile: 4 channels of TH x TW outputs z, that is PY x PX squares.
// Grid: (N, output channels / OB, regions of an image). Block: the tiles of a region x OB/4, tiles first.
#define PY (S == 1 ? 2 : 1)
#define PX (S == 1 ? 4 : S == 2 ? 2 : 1)
#define TH (PY * S)
#define TW (PX * S)
#define TILES_X CEIL_DIV(RW, PX)
#define TILES (CEIL_DIV(RH, PY) * TILES_X)
#define THREADS (TILES * (OB / 4))
#define SEGMENT (CEIL_DIV(TW + KW - 1, 4) * 4)       // the part of a row of x that a tile reads, in whole vectors
#define XH (CEIL_DIV(RH, PY) * TH + KH - 1)          // the rows and columns of x that a region reads
#define XW (CEIL_DIV((TILES_X - 1) * TW + SEGMENT, 4) * 4)
#define QUADS (OB / 4 | 1)                           // an odd row length in vectors avoids bank conflicts

extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_forward(
    const float* x, const float* weight, const float* bias, float* y, unsigned short* mask, int N)
{
    __shared__ float4 weight_s[CB * KH * KW * QUADS];  // [c, ki, kj][o]: a vector is the weights of 4 output channels
    __shared__ __align__(16) float x_s[CB * XH * XW];
    int n = blockIdx.x, o0 = blockIdx.y * OB;
    int row0 = blockIdx.z / CEIL_DIV(PW, RW) * RH, col0 = blockIdx.z % CEIL_DIV(PW, RW) * RW;
    int tile = threadIdx.x % TILES, quad = threadIdx.x / TILES;
    int tile_row = tile / TILES_X, tile_col = tile % TILES_X;
    float z[4][TH][TW] = {};

    for (int c0 = 0; c0 < C; c0 += CB) {
        // Neighbouring threads take neighbouring weights of a kernel, so reads of global memory are coalesced.
        for (int i = threadIdx.x; i < CB * KH * KW * (OB / 4); i += THREADS) {
            int k = i % (CB * KH * KW), o = o0 + i / (CB * KH * KW) * 4;
            const float* w = weight + (o * C + c0) * KH * KW + k;
            bool there = k < (C - c0) * KH * KW;
            float4 four = make_float4(
                there && o + 0 < O ? w[0 * C * KH * KW] : 0.0f, there && o + 1 < O ? w[1 * C * KH * KW] : 0.0f,
                there && o + 2 < O ? w[2 * C * KH * KW] : 0.0f, there && o + 3 < O ? w[3 * C * KH * KW] : 0.0f);
            weight_s[k * QUADS + i / (CB * KH * KW)] =
                make_float4(WEIGHT_OF(four.x), WEIGHT_OF(four.y), WEIGHT_OF(four.z), WEIGHT_OF(four.w));
        }
        for (int i = threadIdx.x; i < CB * XH * XW; i += THREADS) {
            int c = c0 + i / (XH * XW), h = row0 * S + i / XW % XH, w = col0 * S + i % XW;
            x_s[i] = c < C && h < H && w < W ? x[((n * C + c) * H + h) * W + w] : 0.0f;
        }
        __syncthreads();

#pragma unroll 1
        for (int c = 0; c < CB; ++c) {
            const float* corner = x_s + (c * XH + tile_row * TH) * XW + tile_col * TW;
            float rows[TH][SEGMENT];  // the TH rows of x that a row of the kernels meets; the oldest makes way
#pragma unroll
            for (int r = 0; r < TH + KH - 1; ++r) {
                if (TW % 4 == 0) {
#pragma unroll
                    for (int v = 0; v < SEGMENT; v += 4) {
                        float4 four = *(const float4*)(corner + r * XW + v);
                        rows[r % TH][v] = four.x, rows[r % TH][v + 1] = four.y;
                        rows[r % TH][v + 2] = four.z, rows[r % TH][v + 3] = four.w;
                    }
                } else {
#pragma unroll
                    for (int v = 0; v < TW + KW - 1; ++v) rows[r % TH][v] = corner[r * XW + v];
                }
                int ki = r - (TH - 1);
                if (ki < 0) continue;
#pragma unroll
                for (int kj = 0; kj < KW; ++kj) {
                    float4 w = weight_s[((c * KH + ki) * KW + kj) * QUADS + quad];
#pragma unroll
                    for (int i = 0; i < TH; ++i)
#pragma unroll
                        for (int j = 0; j < TW; ++j) {
                            float value = rows[(ki + i) % TH][j + kj];
                            z[0][i][j] += value * w.x, z[1][i][j] += value * w.y;
                            z[2][i][j] += value * w.z, z[3][i][j] += value * w.w;
                        }
                }
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int o4 = 0; o4 < 4; ++o4)
#pragma unroll
        for (int p = 0; p < PY * PX; ++p) {
            int o = o0 + quad * 4 + o4;
            int row = row0 + tile_row * PY + p / PX, col = col0 + tile_col * PX + p % PX;
            if (o >= O || row >= min(row0 + RH, PH) || col >= min(col0 + RW, PW)) continue;
            float square[S * S];
#pragma unroll
            for (int q = 0; q < S * S; ++q) square[q] = z[o4][p / PX * S + q / S][p % PX * S + q % S] + bias[o];
            int index = ((n * O + o) * PH + row) * PW + col;
            y[index] = pool(square, &mask[index]);
        }
}
#endif
