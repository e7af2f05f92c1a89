// A tile of a matrix product on tensor cores, for dense_tensor_cores.cu.
//
// Arrays in global memory stay float32: numbers are rounded, to what TYPE of mma.cuh says, on their way to shared
// memory. So these kernels take the place of those in float32, with the same arguments. For small gradients in float16
// see mixed_precision.cu.
//
// Macros TM, TN: the tile, in multiples of 16. WARPS: the warps of a block. All work on the same tile: of every chunk
// of the sum each takes PASSES steps, and at the end the warps' sums are added in a fixed order. A thread loads all its
// numbers of a chunk before it stores the first: so many loads are under way that few chunks are waited for.

#include "mma.cuh"

#define THREADS (32 * WARPS)
#define STEP (2 * UNIT)                // of the sum, in one instruction
#define CHUNK (STEP * WARPS * PASSES)  // steps of the sum in shared memory at a time
#define WORDS (CHUNK / PER_WORD)       // of a row: a power of 2, at most THREADS
#define ROW (WORDS + 4)                // an odd number of units avoids bank conflicts
#define FACTOR_WORDS ((TM + TN) * ROW)
#define TILE_WORDS (FACTOR_WORDS > WARPS * TM * TN ? FACTOR_WORDS : WARPS * TM * TN)

// A chunk of a factor on its way to shared memory. Factors are objects: factor(i, k) is an element, i < SIZE across the
// tile, k along the sum; Factor::ALONG_SUM says that neighbours along the sum are neighbours in global memory. Those
// are read by neighbouring threads; if not, a warp reads eight i of four words, and writes them to 32 banks.
template <int SIZE, class Factor>
struct Chunk {
    static const int LOADS = SIZE * WORDS / THREADS;  // by one thread
    float value[LOADS][PER_WORD];

    static __device__ __forceinline__ int row(int load)
    {
        if (Factor::ALONG_SUM) return threadIdx.x / WORDS + load * (THREADS / WORDS);
        return threadIdx.x % 8 + threadIdx.x / 32 % (SIZE / 8) * 8;
    }

    static __device__ __forceinline__ int word(int load)
    {
        if (Factor::ALONG_SUM) return threadIdx.x % WORDS;
        return threadIdx.x / 8 % 4 + threadIdx.x / (4 * SIZE) * 4 + load * (THREADS / SIZE);
    }

    __device__ __forceinline__ void load(const Factor& factor, int k0, int K)
    {
#pragma unroll
        for (int load = 0; load < LOADS; ++load)
#pragma unroll
            for (int p = 0; p < PER_WORD; ++p) {
                int k = k0 + word(load) * PER_WORD + p;
                value[load][p] = k < K ? factor(row(load), k) : 0.0f;
            }
    }

    __device__ __forceinline__ void store(unsigned* shared) const
    {
#pragma unroll
        for (int load = 0; load < LOADS; ++load) shared[row(load) * ROW + word(load)] = pack(value[load]);
    }
};

// sum_k a(i, k) b(j, k) for 0 <= k < K, all i < TM, j < TN. tile: TILE_WORDS of shared memory; read it with `total`.
template <class FactorA, class FactorB>
static __device__ __forceinline__ void product(const FactorA& a, const FactorB& b, int K, unsigned* tile)
{
    unsigned *a_s = tile, *b_s = tile + TM * ROW;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The units of which this lane gives the addresses: of a rows 0 to 15 by unit, of b unit 0 and 1 by eight columns.
    const unsigned* from_a = a_s + (lane % 16) * ROW + (warp * 2 + lane / 16) * 4;
    const unsigned* from_b = b_s + (lane % 8 + lane / 16 * 8) * ROW + (warp * 2 + lane / 8 % 2) * 4;
    float sum[TM / 16][TN / 8][4] = {};
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        Chunk<TM, FactorA> chunk_a;
        Chunk<TN, FactorB> chunk_b;
        chunk_a.load(a, k0, K);
        chunk_b.load(b, k0, K);
        if (k0 > 0) __syncthreads();  // all have read what was there
        chunk_a.store(a_s);
        chunk_b.store(b_s);
        __syncthreads();
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass) {
            unsigned fa[TM / 16][4], fb[TN / 16][4];
#pragma unroll
            for (int i = 0; i < TM / 16; ++i) load_units<4>(fa[i], from_a + i * 16 * ROW + pass * WARPS * 8);
#pragma unroll
            for (int j = 0; j < TN / 16; ++j) load_units<4>(fb[j], from_b + j * 16 * ROW + pass * WARPS * 8);
#pragma unroll
            for (int i = 0; i < TM / 16; ++i)
#pragma unroll
                for (int j = 0; j < TN / 8; ++j) multiply(sum[i][j], fa[i], fb[j / 2] + j % 2 * 2);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TM / 16; ++i)
#pragma unroll
        for (int j = 0; j < TN / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                int row = i * 16 + lane / 4 + e / 2 * 8, column = j * 8 + lane % 4 * 2 + e % 2;
                ((float*)tile)[(warp * TM + row) * TN + column] = sum[i][j][e];
            }
    __syncthreads();
}

// Element (i, j) of the product: the warps' sums added.
static __device__ __forceinline__ float total(const unsigned* tile, int i, int j)
{
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) sum += ((const float*)tile)[(warp * TM + i) * TN + j];
    return sum;
}
