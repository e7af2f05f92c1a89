// Winograd's method: what winograd_weights.cu, winograd_forward.cu, winograd_input_grad.cu and winograd_weight_grad.cu
// share.
//
// In one dimension, m outputs of a kernel of r taps are y = A^T [(G g) * (B^T x)], with t = m + r - 1 multiplications
// instead of m*r (Winograd 1980; in two dimensions and for neural networks Lavin and Gray 2016). The method, and where
// the three matrices come from, is told in layers/winograd.py; they arrive here as macros. In two dimensions, for a
// tile of MH x MW outputs with its TH x TW inputs, a kernel g and all POINTS = TH*TW points f on their own:
//
//   U = G g G^T       V = B^T x B       M[o][f] = sum_c U[o,c][f] * V[c][f]       z = A^T M A
//
// and backward, each of these transposed: with D = A dz A^T
//
//   dV[c][f] = sum_o U[o,c][f] * D[o][f]                                          dx = B dV B^T, tiles overlap
//   dU[o,c][f] = sum over tiles of D[o][f] * V[c][f]                              dg = G^T dU G
//
// The middle is POINTS matrix products. Where the sum is over channels it is done with `multiply` below.
// LeNet's second convolution: MH = MW = 4, TH = TW = 8, 64 multiplications for 16 outputs instead of 400.
//
// Macros: C O H W KH KW S MAX_POOL RELU as in conv_forward.cu; MH MW, multiples of S;
// A_H A_W (t, m), G_H G_W (t, r), BT_H BT_W (t, t): tables in braces. Points: 0, 1, -1, 2, -2, ..., infinity.

#define TH (MH + KH - 1)
#define TW (MW + KW - 1)
#define POINTS (TH * TW)
#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

// The matrices, as functions of row and column: in unrolled loops numbers that the compiler knows, and leaves out if 0.
#define MATRIX(NAME, ROWS, COLUMNS, TABLE)                             \
    struct NAME {                                                      \
        static const int rows = ROWS, columns = COLUMNS;               \
        static __device__ __forceinline__ float at(int i, int j)       \
        {                                                              \
            const float table[ROWS][COLUMNS] = TABLE;                  \
            return table[i][j];                                        \
        }                                                              \
    };
MATRIX(AH, TH, MH, A_H)
MATRIX(AW, TW, MW, A_W)
MATRIX(GH, TH, KH, G_H)
MATRIX(GW, TW, KW, G_W)
MATRIX(BtH, TH, TH, BT_H)
MATRIX(BtW, TW, TW, BT_W)

struct Sum {
    float value;
    bool empty;  // known to the compiler: the first term is not added to 0
};

static __device__ __forceinline__ void add(Sum& sum, float factor, float value)
{
    if (factor == 0.0f) return;
    sum.value = sum.empty ? factor * value : sum.value + factor * value;
    sum.empty = false;
}

// y = R x, where R has a row for each point. Rows of p and -p differ only in the signs of odd columns: even and odd
// columns are summed apart, which halves the multiplications. Steps: how far elements of x and of y lie apart.
template <class R, int STEP_X, int STEP_Y>
static __device__ __forceinline__ void by_rows(const float* x, float* y)
{
    float result[R::rows];
#pragma unroll
    for (int k = 0; k < R::rows; ++k) {
        bool alone = k == 0 || k == R::rows - 1;  // 0 and infinity have no opposite
        if (!alone && k % 2 == 0) continue;
        Sum even = {0.0f, true}, odd = {0.0f, true};
#pragma unroll
        for (int j = 0; j < R::columns; ++j) add(j % 2 && !alone ? odd : even, R::at(k, j), x[j * STEP_X]);
        result[k] = odd.empty ? even.value : even.value + odd.value;
        if (!alone) result[k + 1] = odd.empty ? even.value : even.value - odd.value;
    }
#pragma unroll
    for (int k = 0; k < R::rows; ++k) y[k * STEP_Y] = result[k];
}

// y = R^T x: sums and differences of opposite points, then half the multiplications.
template <class R, int STEP_X, int STEP_Y>
static __device__ __forceinline__ void by_columns(const float* x, float* y)
{
    float in[R::rows], result[R::columns];
#pragma unroll
    for (int k = 0; k < R::rows; ++k) in[k] = x[k * STEP_X];
#pragma unroll
    for (int k = 1; k + 2 < R::rows; k += 2) {
        float one = in[k], other = in[k + 1];
        in[k] = one + other, in[k + 1] = one - other;
    }
#pragma unroll
    for (int j = 0; j < R::columns; ++j) {
        Sum sum = {0.0f, true};
#pragma unroll
        for (int k = 0; k < R::rows; ++k) {
            bool alone = k == 0 || k == R::rows - 1;
            if (alone) add(sum, R::at(k, j), in[k]);
            else if (k % 2) add(sum, R::at(k, j), in[k + j % 2]);
        }
        result[j] = sum.value;
    }
#pragma unroll
    for (int j = 0; j < R::columns; ++j) y[j * STEP_Y] = result[j];
}

#define SQUARES ((MH / S) * (MW / S))  // of a tile

// D = A dz A^T for a tile of dz in squares, unpooled from gradients and masks.
__device__ __forceinline__ void transform_gradient(
    const float gradient[SQUARES], const unsigned bits[SQUARES], float values[POINTS])
{
    float dz[MH][MW], half[TH][MW];
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
    for (int i = 0; i < TH; ++i) by_rows<AW, 1, 1>(half[i], values + i * TW);
}

#ifdef RO
// The product. A block has 16 tiles and PART = Q*RO output channels (for the gradient, channels of the input); a thread
// has one point, RO of the channels and 8 of the tiles, RO * 8 sums. Macros: Q, RO, CB, DEPTH.
//
//   u    [part][k][channel of the part][point], in global memory: winograd_weights.cu made it in the order in which a
//        block reads it. Two threads need each number; it is loaded into registers two steps ahead of its use.
//   v_s  [k][point][16 tiles] in shared memory, CB channels k at a time.
//
// Threads: points first, then the two halves of the tiles, then Q.
#define TILES 16
#define PART (Q * RO)
#define THREADS (POINTS * 2 * Q)
#define PLANE (POINTS * TILES + 16)  // of v_s, in floats; 16 more, for channels to begin at different banks

// Where tile `tile` of point f is in a plane: vectors of 4 tiles change places so that the 8 threads which load them at
// the same time, for 8 points, find them in 8 different groups of banks.
static __device__ __forceinline__ int place(int f, int tile)
{
    return f * TILES + ((tile / 4 ^ f / 2 % 4) * 4 | tile % 4);
}

// What a thread has of u in registers: the numbers of the next DEPTH steps, since the second-level cache takes several
// hundred cycles to answer. DEPTH is CB, so that each step makes room for that of the next chunk, or less. It may read
// CB steps beyond the end, for which u has room.

static __device__ __forceinline__ const float* my_u(const float* u, int part, int K)
{
    return u + (part * K * PART + threadIdx.x / (2 * POINTS)) * POINTS + threadIdx.x % POINTS;
}

static __device__ __forceinline__ void load(const float* u, int k, float numbers[RO])
{
#pragma unroll
    for (int r = 0; r < RO; ++r) numbers[r] = u[(k * PART + r * Q) * POINTS];
}

// The first steps of a chunk: best long before `multiply`. With DEPTH = CB only of the first chunk.
static __device__ __forceinline__ void load_first(const float* u, float ahead[DEPTH][RO])
{
#pragma unroll
    for (int k = 0; k < DEPTH; ++k) load(u, k, ahead[k]);
}

// Where a thread's vectors of v_s are: the first of a step is at [0], the second at `second_vector()`.
static __device__ __forceinline__ int first_vector()
{
    return place(threadIdx.x % POINTS, threadIdx.x / POINTS % 2 * 8);
}
static __device__ __forceinline__ int second_vector()
{
    return place(threadIdx.x % POINTS, threadIdx.x / POINTS % 2 * 8 + 4);
}

// sum[r][i] += sum over k < count of u(k) * v(k): a chunk. All places in registers are known to the compiler, so that
// no number that is still on its way is ever moved.
static __device__ __forceinline__ void multiply(
    const float* u, float ahead[DEPTH][RO], const float* first, const float* second, int count,
    float sum[RO][8])
{
    float4 v[2][2];
    v[0][0] = *(const float4*)first, v[0][1] = *(const float4*)second;
#pragma unroll
    for (int k = 0; k < CB; ++k) {
        if (k >= count) break;
        if (k + 1 < CB) {
            v[(k + 1) % 2][0] = *(const float4*)(first + (k + 1) * PLANE);
            v[(k + 1) % 2][1] = *(const float4*)(second + (k + 1) * PLANE);
        }
        float4 a = v[k % 2][0], b = v[k % 2][1];
        float value[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
        for (int r = 0; r < RO; ++r)
#pragma unroll
            for (int i = 0; i < 8; ++i) sum[r][i] += ahead[k % DEPTH][r] * value[i];
        if (DEPTH == CB || k + DEPTH < CB) load(u, k + DEPTH, ahead[k % DEPTH]);
    }
}

// After the product its sums change hands through shared memory: a row there has all points of one channel and tile.
// ROUND of a thread's RO channels at a time. Channels of a round: slot s = r*Q + q.
#define ROWS (CEIL_DIV(ROUND * Q, 2) * 32)
#define EXCHANGE (ROWS * (POINTS | 1) + ROWS / 32)  // floats of shared memory

// Where the row of a slot and a tile begins. Neighbouring rows lie an odd number of floats apart.
static __device__ __forceinline__ int row_of(int slot, int tile)
{
    int row = (slot / 2 * 2 + tile / 8) * 16 + slot % 2 * 8 + tile % 8;
    return row * (POINTS | 1) + slot / 2;
}

static __device__ __forceinline__ void exchange(const float sum[RO][8], int round, float* m_s)
{
    int f = threadIdx.x % POINTS, half = threadIdx.x / POINTS % 2, q = threadIdx.x / (2 * POINTS);
#pragma unroll
    for (int r = 0; r < RO; ++r)
        if (round * ROUND <= r && r < round * ROUND + ROUND) {
            float* row = m_s + row_of(r % ROUND * Q + q, half * 8) + f;
#pragma unroll
            for (int i = 0; i < 8; ++i) row[i * (POINTS | 1)] = sum[r][i];
        }
}
#endif
