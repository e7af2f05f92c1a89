// The gradient of convolution + bias + ReLU + pooling (conv_forward.cu) with respect to its input.
//
//   dy, mask (N, O, PH, PW), weight (O, C, KH, KW) -> dx (N, C, H, W), float32 (mask: uint16), NCHW
//   dz[n,o,i,j] = dy[n,o,i/S,j/S], times 1/S^2 for mean pooling, if bit (i%S)*S + j%S of the mask is set, else 0
//   dx[n,c,h,w] = sum_o,ki,kj dz[n,o,h-ki,w-kj] * weight[o,c,ki,kj]       over 0 <= h-ki < PH*S and 0 <= w-kj < PW*S
//
// dz has S^2 times as many elements as dy. It is never stored in global memory: who needs a part makes it.
//
// Macros: C O H W KH KW S MAX_POOL RELU as in conv_forward.cu; those of half.cuh; N is an argument. For v3 also CB and OB.
//
// The ladder (counting for LeNet's second convolution: C=20, O=50, K=5, 8 x 8 outputs z):
//   v1  one thread a dx gathers what contributed, all from global memory.
//   v2  one block a tile of a channel of dx; dz and kernels in shared memory. Right for all shapes. Much of the work is
//       lost at the border: 12 x 12 elements of dx x 25, although only 8 x 8 x 25 products are not with zero.
//   v3  scatters instead: a thread owns one row of dz and one input channel, and multiplies 8 elements with 25 weights
//       into the 5 rows of dx that they touch, in registers: 200 multiplications, none with zero, for 9 vector loads.
//       At the end threads add their rows to dx in shared memory, in a fixed order, so the result is always the same.
//       For 256 images a scheduler of an H100 gets at most three warps, of about 14,000 instructions each, 10,000 of
//       them multiplications: 24 us at one a clock. An estimate, as in conv_forward.cu.

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)  // rows and columns of dz
#define ZW (PW * S)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

#include "half.cuh"

// dz[n, o, i, j]; zero outside.
static __device__ __forceinline__ float unpool(
    const float* dy, const unsigned short* mask, int n, int o, int i, int j)
{
    if (i < 0 || i >= ZH || j < 0 || j >= ZW || o >= O) return 0.0f;
    int index = ((n * O + o) * PH + i / S) * PW + j / S;
    float g = MAX_POOL ? dy[index] : dy[index] * (1.0f / (S * S));
    return mask[index] >> (i % S * S + j % S) & 1 ? g : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) conv_input_grad_v1(
    const float* dy, const unsigned short* mask, const float* weight, float* dx, int N)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= N * C * H * W) return;
    int w = index % W, h = index / W % H, c = index / (W * H) % C, n = index / (W * H * C);
    float sum = 0.0f;
    for (int o = 0; o < O; ++o)
        for (int ki = 0; ki < KH; ++ki)
            for (int kj = 0; kj < KW; ++kj)
                sum += unpool(dy, mask, n, o, h - ki, w - kj) * WEIGHT_OF(weight[((o * C + c) * KH + ki) * KW + kj]);
    dx[index] = OUT_OF(sum);
}

// Block: T x T threads, one a dx. Grid: (tiles of T x T over H x W, C, N).
#define T 8
#define PATCH_H (T + KH - 1)  // the part of dz that a tile reads
#define PATCH_W (T + KW - 1)

extern "C" __global__ void __launch_bounds__(T * T) conv_input_grad_v2(
    const float* dy, const unsigned short* mask, const float* weight, float* dx, int N)
{
    __shared__ float patch[PATCH_H][PATCH_W], kernel[KH * KW];
    int thread = threadIdx.y * T + threadIdx.x, c = blockIdx.y, n = blockIdx.z;
    int h0 = blockIdx.x / CEIL_DIV(W, T) * T, w0 = blockIdx.x % CEIL_DIV(W, T) * T;
    float sum = 0.0f;
    for (int o = 0; o < O; ++o) {
        for (int i = thread; i < PATCH_H * PATCH_W; i += T * T)
            patch[i / PATCH_W][i % PATCH_W] =
                unpool(dy, mask, n, o, h0 + i / PATCH_W - (KH - 1), w0 + i % PATCH_W - (KW - 1));
        for (int k = thread; k < KH * KW; k += T * T) kernel[k] = WEIGHT_OF(weight[(o * C + c) * KH * KW + k]);
        __syncthreads();
        for (int ki = 0; ki < KH; ++ki)
            for (int kj = 0; kj < KW; ++kj)
                sum += patch[threadIdx.y + KH - 1 - ki][threadIdx.x + KW - 1 - kj] * kernel[ki * KW + kj];
        __syncthreads();
    }
    int h = h0 + threadIdx.y, w = w0 + threadIdx.x;
    if (h < H && w < W) dx[((n * C + c) * H + h) * W + w] = OUT_OF(sum);
}

#ifdef CB
// A block computes CB channels of dx of one image, and takes dz and weights in chunks of OB output channels.
// A thread owns SEGMENT columns of one row of dz and one input channel.
// Grid: (N, input channels / CB). Block: rows of dz x segments of a row x CB, rows first.
// Registers: KH * (SEGMENT + KW - 1) sums, so this is for kernels up to 5 x 5; launch.py takes v2 for larger ones.
#define SEGMENT (ZW <= 4 ? 4 : 8)
#define SEGMENTS CEIL_DIV(ZW, SEGMENT)
#define REACH (SEGMENT + KW - 1)          // columns of dx that a segment touches
#define PHASES CEIL_DIV(REACH, SEGMENT)   // segments this far apart touch none in common
#define THREADS (ZH * SEGMENTS * CB)
#define VECTORS (CEIL_DIV(KH * KW, 4) | 1)           // of a kernel; odd row lengths in vectors avoid bank conflicts
#define ROW ((SEGMENTS * SEGMENT / 4 | 1) * 4)       // of dz in shared memory
#define CHUNK (OB * (CB * VECTORS * 4 + ZH * ROW))   // floats of shared memory for one chunk
#define PLANES (CB * H * W)                          // and for dx, when all chunks are done

extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_input_grad(
    const float* dy, const unsigned short* mask, const float* weight, float* dx, int N)
{
    __shared__ __align__(16) float shared[CHUNK > PLANES ? CHUNK : PLANES];
    float* weight_s = shared;                          // [o][c][ki, kj]
    float* dz_s = shared + OB * CB * VECTORS * 4;      // [o][i][j]
    int n = blockIdx.x, c0 = blockIdx.y * CB;
    int row = threadIdx.x % ZH, segment = threadIdx.x / ZH % SEGMENTS, c = threadIdx.x / (ZH * SEGMENTS);
    float sum[KH][REACH] = {};

    for (int o0 = 0; o0 < O; o0 += OB) {
        for (int i = threadIdx.x; i < OB * CB * KH * KW; i += THREADS) {
            int k = i % (KH * KW), pair = i / (KH * KW), o = o0 + pair / CB, channel = c0 + pair % CB;
            float value = o < O && channel < C ? weight[(o * C + channel) * KH * KW + k] : 0.0f;
            weight_s[pair * VECTORS * 4 + k] = WEIGHT_OF(value);
        }
        for (int i = threadIdx.x; i < OB * ZH * SEGMENTS * SEGMENT; i += THREADS) {
            int j = i % (SEGMENTS * SEGMENT), zi = i / (SEGMENTS * SEGMENT) % ZH, o = i / (SEGMENTS * SEGMENT * ZH);
            dz_s[(o * ZH + zi) * ROW + j] = unpool(dy, mask, n, o0 + o, zi, j);
        }
        __syncthreads();

#pragma unroll 1
        for (int o = 0; o < OB; ++o) {
            const float4* w4 = (const float4*)weight_s + (o * CB + c) * VECTORS;
            const float4* g4 = (const float4*)(dz_s + (o * ZH + row) * ROW + segment * SEGMENT);
            float g[SEGMENT];
#pragma unroll
            for (int v = 0; v < SEGMENT / 4; ++v) {
                float4 four = g4[v];
                g[4 * v] = four.x, g[4 * v + 1] = four.y, g[4 * v + 2] = four.z, g[4 * v + 3] = four.w;
            }
#pragma unroll
            for (int v = 0; v < CEIL_DIV(KH * KW, 4); ++v) {
                float4 four = w4[v];
                float w[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int k = 4 * v; k < 4 * v + 4 && k < KH * KW; ++k)
#pragma unroll
                    for (int j = 0; j < SEGMENT; ++j) sum[k / KW][j + k % KW] += g[j] * w[k % 4];
            }
        }
        __syncthreads();
    }

    // Row ki of a thread's sums belongs to row (row + ki) of dx: for one ki at a time, no two threads meet there.
    float* dx_s = shared + c * H * W;
    for (int i = threadIdx.x; i < PLANES; i += THREADS) shared[i] = 0.0f;
    __syncthreads();
#pragma unroll
    for (int ki = 0; ki < KH; ++ki)
        for (int phase = 0; phase < PHASES; ++phase) {
            if (segment % PHASES == phase)
#pragma unroll
                for (int j = 0; j < REACH; ++j)
                    if (segment * SEGMENT + j < W) dx_s[(row + ki) * W + segment * SEGMENT + j] += sum[ki][j];
            __syncthreads();
        }
    for (int i = threadIdx.x; i < min(CB, C - c0) * H * W; i += THREADS) dx[(n * C + c0) * H * W + i] = OUT_OF(shared[i]);
}
#endif
