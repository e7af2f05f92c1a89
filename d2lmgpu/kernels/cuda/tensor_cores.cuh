// A tile of a matrix product on tensor cores, for dense_tensor_cores.cu.
//
//   sum over k of a(i, k) * b(k, j), for TM rows i and TN columns j
//
// Factors come to shared memory as they are in global memory, float32, asynchronously: CHUNK steps k at a time, of which
// there is room for STAGES, so that STAGES - 1 are on their way while one is multiplied. Numbers are rounded, to what
// TYPE of mma.cuh says, when a lane takes them to its registers. So these kernels take the place of those in float32,
// with the same arguments. For small gradients in float16 see mixed_precision.cu.
//
// A block has 8 warps: TM / 16 times TN / 16 of them have 16 x 16 results each; WARPS_K share the steps of a chunk, and
// at the end their sums are added in a fixed order.

#include "async_copy.cuh"
#include "mma.cuh"

#define THREADS 256
#define WARPS_M (TM / 16)
#define WARPS_N (TN / 16)
#define WARPS_K (8 / (WARPS_M * WARPS_N))
#define STEP (8 * PER_WORD)  // of the sum, in one instruction

// A factor, SIZE across the sum: element (i, k) is values[i * STEP_I + k * STEP_K] for i < size, else 0. What lies side
// by side in global memory does so in shared memory, too, in rows that begin at different banks. GATED: where gate, of
// the same shape, is not positive, elements are 0. ONES: row i = size is all ones.
template <int SIZE, int STEP_I, int STEP_K, bool GATED, bool ONES = false>
struct Factor {
    static const bool ALONG_SUM = STEP_K == 1;
    static const int ROW = ALONG_SUM ? CHUNK + 4 : SIZE + 8;
    static const int FLOATS = (ALONG_SUM ? SIZE : CHUNK) * ROW;
    static const int ALL_FLOATS = FLOATS * (1 + GATED);
    const float *values, *gate;
    int first, size;

    static __device__ __forceinline__ int place(int i, int k) { return ALONG_SUM ? i * ROW + k : k * ROW + i; }

    // Steps k0 <= k < k0 + CHUNK, those that are less than K.
    __device__ __forceinline__ void bring(float* shared, int k0, int K) const
    {
        const int across = ALONG_SUM ? CHUNK : SIZE, rows = THREADS / across;  // a thread stays in one column
        int column = threadIdx.x % across, row = threadIdx.x / across;
        int i0 = ALONG_SUM ? row : column, k0_mine = k0 + (ALONG_SUM ? column : row);
        int from = (first + i0) * STEP_I + k0_mine * STEP_K;
        Shared to = address(shared + place(i0, k0_mine - k0));
#pragma unroll
        for (int e = 0; e < SIZE * CHUNK / THREADS; ++e) {
            int i = ALONG_SUM ? e * rows : 0, k = ALONG_SUM ? 0 : e * rows;
            bool there = first + i0 + i < size && k0_mine + k < K;
            copy(to, place(i, k), values + from + (i * STEP_I + k * STEP_K), there);
            if (GATED) copy(to, FLOATS + place(i, k), gate + from + (i * STEP_I + k * STEP_K), there);
        }
    }

    // Four bytes of a register: element (i, k), and with 16 bits (i, k + 4). The order of steps within an instruction is
    // ours to choose, as long as it is the same for both factors.
    __device__ __forceinline__ unsigned word(const float* shared, int i, int k) const
    {
        float value[PER_WORD];
#pragma unroll
        for (int p = 0; p < PER_WORD; ++p) {
            int at = place(i, k + 4 * p);
            value[p] = GATED && !(shared[FLOATS + at] > 0.0f) ? 0.0f : shared[at];
            if (ONES && first + i == size) value[p] = 1.0f;
        }
        return pack(value);
    }
};

// The product, for 0 <= k < K: to `shared`, where `total` finds it.
template <class A, class B>
static __device__ __forceinline__ void product(const A& a, const B& b, int K, float* shared)
{
    const int stage = A::ALL_FLOATS + B::ALL_FLOATS, chunks = (K + CHUNK - 1) / CHUNK;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int row = warp / WARPS_K % WARPS_M * 16, column = warp / (WARPS_K * WARPS_M) * 16, part = warp % WARPS_K;
    float sum[2][4] = {};
    auto bring = [&](int c, float* to) {
        if (c < chunks) a.bring(to, c * CHUNK, K), b.bring(to + A::ALL_FLOATS, c * CHUNK, K);
        end_of_group();
    };
#pragma unroll
    for (int c = 0; c < STAGES - 1; ++c) bring(c, shared + c * stage);
    float *here = shared, *to = shared + (STAGES - 1) * stage, *end = shared + STAGES * stage;
#pragma unroll 1
    for (int c = 0; c < chunks; ++c) {
        wait_for_groups<STAGES - 2>();
        __syncthreads();  // chunk c is there, and nobody reads chunk c - 1 any more
        bring(c + STAGES - 1, to);
        to = to + stage < end ? to + stage : shared;
#pragma unroll
        for (int step = 0; step < CHUNK / STEP; step += WARPS_K) {
            int k = (step + part) * STEP + t;
            unsigned in_a[4], in_b[2][2];
#pragma unroll
            for (int e = 0; e < 4; ++e) in_a[e] = a.word(here, row + g + e % 2 * 8, k + e / 2 * (STEP / 2));
#pragma unroll
            for (int e = 0; e < 4; ++e)
                in_b[e / 2][e % 2] = b.word(here + A::ALL_FLOATS, column + g + e / 2 * 8, k + e % 2 * (STEP / 2));
            multiply(sum[0], in_a, in_b[0]);
            multiply(sum[1], in_a, in_b[1]);
        }
        here = here + stage < end ? here + stage : shared;
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < 8; ++e) {
        int i = row + g + e / 2 % 2 * 8, j = column + e / 4 * 8 + t * 2 + e % 2;
        shared[(part * TM + i) * TN + j] = sum[e / 4][e % 4];
    }
    __syncthreads();
}

// Element (i, j) of the product: the sums of WARPS_K warps added.
static __device__ __forceinline__ float total(const float* shared, int i, int j)
{
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < WARPS_K; ++part) sum += shared[(part * TM + i) * TN + j];
    return sum;
}
