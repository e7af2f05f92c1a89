// The gradient of convolution + bias + ReLU + pooling with respect to its input, by Winograd's method backwards.
// winograd.cuh has the method and the product.
//
//   dy, mask (N, O, PH, PW), u_back (from winograd_weights.cu) -> dx (N, C, H, W): as conv_input_grad.cu, which is the
//   simple version of this kernel and the reference for it.
//
// Each step of the forward kernel transposed. A block has all tiles of an image (16 at most), or of several images, and
// PART input channels. CB channels of dz are multiplied by all threads; some of them prepare the next CB before that: a
// thread unpools a tile of dz of one channel into its registers (its dy and mask were loaded still a chunk before),
// makes D = A dz A^T of it, and puts it into shared memory.
// Then the sums change hands, and dx = B dV B^T, in two passes because tiles overlap: first along the columns of each
// tile, in place; then a thread takes a row of dx, adds the rows of the tiles that meet there, transforms along the row
// and adds where tiles meet again. Every sum has a fixed order.
//
// Counted as in winograd_forward.cu: 5,100 instructions a warp, 2,000 of them the products' multiplications; 167
// registers. Predicted 12 us, conv_input_grad.cu 43 us.
//
// Macros: those of winograd.cuh, also Q RO CB ROUND; TR TC: the rows and columns of tiles of an image;
// HALF_OUT of half.cuh.
// Grid: (groups of images, parts of C). Block: THREADS, at least CB * 16.

#define DEPTH CB
#include "half.cuh"
#include "winograd.cuh"

#define IMAGES (TILES / (TR * TC))
#define SLOTS (ROUND * Q)
#define REACH_H (TR * MH + KH - 1 < H ? TR * MH + KH - 1 : H)  // rows of dx that tiles reach

// D = A dz A^T for a tile of dz in squares, to plane `to` in shared memory.
static __device__ __forceinline__ void transform(
    const float gradient[SQUARES], const unsigned bits[SQUARES], float* to, int tile)
{
    float values[POINTS];
    transform_gradient(gradient, bits, values);
#pragma unroll
    for (int f = 0; f < POINTS; ++f) to[place(f, tile)] = values[f];
}

// Row h of dx for one image and channel: the rows of the tiles that meet there are added, transformed, and added where
// tiles meet again. It is left in place of the row of the last of these tiles.
static __device__ __forceinline__ void add_tiles(float* m_s, int image, int slot, int h)
{
    int last = min(h / MH, TR - 1);
    float carried[TW] = {};  // the columns that the tile before has in common with this one
#pragma unroll 1
    for (int tile_col = 0; tile_col < TC; ++tile_col) {
        float values[TW], result[TW];
        float* mine = m_s + row_of(slot, (image * TR + last) * TC + tile_col) + (h - last * MH) * TW;
#pragma unroll
        for (int j = 0; j < TW; ++j) values[j] = mine[j];
#pragma unroll
        for (int above = 1; above < CEIL_DIV(TH, MH); ++above) {
            int tile_row = last - above, i = h - tile_row * MH;
            if (tile_row < 0 || i >= TH) continue;
            const float* other = m_s + row_of(slot, (image * TR + tile_row) * TC + tile_col) + i * TW;
#pragma unroll
            for (int j = 0; j < TW; ++j) values[j] += other[j];
        }
        by_columns<BtW, 1, 1>(values, result);
#pragma unroll
        for (int j = 0; j < TW; ++j) result[j] += carried[j];
#pragma unroll
        for (int j = 0; j < TW; ++j) mine[j] = result[j];  // for the last column of tiles all of them, else MW count
#pragma unroll
        for (int j = 0; j < TW; ++j) carried[j] = j + MW < TW ? result[j + MW] : 0.0f;
    }
}

// Element (h, w) of dx for all images and channels of a round. Four channels at a time, so that loads need not wait for
// stores.
static __device__ __forceinline__ void store(const float* m_s, float* to, int h, int w, int channels, int images)
{
    int tile_row = min(h / MH, TR - 1), i = h - tile_row * MH, tile_col = min(w / MW, TC - 1), j = w - tile_col * MW;
    bool there = i < TH && j < TW;
    int from[IMAGES];
#pragma unroll
    for (int image = 0; image < IMAGES; ++image)
        from[image] = row_of(0, (image * TR + tile_row) * TC + tile_col) + (there ? i * TW + j : 0);
#pragma unroll 1
    for (int slot = 0; slot < channels; slot += 4) {
        float values[4][IMAGES];
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int image = 0; image < IMAGES; ++image)
                values[s][image] = OUT_OF(m_s[from[image] + row_of(min(slot / 2 + s / 2, ROWS / 32 - 1) * 2 + s % 2, 0)]);
#pragma unroll
        for (int s = 0; s < 4; ++s)
#pragma unroll
            for (int image = 0; image < IMAGES; ++image)
                if (slot + s < channels && image < images)
                    to[(image * C + slot + s) * H * W] = there ? values[s][image] : 0.0f;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) winograd_input_grad(
    const float* dy, const unsigned short* mask, const float* u, float* dx, int N)
{
    __shared__ __align__(16) float shared[2 * CB * PLANE > EXCHANGE ? 2 * CB * PLANE : EXCHANGE];
    int n0 = blockIdx.x * IMAGES, part = blockIdx.y;
    int tile = threadIdx.x % TILES, channel = threadIdx.x / TILES, inside = tile % (TR * TC);
    int n = n0 + tile / (TR * TC), row0 = inside / TC * (MH / S), col0 = inside % TC * (MW / S);
    bool mine = channel < CB && tile / (TR * TC) < IMAGES;
    float gradient[SQUARES];
    unsigned bits[SQUARES];

    int at = ((n * O + channel) * PH + row0) * PW + col0;
    auto load_squares = [&](int o0) {
#pragma unroll
        for (int q = 0; q < SQUARES; ++q) {
            int row = q / (MW / S), col = q % (MW / S);
            bool there = mine && n < N && o0 + channel < O && row0 + row < PH && col0 + col < PW;
            gradient[q] = there ? dy[at + o0 * PH * PW + row * PW + col] : 0.0f;
            bits[q] = there ? mask[at + o0 * PH * PW + row * PW + col] : 0;
        }
    };

    const float *first = shared + first_vector(), *second = shared + second_vector();
    float ahead[DEPTH][RO];
    u = my_u(u, part, O);
    float sum[RO][8] = {};
    load_first(u, ahead);
    load_squares(0);
    if (mine) transform(gradient, bits, shared + channel * PLANE, tile);
    load_squares(CB);
    __syncthreads();
    for (int o0 = 0; o0 < O; o0 += CB) {
        int now = o0 / CB % 2 * CB * PLANE, next = CB * PLANE - now;
        if (mine && o0 + CB < O) {
            transform(gradient, bits, shared + next + channel * PLANE, tile);
            load_squares(o0 + 2 * CB);
        }
        multiply(u, ahead, first + now, second + now, O - o0, sum);
        u += CB * PART * POINTS;
        __syncthreads();
    }

#pragma unroll 1
    for (int round = 0; round < CEIL_DIV(RO, ROUND); ++round) {
        int slots = min(SLOTS, PART - round * SLOTS), c0 = part * PART + round * SLOTS;
        exchange(sum, round, shared);
        __syncthreads();
#pragma unroll 1
        for (int item = threadIdx.x; item < ROWS * TW; item += THREADS) {
            int row = item % ROWS;
            float* column = shared + row * (POINTS | 1) + row / 32 + item / ROWS;
            if (row / 32 * 2 + row / 8 % 2 < slots) by_columns<BtH, TW, TW>(column, column);
        }
        __syncthreads();
#pragma unroll 1
        for (int item = threadIdx.x; item < IMAGES * slots * REACH_H; item += THREADS)
            add_tiles(shared, item % IMAGES, item / IMAGES % slots, item / IMAGES / slots);
        __syncthreads();
        for (int e = threadIdx.x; e < H * W; e += THREADS)
            store(shared, dx + (n0 * C + c0) * H * W + e, e / W, e % W, min(slots, C - c0), N - n0);
        __syncthreads();
    }
}
