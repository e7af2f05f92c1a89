// The gradient of convolution + bias + ReLU + pooling with respect to its input, by Winograd's method backwards.
// winograd.cuh has the method and the product.
//
//   dy, mask (N, O, PH, PW), u_back (from winograd_weights.cu) -> dx (N, C, H, W): as conv_input_grad.cu, which is the
//   simple version of this kernel and the reference for it.
//
// Each step of the forward kernel transposed. A block has all tiles of an image (16 at most), or of several images, and
// PART input channels. For CB channels of dz at a time:
//   1  a thread unpools a tile of dz of one channel into its registers (its dy and mask were loaded while the chunk
//      before it was multiplied), makes D = A dz A^T of it, and puts it into shared memory
//   2  all threads multiply
// Then the sums change hands, and dx = B dV B^T, in two passes because tiles overlap: first along the columns of each
// tile, in place; then a thread takes a row of dx, adds the rows of the tiles that meet there, transforms along the row
// and adds where tiles meet again. Every sum has a fixed order.
//
// Macros: those of winograd.cuh, also Q RO CB ROUND; TR TC: the rows and columns of tiles of an image.
// Grid: (groups of images, parts of C). Block: THREADS, at least CB * 16.

#include "winograd.cuh"

#define IMAGES (TILES / (TR * TC))
#define SQUARES ((MH / S) * (MW / S))  // of a tile
#define SLOTS (ROUND * Q)
#define DX_PLANE (H * W)
#define FINISHING (EXCHANGE + IMAGES * SLOTS * DX_PLANE)

extern "C" __global__ void __launch_bounds__(THREADS) winograd_input_grad(
    const float* __restrict__ dy, const unsigned short* __restrict__ mask, const float* __restrict__ u,
    float* __restrict__ dx, int N)
{
    __shared__ __align__(16) float shared[CB * PLANE > FINISHING ? CB * PLANE : FINISHING];
    int n0 = blockIdx.x * IMAGES, part = blockIdx.y;
    int tile = threadIdx.x % TILES, channel = threadIdx.x / TILES, inside = tile % (TR * TC);
    int n = n0 + tile / (TR * TC), row0 = inside / TC * (MH / S), col0 = inside % TC * (MW / S);
    bool mine = channel < CB && tile / (TR * TC) < IMAGES;
    float gradient[SQUARES];
    unsigned bits[SQUARES];

    auto load_squares = [&](int o0) {
#pragma unroll
        for (int q = 0; q < SQUARES; ++q) {
            int row = row0 + q / (MW / S), col = col0 + q % (MW / S), o = o0 + channel;
            bool there = mine && n < N && o < O && row < PH && col < PW;
            int index = there ? ((n * O + o) * PH + row) * PW + col : 0;
            gradient[q] = there ? dy[index] : 0.0f;
            bits[q] = mask[index];
        }
    };

    u = my_u(u, part, O);
    Ahead ahead;
    float sum[RO][8] = {};
    load_squares(0);
    load(u, 0, O, ahead.now);
    load(u, 1, O, ahead.next);
    for (int o0 = 0; o0 < O; o0 += CB) {
        if (mine) {
            float dz[MH][MW], half[TH][MW], values[TW];
#pragma unroll
            for (int i = 0; i < MH; ++i)
#pragma unroll
                for (int j = 0; j < MW; ++j) {
                    int q = i / S * (MW / S) + j / S;
                    float g = MAX_POOL ? gradient[q] : gradient[q] * (1.0f / (S * S));
                    dz[i][j] = bits[q] >> (i % S * S + j % S) & 1 ? g : 0.0f;
                }
#pragma unroll
            for (int j = 0; j < MW; ++j) by_rows<AH, MW, MW>(&dz[0][j], &half[0][j]);
#pragma unroll
            for (int i = 0; i < TH; ++i) {
                by_rows<AW, 1, 1>(half[i], values);
#pragma unroll
                for (int j = 0; j < TW; ++j) shared[channel * PLANE + place(i * TW + j, tile)] = values[j];
            }
        }
        __syncthreads();
        if (o0 + CB < O) load_squares(o0 + CB);
        multiply(u, ahead, shared, o0, min(CB, O - o0), O, sum);
        __syncthreads();
    }

    float* dx_s = shared + EXCHANGE;
#pragma unroll 1
    for (int round = 0; round < CEIL_DIV(RO, ROUND); ++round) {
        int slots = min(SLOTS, PART - round * SLOTS), c0 = part * PART + round * SLOTS;
        exchange(sum, round, shared);
        __syncthreads();
#pragma unroll 1
        for (int item = threadIdx.x; item < ROWS * TW; item += THREADS) {
            int row = item % ROWS, j = item / ROWS;
            float* column = shared + row * (POINTS | 1) + row / 32 + j;
            if (row / 32 * 2 + row / 8 % 2 < slots) by_columns<BtH, TW, TW>(column, column);
        }
        __syncthreads();
#pragma unroll 1
        for (int item = threadIdx.x; item < IMAGES * slots * H; item += THREADS) {
            int image = item % IMAGES, slot = item / IMAGES % slots, h = item / IMAGES / slots;
            float* row = dx_s + (image * SLOTS + slot) * DX_PLANE + h * W;
            float carried[TW] = {};  // the KW - 1 columns that the tile before has in common with this one
#pragma unroll 1
            for (int tile_col = 0; tile_col < TC; ++tile_col) {
                float values[TW] = {}, result[TW];
#pragma unroll
                for (int above = 0; above < CEIL_DIV(TH, MH); ++above) {
                    int tile_row = h / MH - above, i = h - tile_row * MH;
                    if (tile_row < 0 || tile_row >= TR || i >= TH) continue;
                    const float* from = shared + row_of(slot, (image * TR + tile_row) * TC + tile_col) + i * TW;
#pragma unroll
                    for (int j = 0; j < TW; ++j) values[j] += from[j];
                }
                by_columns<BtW, 1, 1>(values, result);
#pragma unroll
                for (int j = 0; j < TW; ++j) result[j] += carried[j];
#pragma unroll
                for (int j = 0; j < MW; ++j)
                    if (tile_col * MW + j < W) row[tile_col * MW + j] = result[j];
#pragma unroll
                for (int j = 0; j < TW; ++j) carried[j] = j + MW < TW ? result[j + MW] : 0.0f;
            }
#pragma unroll
            for (int j = 0; j < KW - 1; ++j)
                if (TC * MW + j < W) row[TC * MW + j] = carried[j];
            for (int w = TC * MW + KW - 1; w < W; ++w) row[w] = 0.0f;
        }
        __syncthreads();
        for (int image = 0; image < IMAGES && n0 + image < N; ++image)
            for (int i = threadIdx.x; i < min(slots, C - c0) * DX_PLANE; i += THREADS)
                dx[((n0 + image) * C + c0) * DX_PLANE + i] = dx_s[image * SLOTS * DX_PLANE + i];
    }
}
