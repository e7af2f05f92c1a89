// Products of the factors of factors.cuh on tensor cores.
//
// Numbers are rounded to float16 when a lane takes them to its registers. So these kernels take the place of those in
// float32, with the same arguments. For small gradients see mixed_precision.cu.
//
// A block has 8 warps: TM / 16 times TN / 16 of them have 16 x 16 results each; PARTS share the steps of a chunk.

#include "mma.cuh"

struct Sums {
    static const int ROWS = TM / 16, COLUMNS = TN / 16, PARTS = 8 / (ROWS * COLUMNS);
    static const int STEP = 16;  // of the sum, in one instruction
    float sum[2][4] = {};

    static __device__ __forceinline__ int part() { return threadIdx.x / 32 % PARTS; }
    static __device__ __forceinline__ int row() { return threadIdx.x / 32 / PARTS % ROWS * 16; }
    static __device__ __forceinline__ int column() { return threadIdx.x / 32 / (PARTS * ROWS) * 16; }

    // A word: elements (i, k) and (i, k + 4). The order of steps within an instruction is ours to choose, as long as it
    // is the same for both factors.
    template <class F>
    static __device__ __forceinline__ unsigned word(const float* shared, int i, int k)
    {
        float value[2];
#pragma unroll
        for (int p = 0; p < 2; ++p) value[p] = shared[F::place(i, k + 4 * p)];  // so written, it takes fewer registers
        return pack(value[0], value[1]);
    }

    template <class A, class B>
    __device__ __forceinline__ void add(const float* a, const float* b)
    {
        int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int step = 0; step < CHUNK / STEP; step += PARTS) {
            int k = (step + part()) * STEP + t;
            unsigned in_a[4], in_b[2][2];
#pragma unroll
            for (int e = 0; e < 4; ++e) in_a[e] = word<A>(a, row() + g + e % 2 * 8, k + e / 2 * (STEP / 2));
#pragma unroll
            for (int e = 0; e < 4; ++e) in_b[e / 2][e % 2] = word<B>(b, column() + g + e / 2 * 8, k + e % 2 * (STEP / 2));
            multiply(sum[0], in_a, in_b[0]);
            multiply(sum[1], in_a, in_b[1]);
        }
    }

    template <class A, class B>
    __device__ __forceinline__ void leave(float* shared) const
    {
        int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int e = 0; e < 8; ++e) {
            int i = row() + g + e / 2 % 2 * 8, j = column() + e / 4 * 8 + t * 2 + e % 2;
            shared[(part() * TM + i) * TN + j] = sum[e / 4][e % 4];
        }
    }
};
