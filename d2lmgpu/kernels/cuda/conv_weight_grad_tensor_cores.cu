// The gradients of convolution + bias + ReLU + pooling with respect to weights, on tensor cores: partial sums of groups
// of images. Shapes and masks are those of conv_weight_grad.cu, whose conv_weight_grad_reduce comes after it.
//
//   partial[tap][o][c] = sum over positions p of x[p + tap][c] * dz[p][o]       tap = (ki, kj); p = (image, i, j)
//
// A matrix product whose sum runs over positions. x and dz of a tile (some rows and columns of an image) lie in shared
// memory once, with channels last. Both factors are read across the sum, so transposed (mma.cuh). The rows of A
// are eights of channels of one tap: A of another tap is the same memory, from another pixel on.
//
// Macros: C O H W KH KW S MAX_POOL RELU; TYPE as in mma.cuh. A block has CB channels c, NT * 8 channels o, and
// MT * WARPS sixteens of (tap, c), MT a warp. It takes TILES tiles of RH x RW squares at a time, of which SLOTS times
// WARPS warps take a part of the positions each: SLOTS rows of the workspace (K * O * C numbers each) a block.
// Group g has the images g, g + gridDim.x, ... Grid: (groups, parts of (tap, c) * parts of C, O / (NT * 8)).
// Block: 32 * WARPS * SLOTS.

#include "mma.cuh"

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define K (KH * KW)

#include "unpool_units.cuh"

#define THREADS (32 * WARPS * SLOTS)
#define UNITS_OF_8 (8 / UNIT)
#define X_EIGHTS (CB / 8)
#define X_PIXEL ((X_EIGHTS | 1) * UNITS_OF_8)  // units; an odd number of eights avoids bank conflicts
#define Z_PIXEL ((NT | 1) * UNITS_OF_8)
#define YH (RH * S + KH - 1)                   // the part of x that a tile meets
#define YW (RW * S + KW - 1)
#define TILES_ACROSS CEIL_DIV(PW, RW)
#define TILES_OF_IMAGE (CEIL_DIV(PH, RH) * TILES_ACROSS)
#define TILE_POSITIONS (RH * RW * S * S)
#define STEP (2 * UNIT)                        // positions in one instruction
#define STEPS CEIL_DIV(TILES * TILE_POSITIONS, STEP)
#define EIGHTS (K * X_EIGHTS)                  // of rows of A: (tap, eight of channels)

struct Tile { int n, row, col; };  // its image and its first square

static __device__ __forceinline__ Tile find_tile(int tile)
{
    int region = tile % TILES_OF_IMAGE;
    Tile found = {(int)blockIdx.x + tile / TILES_OF_IMAGE * (int)gridDim.x, region / TILES_ACROSS * RH,
                  region % TILES_ACROSS * RW};
    return found;
}

static __device__ __forceinline__ void stage(
    const float* x, const float* dy, const unsigned short* mask, int tile0, int c0, int o0, int N,
    uint4* x_s, uint4* z_s)
{
#pragma unroll 2
    for (int at = threadIdx.x; at < TILES * (CB / UNIT) * YH * YW; at += THREADS) {
        int pixel = at % (YH * YW), unit = at / (YH * YW) % (CB / UNIT), t = at / (YH * YW * (CB / UNIT));
        Tile tile = find_tile(tile0 + t);
        int h = tile.row * S + pixel / YW, w = tile.col * S + pixel % YW, c = c0 + unit * UNIT;
        int count = tile.n < N && h < H && w < W ? C - c : 0;
        x_s[(t * YH * YW + pixel) * X_PIXEL + unit] = unit_of(x + ((tile.n * C + c) * H + h) * W + w, H * W, count);
    }
    for (int at = threadIdx.x; at < TILES * (NT * UNITS_OF_8) * RH * RW; at += THREADS) {
        int square = at % (RH * RW), unit = at / (RH * RW) % (NT * UNITS_OF_8), t = at / (RH * RW * NT * UNITS_OF_8);
        Tile tile = find_tile(tile0 + t);
        int p = tile.row + square / RW, q = tile.col + square % RW, o = o0 + unit * UNIT;
        int count = tile.n < N && p < PH && q < PW ? O - o : 0;
        Gradients gradients = load_gradients(dy, mask, ((tile.n * O + o) * PH + p) * PW + q, count);
        int first = t * TILE_POSITIONS + square / RW * (RW * S * S) + square % RW * S;
#pragma unroll
        for (int z = 0; z < S * S; ++z)
            z_s[(first + z / S * (RW * S) + z % S) * Z_PIXEL + unit] = unpool(gradients, z);
    }
}

// Registers of A for one sixteen, eights e0 and e1 (places in x_s), and of B for two eights of o, n and n + 1.
// With 16 bits this lane gives an address for the instruction that transposes; with tf32 it loads its own numbers.
#if TYPE != 0
struct Pixels { const uint4* at; };
static __device__ __forceinline__ Pixels find_pixels(const uint4* x_s, const int* place, int step)
{
    int lane = threadIdx.x % 32;
    Pixels pixels = {x_s + place[step * STEP + lane % 8 + lane / 16 * 8]};
    return pixels;
}
static __device__ __forceinline__ void load_a(unsigned a[4], Pixels pixels, int e0, int e1)
{
    load_units_transposed<4>(a, pixels.at + (threadIdx.x / 8 % 2 ? e1 : e0));
}
static __device__ __forceinline__ void load_b(unsigned b[4], const uint4* z_s, int step, int n)
{
    int lane = threadIdx.x % 32;
    load_units_transposed<4>(b, z_s + (step * STEP + lane % 16) * Z_PIXEL + n + lane / 16);
}
#else
struct Pixels { const unsigned *t0, *t4; };
static __device__ __forceinline__ Pixels find_pixels(const uint4* x_s, const int* place, int step)
{
    int lane = threadIdx.x % 32;
    const unsigned* words = (const unsigned*)x_s + lane / 4;
    Pixels pixels = {words + place[step * STEP + lane % 4] * 4, words + place[step * STEP + lane % 4 + 4] * 4};
    return pixels;
}
static __device__ __forceinline__ void load_a(unsigned a[4], Pixels pixels, int e0, int e1)
{
    a[0] = pixels.t0[e0 * 4], a[1] = pixels.t0[e1 * 4], a[2] = pixels.t4[e0 * 4], a[3] = pixels.t4[e1 * 4];
}
static __device__ __forceinline__ void load_b(unsigned b[4], const uint4* z_s, int step, int n)
{
    int lane = threadIdx.x % 32;
    const unsigned* word = (const unsigned*)(z_s + (step * STEP + lane % 4) * Z_PIXEL + 2 * n) + lane / 4;
    b[0] = word[0], b[1] = word[4 * Z_PIXEL * 4];
    if (n + 1 < NT) b[2] = word[8], b[3] = word[4 * Z_PIXEL * 4 + 8];
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_weight_grad_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ dy, const unsigned short* __restrict__ mask,
    float* __restrict__ workspace, int N)
{
    __shared__ uint4 x_s[TILES * YH * YW * X_PIXEL], z_s[STEPS * STEP * Z_PIXEL + 1];
    __shared__ int place[STEPS * STEP];  // of a position's pixel in x_s
    int warp = threadIdx.x / 32 % WARPS, slot = threadIdx.x / 32 / WARPS, lane = threadIdx.x % 32;
    int parts = CEIL_DIV(EIGHTS, 2 * MT * WARPS), part = blockIdx.y % parts;
    int c0 = blockIdx.y / parts * CB, o0 = blockIdx.z * NT * 8;
    for (int at = threadIdx.x; at < STEPS * STEP; at += THREADS) {
        int position = at % TILE_POSITIONS, tile = at / TILE_POSITIONS;
        bool there = tile < TILES;
        place[at] = there ? (tile * YH * YW + position / (RW * S) * YW + position % (RW * S)) * X_PIXEL : 0;
        if (!there)
            for (int unit = 0; unit < Z_PIXEL; ++unit) z_s[at * Z_PIXEL + unit] = uint4();
    }
    int eight0 = (part * WARPS + warp) * MT * 2, eight[MT][2];  // places from a position's pixel on
#pragma unroll
    for (int m = 0; m < 2 * MT; ++m) {
        int e = min(eight0 + m, EIGHTS - 1), tap = e / X_EIGHTS;
        eight[m / 2][m % 2] = (tap / KW * YW + tap % KW) * X_PIXEL + e % X_EIGHTS * UNITS_OF_8;
    }
    float sum[MT][NT][4] = {};

    int tiles = CEIL_DIV(N - (int)blockIdx.x, (int)gridDim.x) * TILES_OF_IMAGE;  // of this group
    for (int tile0 = 0; tile0 < tiles; tile0 += TILES) {
        __syncthreads();
        stage(x, dy, mask, tile0, c0, o0, N, x_s, z_s);
        __syncthreads();
#pragma unroll 1
        for (int step = slot; step < STEPS; step += SLOTS) {
            unsigned a[MT][4], b[(NT + 1) / 2][4];
            Pixels pixels = find_pixels(x_s, place, step);
#pragma unroll
            for (int m = 0; m < MT; ++m) load_a(a[m], pixels, eight[m][0], eight[m][1]);
#pragma unroll
            for (int n = 0; n < NT; n += 2) load_b(b[n / 2], z_s, step, n);
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int n = 0; n < NT; ++n) multiply(sum[m][n], a[m], b[n / 2] + n % 2 * 2);
        }
    }

    float* row = workspace + (blockIdx.x * SLOTS + slot) * (K * O * C);
#pragma unroll
    for (int m = 0; m < 2 * MT; ++m) {
        int e = eight0 + m, tap = e / X_EIGHTS, c = c0 + e % X_EIGHTS * 8 + lane / 4;
        if (e >= EIGHTS || c >= C) continue;
#pragma unroll
        for (int n = 0; n < 2 * NT; ++n) {
            int o = o0 + n / 2 * 8 + lane % 4 * 2 + n % 2;
            if (o < O) row[(tap * O + o) * C + c] = sum[m / 2][n / 2][m % 2 * 2 + n % 2];
        }
    }
}
