// A tile of a matrix product, for dense.cu: how its factors come to shared memory.
//
//   sum over k of a(i, k) * b(k, j), for TM rows i and TN columns j
//
// Factors come as they are in global memory, float32, and asynchronously from compute capability 8.0 on: CHUNK steps k at
// a time, of which there is room for STAGES, so that STAGES - 1 are on their way while one is multiplied. How it is
// multiplied, `Sums` knows, of multiply_add.cuh or of tensor_cores.cuh: `add` takes a chunk, `leave` puts a thread's sums
// into shared memory. The threads of a block are PARTS groups that share the steps of a chunk.

#include "async_copy.cuh"

#define THREADS 256

// A factor, SIZE across the sum: element (i, k) is values[i * STEP_I + k * STEP_K] for i < size, else 0. What lies side
// by side in global memory does so in shared memory, too, in rows that begin at different banks. GATED: where gate, of
// the same shape, is not positive, elements are 0. ONES: row i = size is all ones.
template <int ACROSS_SUM, int STEP_I, int STEP_K, bool GATED, bool ONES = false>
struct Factor {
    static const int SIZE = ACROSS_SUM;
    static const bool ALONG_SUM = STEP_K == 1;
    static const int ROW = ALONG_SUM ? CHUNK + 4 : SIZE + 8;
    static const int FLOATS = (ALONG_SUM ? SIZE : CHUNK) * ROW;
    static const int ALL_FLOATS = FLOATS * (1 + GATED);
    static const int WIDTH = ALONG_SUM ? CHUNK : SIZE;  // a thread brings every (THREADS / WIDTH)th element of a column
    const float *values, *gate;
    int first, size;

    static __device__ __forceinline__ int place(int i, int k) { return ALONG_SUM ? i * ROW + k : k * ROW + i; }

    // Where the first element is that a thread brings, and how far from it the e-th one.
    static __device__ __forceinline__ int my_i() { return ALONG_SUM ? threadIdx.x / WIDTH : threadIdx.x % WIDTH; }
    static __device__ __forceinline__ int my_k() { return ALONG_SUM ? threadIdx.x % WIDTH : threadIdx.x / WIDTH; }
    static __device__ __forceinline__ int step_i(int e) { return ALONG_SUM ? e * (THREADS / WIDTH) : 0; }
    static __device__ __forceinline__ int step_k(int e) { return ALONG_SUM ? 0 : e * (THREADS / WIDTH); }

    // Steps k0 <= k < k0 + CHUNK, those that are less than K.
    __device__ __forceinline__ void bring(float* shared, int k0, int K) const
    {
        int from = (first + my_i()) * STEP_I + (k0 + my_k()) * STEP_K;
        Shared to = address(shared + place(my_i(), my_k()));
#pragma unroll
        for (int e = 0; e < SIZE * CHUNK / THREADS; ++e) {
            int i = step_i(e), k = step_k(e);
            bool there = first + my_i() + i < size && k0 + my_k() + k < K;
            copy(to, place(i, k), values + from + (i * STEP_I + k * STEP_K), there);
            if (GATED) copy(to, FLOATS + place(i, k), gate + from + (i * STEP_I + k * STEP_K), there);
        }
    }

    // What is left to do with the elements that this thread has brought, when they are there.
    __device__ __forceinline__ void finish(float* shared) const
    {
        if constexpr (GATED || ONES) {
            if (!GATED && first + SIZE <= size) return;
#pragma unroll
            for (int e = 0; e < SIZE * CHUNK / THREADS; ++e) {
                float* element = shared + place(my_i() + step_i(e), my_k() + step_k(e));
                if (GATED && !(element[FLOATS] > 0.0f)) *element = 0.0f;
                if (ONES && first + my_i() + step_i(e) == size) *element = 1.0f;
            }
        }
    }
};

// The product, for 0 <= k < K: to `shared`, where `total` finds it.
template <class Sums, class A, class B>
static __device__ __forceinline__ void product(const A& a, const B& b, int K, float* shared)
{
    const int stage = A::ALL_FLOATS + B::ALL_FLOATS, chunks = (K + CHUNK - 1) / CHUNK;
    Sums sums;
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
        a.finish(here), b.finish(here + A::ALL_FLOATS);
        __syncthreads();  // chunk c is there, and nobody reads chunk c - 1 any more
        bring(c + STAGES - 1, to);
        to = to + stage < end ? to + stage : shared;
        sums.template add<A, B>(here, here + A::ALL_FLOATS);
        here = here + stage < end ? here + stage : shared;
    }
    __syncthreads();
    sums.template leave<A, B>(shared);
    __syncthreads();
}

// Element (i, j) of the product: the sums of the groups added, in a fixed order.
template <class Sums>
static __device__ __forceinline__ float total(const float* shared, int i, int j)
{
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < Sums::PARTS; ++part) sum += shared[(part * TM + i) * TN + j];
    return sum;
}
