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
// 16 m + 8 half + g of a warp is pixel q of its square 8 r + g, where 2 m + half = r * SIDE * SIDE + q. By the layout
// of D one lane then has a whole square: eight squares that follow each other are in the eight lanes of one t.
//
// Macros: C O H W KH KW S MAX_POOL RELU; TYPE as in mma.cuh. A block has IMAGES pictures, of each RH x RW squares
// (all, if IMAGES > 1), and WO * NT * 8 results; WP * WO warps. Sums go through CB channels at a time, OUTER rows of
// kernels. The including file defines SIDE, SUMMED and RESULTS (numbers of channels), and where kernels lie:
// KERNEL(r, s, tap).

#include "mma.cuh"

#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)
#define ZW (PW * S)
#define K (KH * KW)

#define THREADS (32 * WP * WO)
#define WARP (threadIdx.x / 32)
#define BOUNDS __launch_bounds__(THREADS, 1)  // more resident blocks would cost spilled registers in some shapes
#define BLOCK_RESULTS (WO * NT * 8)
#define UNITS CEIL_DIV(CB, UNIT)  // of a pixel
#define PIXEL (UNITS | 1)         // an odd distance of pixels avoids bank conflicts
#define RUN (UNITS == PIXEL ? KW * UNITS : UNITS)  // units that follow each other in memory for one row of a kernel
#define RUNS (UNITS == PIXEL ? 1 : KW)
#define STEPS CEIL_DIV(RUN, 2)
#define YH (RH * SIDE + KH - 1)   // the part of a picture that a block needs
#define YW (RW * SIDE + KW - 1)
#define KERNEL_ROW ((OUTER * KW * UNITS) | 1)
#define PICTURE_UNITS (IMAGES * YH * YW * PIXEL)
#define SHARED_UNITS (PICTURE_UNITS + BLOCK_RESULTS * KERNEL_ROW + 1)  // a run of odd length is read one unit too far
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

// For the units of A of which this lane gives the addresses: the upper left of its pixels, a place in the pictures.
static __device__ __forceinline__ void find_pixels(int pixel[MT])
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        int group = 2 * m + lane / 8 % 2, r = min(group / (SIDE * SIDE), SQUARES - 1), q = group % (SIDE * SIDE);
        Place place;
        find_square(r, lane % 8, &place);
        int i = place.row * SIDE + q / SIDE, j = place.col * SIDE + q % SIDE;
        pixel[m] = ((place.image * YH + i) * YW + j) * PIXEL + lane / 16;
    }
}

// Adds what rows from <= i < to of the kernels contribute, of which `kernels` has those from `staged` on.
static __device__ __forceinline__ void correlate(
    const uint4* pictures, const int pixel[MT], const uint4* kernels, int staged, int from, int to,
    float sum[MT][NT][4])
{
    int lane = threadIdx.x % 32;
    const uint4* single = kernels + (WARP % WO * NT * 8 + lane % 8) * KERNEL_ROW + lane / 8 % 2;  // for eight results
    const uint4* kernel = single + lane / 16 * 8 * KERNEL_ROW;                                    // for two eights
#pragma unroll 1
    for (int i = from; i < to; ++i) {
#pragma unroll
        for (int step = 0; step < RUNS * STEPS; ++step) {
            int run = step / STEPS, u = step % STEPS * 2;
            unsigned a[4], b[(NT + 1) / 2][4];
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                int at = n * 8 * KERNEL_ROW + ((i - staged) * RUNS + run) * RUN + u;
                if (n + 1 < NT) load_units<4>(b[n / 2], kernel + at);
                else load_units<2>(b[n / 2], single + at);
            }
#pragma unroll
            for (int m = 0; m < MT; ++m) {
                load_units<4>(a, pictures + pixel[m] + (i * YW + run) * PIXEL + u);
#pragma unroll
                for (int n = 0; n < NT; ++n)
                    if (u + 1 < RUN) multiply(sum[m][n], a, b[n / 2] + n % 2 * 2);
                    else multiply_one(sum[m][n], a, b[n / 2] + n % 2 * 2);
            }
        }
    }
}
