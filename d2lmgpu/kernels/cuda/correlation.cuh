// A correlation of pictures with kernels as a matrix product on tensor cores, for conv_forward_tensor_cores.cu and
// conv_input_grad_tensor_cores.cu, which say what the pictures are:
//
//   result[position][r] = sum over channels s, i, j of picture[s][position + (i, j)] * kernel[r][s][i][j]
//
// The rows of A are positions, the columns of B are results r. The matrix of patches ("im2col") exists nowhere: a
// picture lies in shared memory once, with channels last, and the address of a row of A is the place of a pixel
// (an *implicit* matrix product: Chetlur et al. 2014, cuDNN). Along the sum come i, then j, then the channels, in units
// of 16 bytes (mma.cuh). So the units that a row needs for one i are KW neighbouring pixels: one run of memory, if a
// pixel has no gap behind it. All that changes in the innermost loop is then a constant in the address of a load.
//
// Kernels come to shared memory in the same order, OUTER rows i at a time. What is rounded is rounded here, once a
// block, by a thread that loads the numbers of a unit, and stores it whole.
//
// A warp has MT * 16 positions and NT * 8 results. Positions come in squares of SIDE * SIDE, for pooling: number
// 16 m + 8 half + g of a warp is pixel q of its square 8 r + g, where 2 m + half = r * SIDE * SIDE + q. By the layout of
// D one lane then has a whole square: eight squares of a row of pooled results are in the eight lanes of one t.
//
// The larger a warp's tile, the fewer loads a product needs; but few warps wait longer. So SPLIT warps may share a tile,
// each with a part of every run, and add up at the end in a fixed order.
//
// Macros: C O H W KH KW S MAX_POOL RELU; TYPE as in mma.cuh. A block has IMAGES pictures, of each RH x RW squares (all, if
// IMAGES > 1), and WO * NT * 8 results; WP * WO * SPLIT warps; sums go through CB channels at a time, OUTER rows of
// kernels. RESIDENT: blocks for which a multiprocessor has registers. The including file defines SIDE, SUMMED and RESULTS (numbers of channels), and where kernels lie: KERNEL(r, s, tap).

#include "mma.cuh"

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)
#define ZW (PW * S)
#define K (KH * KW)

#define THREADS (32 * WP * WO * SPLIT)
#define WARP (threadIdx.x / 32 % (WP * WO))
#define PART (threadIdx.x / 32 / (WP * WO))  // of the sum
#define BLOCK_RESULTS (WO * NT * 8)
#define UNITS CEIL_DIV(CB, UNIT)  // of a pixel
#define PIXEL (UNITS | 1)         // an odd distance of pixels avoids bank conflicts
#define RUN (UNITS == PIXEL ? KW * UNITS : UNITS)  // units that follow each other in memory for one row of a kernel
#define RUNS (UNITS == PIXEL ? 1 : KW)
#define STEPS CEIL_DIV(CEIL_DIV(RUN, 2), RUNS == 1 ? SPLIT : 1)  // of a part in a run; several runs are shared whole
#define YH (RH * SIDE + KH - 1)   // the part of a picture that a block needs
#define YW (RW * SIDE + KW - 1)
#define KERNEL_ROW ((OUTER * KW * UNITS) | 1)
#define PICTURE_UNITS (IMAGES * YH * YW * PIXEL)
#define STAGED_UNITS (PICTURE_UNITS + BLOCK_RESULTS * KERNEL_ROW + 1)  // a run of odd length is read one unit too far
#define SUM_UNITS ((SPLIT - 1) * 32 * WP * WO * MT * NT)
#define SHARED_UNITS (STAGED_UNITS > SUM_UNITS ? STAGED_UNITS : SUM_UNITS)
#define SQUARES (2 * MT / (SIDE * SIDE))  // eights of squares of a warp

// Rows outer0 and following of the kernels for results r0 and following, channels s0 and following.
static __device__ __forceinline__ void stage_kernels(const float* weight, int r0, int s0, int outer0, uint4* kernels)
{
#pragma unroll 2
    for (int at = threadIdx.x; at < BLOCK_RESULTS * UNITS * OUTER * KW; at += THREADS) {
        int tap = at % (OUTER * KW), unit = at / (OUTER * KW) % UNITS, r = at / (OUTER * KW * UNITS);
        int s = s0 + unit * UNIT, count = r0 + r < RESULTS && outer0 * KW + tap < K ? min(SUMMED, s0 + CB) - s : 0;
        kernels[r * KERNEL_ROW + tap * UNITS + unit] =
            unit_of(weight + KERNEL(r0 + r, s, outer0 * KW + tap), KERNEL(0, 1, 0) - KERNEL(0, 0, 0), count);
    }
}

struct Place { int image, row, col; };  // of a square: its image in the block, its row and column in the region

// Square r of this lane, of eight lanes g one has each. false if the block has no such square.
static __device__ __forceinline__ bool find_square(int r, int g, Place* place)
{
    int square = (WARP / WO * SQUARES + r) * 8 + g;
    bool there = square < IMAGES * RH * RW;
    if (!there) square = 0;
    place->image = square / (RH * RW), place->row = square / RW % RH, place->col = square % RW;
    return there;
}

// For the unit of A of which this lane gives the address: the upper left of its pixels in `pictures`.
static __device__ __forceinline__ void find_pixels(const uint4* pictures, const uint4* pixel[MT])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        int group = 2 * m + lane / 8 % 2, r = min(group / (SIDE * SIDE), SQUARES - 1), q = group % (SIDE * SIDE);
        Place place;
        find_square(r, lane % 8, &place);
        int i = place.row * SIDE + q / SIDE, j = place.col * SIDE + q % SIDE;
        pixel[m] = pictures + ((place.image * YH + i) * YW + j) * PIXEL + lane / 16;
    }
}

// The rows of this warp's positions, in the region: a range. All, if there are several images.
static __device__ __forceinline__ void find_rows(int* first, int* last)
{
    int square = WARP / WO * SQUARES * 8;
    *first = IMAGES == 1 ? square / RW : 0;
    *last = IMAGES == 1 ? min((square + SQUARES * 8 - 1) / RW, RH - 1) : RH - 1;
}

// Adds what rows from <= i < to of the kernels contribute, of which `kernels` has those from `staged` on.
static __device__ __forceinline__ void correlate(
    const uint4* const pixel[MT], const uint4* kernels, int staged, int from, int to, float sum[MT][NT][4])
{
    int lane = threadIdx.x % 32, part = SPLIT == 1 ? 0 : PART;
    int part_pixels = part * (RUNS == 1 ? STEPS * 2 : PIXEL), part_kernels = part * (RUNS == 1 ? STEPS * 2 : RUN);
    const uint4* single =  // for one eight of results
        kernels + (WARP % WO * NT * 8 + lane % 8) * KERNEL_ROW + lane / 8 % 2 + part_kernels;
    const uint4* kernel = single + lane / 16 * 8 * KERNEL_ROW;  // for two
#pragma unroll 1
    for (int i = from; i < to; ++i) {
        int pixels_at = i * YW * PIXEL + part_pixels, kernels_at = (i - staged) * KW * UNITS;
#pragma unroll
        for (int step = 0; step < CEIL_DIV(RUNS, RUNS == 1 ? 1 : SPLIT) * STEPS; ++step) {
            int run = step / STEPS * SPLIT, u = step % STEPS * 2;  // of part 0
            int left = RUNS == 1 ? RUN - part * (STEPS * 2) - u : run + part < RUNS ? RUN - u : 0;
            bool surely = RUNS == 1 ? RUN - (SPLIT - 1) * (STEPS * 2) - u >= 2 : run + SPLIT - 1 < RUNS;
            if (!surely && left < 1) continue;
            unsigned a[MT][4], b[(NT + 1) / 2][4];
#pragma unroll
            for (int m = 0; m < MT; ++m) load_units<4>(a[m], pixel[m] + pixels_at + run * PIXEL + u);
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                int at = kernels_at + n * 8 * KERNEL_ROW + run * RUN + u;
                if (n + 1 < NT) load_units<4>(b[n / 2], kernel + at);
                else load_units<2>(b[n / 2], single + at);
            }
            bool both = surely || left > 1;
#pragma unroll
            for (int m = 0; m < MT; ++m)
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    if (both) multiply(sum[m][n], a[m], b[n / 2] + n % 2 * 2);
                    else multiply_one(sum[m][n], a[m], b[n / 2] + n % 2 * 2);
        }
    }
}

// Adds the sums of the other parts to those of part 0. All threads of the block call it.
static __device__ __forceinline__ void add_parts(float* shared, float sum[MT][NT][4])
{
    if (SPLIT == 1) return;
    const int numbers = MT * NT * 4, threads = 32 * WP * WO;
    float* mine = shared + threadIdx.x % threads;
    __syncthreads();
#pragma unroll
    for (int e = 0; e < numbers; ++e)
        if (PART > 0) mine[((PART - 1) * numbers + e) * threads] = sum[e / 4 / NT][e / 4 % NT][e % 4];
    __syncthreads();
    if (PART > 0) return;
#pragma unroll
    for (int e = 0; e < numbers; ++e)
#pragma unroll
        for (int part = 1; part < SPLIT; ++part)
            sum[e / 4 / NT][e / 4 % NT][e % 4] += mine[((part - 1) * numbers + e) * threads];
}
