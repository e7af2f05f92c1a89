// Convolution, bias, ReLU and pooling in one kernel, by Winograd's method. winograd.cuh has the method and the product.
//
//   x (N, C, H, W), u (from winograd_weights.cu), bias (O) -> y (N, O, PH, PW), mask: as conv_forward.cu, which is the
//   simple version of this kernel and the reference for it.
//
// A block has 16 tiles of MH x MW outputs z, of one image or of several small ones, and PART output channels. For CB
// channels of x at a time:
//   1  the part of x that the tiles read is copied to shared memory, asynchronously from compute capability 8.0 on, a
//      chunk before it is used
//   2  a thread takes a tile of one channel to its registers, makes V = B^T x B of it, and puts it into shared memory
//   3  all threads multiply
// Then the sums change hands, and a thread makes z = A^T M A of one tile and output channel, with bias, ReLU, pooling.
//
// An output whose inputs and bias are exactly 0, as on the black background of the first step's images, must be exactly
// 0: rounding would toss a coin for ReLU's slope. In a tile that is black in part it would be a rounding error. So where
// a channel of the block has no bias, step 2 notes which pixels are not 0, and what sees none of them is set to 0.
//
// Counted for LeNet's second convolution and 256 images (machine code for sm_90; 128 blocks of 8 warps, one on each
// multiprocessor of an H100, 2 warps a scheduler, 246 registers): a warp executes 5,200 instructions, 2,080 of them the
// products' multiplications, 1,040 of transforms, 330 loads from shared memory, 262 of u. All blocks of conv_forward.cu
// together execute 3.8 times as many. A block reads 133 KB of u and 50 KB of x: at 24 bytes a cycle from the
// second-level cache that alone takes 7,700 cycles, while the schedulers issue for 10,400. Predicted 11 us;
// conv_forward.cu, predicted in the same way, takes 31 us.
//
// Macros: those of winograd.cuh, also Q RO CB ROUND; TR TC: the tiles of an image that a block has, rows and columns;
// HALF_OUT of half.cuh.
// Grid: (groups of images, parts of O, regions of an image). Block: THREADS.

#define DEPTH (RO > 8 && CB > 3 ? 3 : CB)  // registers are few
#include "async_copy.cuh"
#include "winograd.cuh"
#include "squares.cuh"

#define IMAGES (TILES / (TR * TC))
#define REGIONS_X CEIL_DIV(PW * S, TC * MW)
#define XH (TR * MH + KH - 1)  // rows and columns of x that a region reads
#define XW (TC * MW + KW - 1)
#define X_PLANE (CEIL_DIV(XH * XW, 8) * 8 | 8)                  // floats of a channel in shared memory, and of CB
#define X_IMAGE (CB * X_PLANE + (33 - CB * X_PLANE % 32) % 32)  // channels of an image: all begin at different banks
#define X_BUFFER (IMAGES * X_IMAGE)                             // two of them: one is filled while one is read
#define COPIES CEIL_DIV(XH * XW, THREADS)                       // of a thread, for a channel of an image
#define SUMMING (CB * PLANE + 2 * X_BUFFER)

// V = B^T x B for the tile of x that begins at `from`, to plane `to` of v_s.
static __device__ __forceinline__ void transform(const float* from, float* to, int tile)
{
    float values[TH][TW];
#pragma unroll
    for (int i = 0; i < TH; ++i)
#pragma unroll
        for (int j = 0; j < TW; ++j) values[i][j] = from[i * XW + j];
#pragma unroll
    for (int j = 0; j < TW; ++j) by_rows<BtH, TW, TW>(&values[0][j], &values[0][j]);
#pragma unroll
    for (int i = 0; i < TH; ++i) {
        by_rows<BtW, 1, 1>(values[i], values[i]);
#pragma unroll
        for (int j = 0; j < TW; ++j) to[place(i * TW + j, tile)] = values[i][j];
    }
}

// z = A^T M A, from a row of points.
static __device__ __forceinline__ void finish(const float* from, float z[MH][MW])
{
    float half[TH][MW];
#pragma unroll
    for (int i = 0; i < TH; ++i) {
        float points[TW];
#pragma unroll
        for (int j = 0; j < TW; ++j) points[j] = from[i * TW + j];
        by_columns<AW, 1, 1>(points, half[i]);
    }
#pragma unroll
    for (int j = 0; j < MW; ++j) by_columns<AH, MW, MW>(&half[0][j], &z[0][j]);
}

// Which pixels of a tile are not 0, a bit each. Rarely needed, and so not unrolled.
typedef unsigned long long Bits;

static __device__ __forceinline__ Bits lit_pixels(const float* from)
{
    Bits bits = 0;
#pragma unroll 1
    for (int f = POINTS - 1; f >= 0; --f) bits = bits << 1 | (from[f / TW * XW + f % TW] != 0.0f);
    return bits;
}

// Those that the output (0, 0) of a tile sees.
static __device__ __forceinline__ Bits window()
{
    Bits bits = 0;
#pragma unroll
    for (int k = 0; k < KH; ++k) bits |= (((Bits)1 << KW) - 1) << k * TW;
    return bits;
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) winograd_forward(
    const float* x, const float* u, const float* bias, float* y, unsigned short* mask, int N)
{
    __shared__ __align__(16) float shared[SUMMING > EXCHANGE ? SUMMING : EXCHANGE];
    __shared__ Bits lit[CB * TILES];  // of each tile and channel of a chunk: pixels of all chunks
    __shared__ bool without_bias;
    float *v_s = shared, *x_s = shared + CB * PLANE;
    int n0 = blockIdx.x * IMAGES, part = blockIdx.y;
    int tile_row0 = blockIdx.z / REGIONS_X * TR, tile_col0 = blockIdx.z % REGIONS_X * TC;

    // Some channels of x, of all images of the block. Beyond the edge of an image there are zeros.
    int copier = THREADS - 1 - threadIdx.x;  // the first warps have tiles to transform
    Shared x_shared = address(x_s + copier);
    const float* corner = x + (n0 * C * H + tile_row0 * MH) * W + tile_col0 * MW;
    auto copy_x = [&](int c0) {
        Shared to = x_shared + c0 / CB % 2 * (int)(X_BUFFER * sizeof(*x_s) / sizeof(Unit));
#pragma unroll
        for (int e = 0; e < COPIES; ++e) {
            int i = e * THREADS + copier, h = i / XW, w = i % XW;
            bool inside = tile_row0 * MH + h < H && tile_col0 * MW + w < W;
            if (i >= XH * XW) continue;
#pragma unroll
            for (int image = 0; image < IMAGES; ++image) {
                bool there = inside && image < N - n0;
                const float* from = there ? corner + ((image * C + c0) * H + h) * W + w : x;
                int step = there ? H * W : 0;
#pragma unroll 2
                for (int k = 0; k < min(CB, C - c0); ++k)
                    copy(to, image * X_IMAGE + k * X_PLANE + e * THREADS, from + k * step, there);
            }
        }
        end_of_group();
    };

    const float *first = v_s + first_vector(), *second = v_s + second_vector();
    float ahead[DEPTH][RO];
    u = my_u(u, part, C);
    float sum[RO][8] = {};
    int my_o = part * PART + threadIdx.x;
    bool is_without = RELU && threadIdx.x < PART && my_o < O && bias[my_o] == 0.0f;
    if (threadIdx.x == 0) without_bias = false;
    copy_x(0);
    __syncthreads();
    if (is_without) without_bias = true;  // seen after the next barrier
    for (int c0 = 0; c0 < C; c0 += CB) {
        if (DEPTH < CB || c0 == 0) load_first(u, ahead);
        wait_for_groups<0>();
        __syncthreads();  // x_s is there, and v_s is no longer needed, nor what was in x_s before
        if (c0 + CB < C) copy_x(c0 + CB);
#pragma unroll 1
        for (int item = threadIdx.x; item < CB * TILES; item += THREADS) {
            int tile = item % TILES, c = item / TILES, image = tile / (TR * TC), inside = tile % (TR * TC);
            if (image >= IMAGES) continue;
            const float* plane = x_s + c0 / CB % 2 * X_BUFFER + image * X_IMAGE + c * X_PLANE;
            const float* from = plane + inside / TC * MH * XW + inside % TC * MW;
            if (RELU && without_bias && c0 + c < C) lit[item] = (c0 ? lit[item] : 0) | lit_pixels(from);
            transform(from, v_s + c * PLANE, tile);
        }
        __syncthreads();  // v_s is there
        multiply(u, ahead, first, second, C - c0, sum);
        u += CB * PART * POINTS;
    }

#pragma unroll 1
    for (int round = 0; round < CEIL_DIV(RO, ROUND); ++round) {
        __syncthreads();
        exchange(sum, round, shared);
        __syncthreads();
#pragma unroll 1
        for (int row = threadIdx.x; row < ROWS; row += THREADS) {
            int slot = row / 32 * 2 + row / 8 % 2, tile = row / 16 % 2 * 8 + row % 8;
            int image = tile / (TR * TC), inside = tile % (TR * TC), n = n0 + image;
            int r = round * ROUND + slot / Q, o = part * PART + round * ROUND * Q + slot;
            if (image >= IMAGES || n >= N || slot >= ROUND * Q || r >= RO || o >= O) continue;
            float z[MH][MW];
            finish(shared + row_of(slot, tile), z);
            int row0 = (tile_row0 + inside / TC) * (MH / S), col0 = (tile_col0 + inside % TC) * (MW / S);
            float b = bias[o];
            if (RELU && b == 0.0f) {
                Bits bits = 0;
                for (int c = 0; c < min(C, CB); ++c) bits |= lit[c * TILES + tile];
#pragma unroll
                for (int i = 0; i < MH; ++i)
#pragma unroll
                    for (int j = 0; j < MW; ++j)
                        if (!(bits & window() << (i * TW + j))) z[i][j] = 0.0f;
            }
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
