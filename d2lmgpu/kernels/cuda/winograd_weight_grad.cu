// The gradients of convolution + bias + ReLU + pooling with respect to weight and bias, by Winograd's method: partial
// sums of groups of images. winograd.cuh has the method; conv_weight_grad.cu is the simple version, the reference, and
// has conv_weight_grad_sum, which comes after this.
//
//   x (N, C, H, W), dy, mask (N, O, PH, PW) -> workspace: a row of K*O*C + O numbers for each group, as conv_weight_grad
//
// The forward kernel's product, transposed: with V = B^T x B and D = A dz A^T of each tile
//
//   dU[o,c][f] = sum over tiles of D[o][f] * V[c][f]         dweight[o,c] = G^T dU[o,c] G
//
// A block has OB output and CB input channels, and goes through pieces of images: IMAGES images and TR x TC tiles of
// each, piece blockIdx.x, and so on in steps of gridDim.x. For each piece
//   1  its part of x comes to shared memory, asynchronously from compute capability 8.0 on, and its dy and mask come to
//      registers, all while the piece before is multiplied
//   2  two threads make V of a tile of one channel of x: rows first, half of them each, then columns; and a thread makes
//      D of a tile of one channel of dz, which it unpools
//   3  all threads multiply: one has a point, NO output and NC input channels, NO * NC sums
// At the end the sums change hands, and a thread transforms all points of a pair of channels.
//
// Macros: those of winograd.cuh; OB CB TR TC IMAGES; QO QC: in how many parts threads share OB and CB; ROUND: of its NO
// channels, how many change hands at a time; RESIDENT: the blocks that a multiprocessor is to hold.
// Grid: (groups, parts of O, parts of C). Block: POINTS * QO * QC, at least OB * TILES and 2 * CB * TILES.

#include "async_copy.cuh"
#include "winograd.cuh"

#define THREADS (POINTS * QO * QC)
#define TILES (IMAGES * TR * TC)
#define NO CEIL_DIV(OB, QO)
#define NC CEIL_DIV(CB, QC)
#define REGIONS_X CEIL_DIV(PW * S, TC * MW)
#define REGIONS (CEIL_DIV(PH * S, TR * MH) * REGIONS_X)
#define PADDED (CEIL_DIV(POINTS, 4) * 4)
#define PLANE (PADDED / 4 % 2 ? PADDED : PADDED + 4)  // floats of a tile of one channel: an odd number of vectors
#define XH (TR * MH + KH - 1)                         // rows and columns of x that a region reads
#define XW (TC * MW + KW - 1)
#define X_IMAGE (CB * XH * XW)
#define AT_ONCE (THREADS > XH * XW ? THREADS / (XH * XW) : 1)  // channels of x that are copied
#define HALF_H CEIL_DIV(TH, 2)
#define HALF_W CEIL_DIV(TW, 2)
#define EXACT (PH * S % (TR * MH) == 0 && PW * S % (TC * MW) == 0)  // all tiles are full
#define ROWS (ROUND * QO * CB)                        // pairs of channels that change hands at a time
#define SUMMING (CEIL_DIV(THREADS, 4) * 4 + TILES * (OB + CB) * PLANE + IMAGES * X_IMAGE)
#define EXCHANGE (CEIL_DIV(THREADS, 4) * 4 + ROWS * PLANE)
#define COLUMNS (O * C * KH * KW + O)                 // of the workspace: weights, and then biases

// COUNT floats between registers and shared memory, as vectors if their number allows it.
template <int COUNT>
static __device__ __forceinline__ void load(const float* from, float* to)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (COUNT % 4) to[i] = from[i];
        else if (i % 4 == 0) {
            float4 four = *(const float4*)(from + i);
            to[i] = four.x, to[i + 1] = four.y, to[i + 2] = four.z, to[i + 3] = four.w;
        }
    }
}

template <int COUNT>
static __device__ __forceinline__ void store(const float* from, float* to)
{
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
        if (COUNT % 4) to[i] = from[i];
        else if (i % 4 == 0) *(float4*)(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);
    }
}

// B^T x for the rows of one half of a tile, then, for the columns of one half, times B. Between them both halves are done.
static __device__ __forceinline__ void transform_rows(const float* from, float* plane, int half)
{
#pragma unroll
    for (int r = 0; r < HALF_H; ++r) {
        int i = half * HALF_H + r;
        float values[TW];
        if (TH % 2 && i >= TH) continue;
#pragma unroll
        for (int j = 0; j < TW; ++j) values[j] = from[i * XW + j];
        by_rows<BtW, 1, 1>(values, values);
        store<TW>(values, plane + i * TW);
    }
}

static __device__ __forceinline__ void transform_columns(float* plane, int half)
{
    float values[TH][HALF_W];
    if (TW % 2 && half) return;
#pragma unroll
    for (int i = 0; i < TH; ++i) load<HALF_W>(plane + i * TW + half * HALF_W, values[i]);
#pragma unroll
    for (int j = 0; j < HALF_W; ++j) by_rows<BtH, HALF_W, HALF_W>(&values[0][j], &values[0][j]);
#pragma unroll
    for (int i = 0; i < TH; ++i) store<HALF_W>(values[i], plane + i * TW + half * HALF_W);
}

// G^T dU G: the KH * KW gradients of a pair of channels.
static __device__ __forceinline__ void finish(const float* plane, float taps[KH][KW])
{
    float half[TH][KW];
#pragma unroll
    for (int i = 0; i < TH; ++i) {
        float points[TW];
        load<TW>(plane + i * TW, points);
        by_columns<GW, 1, 1>(points, half[i]);
    }
#pragma unroll
    for (int j = 0; j < KW; ++j) by_columns<GH, KW, KW>(&half[0][j], &taps[0][j]);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) winograd_weight_grad(
    const float* x, const float* dy, const unsigned short* mask, float* workspace, int N)
{
    __shared__ __align__(16) float shared[SUMMING > EXCHANGE ? SUMMING : EXCHANGE];
    float *bias_s = shared, *d_s = bias_s + CEIL_DIV(THREADS, 4) * 4;  // a number for each thread, to spare a register
    float *v_s = d_s + TILES * OB * PLANE, *x_s = v_s + TILES * CB * PLANE;
    int o0 = blockIdx.y * OB, c0 = blockIdx.z * CB, pieces = CEIL_DIV(N, IMAGES) * REGIONS;
    int f = threadIdx.x % POINTS, q = threadIdx.x / POINTS, qo = q % QO, qc = q / QO;

    Shared x_shared = address(x_s + threadIdx.x);
    auto copy_x = [&](int piece) {
        int n0 = piece / REGIONS * IMAGES;
        int row0 = piece % REGIONS / REGIONS_X * (TR * MH), col0 = piece % REGIONS % REGIONS_X * (TC * MW);
#pragma unroll
        for (int e = 0; e < CEIL_DIV(XH * XW, THREADS); ++e) {
            int i = e * THREADS + threadIdx.x, first = i / (XH * XW), h = row0 + i / XW % XH, w = col0 + i % XW;
            if (first >= AT_ONCE) continue;
            bool inside = EXACT || h < H && w < W;
            int from = ((n0 * C + c0 + first) * H + h) * W + w;
#pragma unroll
            for (int image = 0; image < IMAGES; ++image)
#pragma unroll
                for (int c = 0; c < CB; c += AT_ONCE) {
                    bool there = inside && (IMAGES == 1 || n0 + image < N) && (C % CB == 0 || c0 + c + first < C);
                    if (CB % AT_ONCE && c + first >= CB) continue;
                    copy(x_shared, image * X_IMAGE + c * XH * XW + e * THREADS,
                         there ? x + from + (image * C + c) * H * W : x, there);
                }
        }
        end_of_group();
    };

    // The tile of dz that this thread transforms, of channel o0 + my_o.
    int my_tile = threadIdx.x % TILES, my_o = threadIdx.x / TILES;
    int my_row = my_tile / TC % TR * (MH / S), my_col = my_tile % TC * (MW / S), my_image = my_tile / (TR * TC);
    float gradient[SQUARES];
    unsigned bits[SQUARES];
    auto load_squares = [&](int piece) {
        if (my_o >= OB) return;
        int n = piece / REGIONS * IMAGES + my_image, row0 = piece % REGIONS / REGIONS_X * (TR * MH / S) + my_row;
        int col0 = piece % REGIONS % REGIONS_X * (TC * MW / S) + my_col;
        bool mine = (O % OB == 0 || o0 + my_o < O) && (IMAGES == 1 || n < N);
        int at = ((n * O + o0 + my_o) * PH + row0) * PW + col0;
#pragma unroll
        for (int s = 0; s < SQUARES; ++s) {
            int row = s / (MW / S), col = s % (MW / S);
            bool there = mine && (EXACT || row0 + row < PH && col0 + col < PW);
            gradient[s] = there ? dy[at + row * PW + col] : 0.0f;
            bits[s] = there ? mask[at + row * PW + col] : 0;
        }
    };

    int half = threadIdx.x % 2, other = (THREADS - 1 - threadIdx.x) / 2;  // the last warps, as the first have tiles of dz
    int corner = (other / TC % TR * MH) * XW + other % TC * MW + other / TILES * XH * XW;
    const float* my_x = x_s + other / (TR * TC) % IMAGES * X_IMAGE + corner;
    float* my_v = v_s + (other % TILES * CB + other / TILES) * PLANE;

    float sum[NO][NC] = {};
    bias_s[threadIdx.x] = 0.0f;
    copy_x(blockIdx.x);
    load_squares(blockIdx.x);
    for (int piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
        wait_for_groups<0>();
        __syncthreads();  // x_s is there, and d_s and v_s are no longer needed
        if (other < TILES * CB) transform_rows(my_x, my_v, half);
        __syncwarp();
        if (other < TILES * CB) transform_columns(my_v, half);
        if (my_o < OB) {
            float values[POINTS];
            transform_gradient(gradient, bits, values);
            store<POINTS>(values, d_s + (my_tile * OB + my_o) * PLANE);
            float bias = bias_s[threadIdx.x];
#pragma unroll
            for (int s = 0; s < SQUARES; ++s) bias += gradient[s] * __popc(bits[s]);
            bias_s[threadIdx.x] = bias;
        }
        __syncthreads();  // d_s and v_s are there, and x_s is no longer needed
        if (piece + gridDim.x < pieces) {
            copy_x(piece + gridDim.x);
            load_squares(piece + gridDim.x);
        }
#pragma unroll 4
        for (int k = 0; k < TILES; ++k) {
            float d[NO], v[NC];
#pragma unroll
            for (int s = 0; s < NC; ++s) v[s] = v_s[(k * CB + qc * NC + s) * PLANE + f];
#pragma unroll
            for (int r = 0; r < NO; ++r) d[r] = d_s[(k * OB + qo * NO + r) * PLANE + f];
#pragma unroll
            for (int r = 0; r < NO; ++r)
#pragma unroll
                for (int s = 0; s < NC; ++s) sum[r][s] += d[r] * v[s];
        }
    }

    float* row = workspace + blockIdx.x * COLUMNS;
#pragma unroll
    for (int round = 0; round < CEIL_DIV(NO, ROUND); ++round) {
        __syncthreads();
#pragma unroll
        for (int r = round * ROUND; r < NO && r < round * ROUND + ROUND; ++r)
#pragma unroll
            for (int s = 0; s < NC; ++s)
                if (CB % QC == 0 || qc * NC + s < CB)
                    d_s[((r % ROUND * QO + qo) * CB + qc * NC + s) * PLANE + f] = sum[r][s];
        __syncthreads();
#pragma unroll 1
        for (int pair = threadIdx.x; pair < ROWS; pair += THREADS) {
            int r = round * ROUND + pair / CB / QO, in_block = pair / CB % QO * NO + r;
            int o = o0 + in_block, c = c0 + pair % CB;
            if (r >= NO || in_block >= OB || o >= O || c >= C) continue;
            float taps[KH][KW];
            finish(d_s + pair * PLANE, taps);
#pragma unroll
            for (int k = 0; k < KH * KW; ++k) row[(k * O + o) * C + c] = taps[k / KW][k % KW];
        }
    }
    if (c0 || my_o >= OB || my_tile || o0 + my_o >= O) return;
    float bias = 0.0f;
    for (int k = 0; k < TILES; ++k) bias += bias_s[threadIdx.x + k];
    row[O * C * KH * KW + o0 + my_o] = MAX_POOL ? bias : bias * (1.0f / (S * S));
}
