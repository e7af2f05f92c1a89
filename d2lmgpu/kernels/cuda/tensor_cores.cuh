// A tile of a matrix product on tensor cores: what conv_tensor_cores.cu and dense_tensor_cores.cu share.
//
// A tensor core multiplies small matrices, 16 × 16 × 16, in one instruction of a whole warp. The factors have fewer
// bits than float32; the sums are float32. Macro TYPE:
//   0  tf32      8 bits exponent, 10 bits fraction, kept as float32; from sm_80
//   1  float16   5 bits exponent, 10 bits fraction: below 6e-8 everything is 0, above 65504 infinite; from sm_70
//   2  bfloat16  8 bits exponent,  7 bits fraction; from sm_80
// Arrays in global memory stay float32: numbers are rounded on their way to shared memory. So these kernels take the
// place of those in float32, with the same arguments. For small gradients in float16 see mixed_precision.cu.
//
// Macros TM, TN: the tile, in multiples of 16. WARPS: the warps of a block. All work on the same tile: each takes every
// WARPS-th step of the sum, and at the end the warps' sums are added in a fixed order.
//
// Source of the interface: CUDA C++ Programming Guide, "Warp Matrix Functions".

#ifdef __CUDACC__
#include <mma.h>
#if TYPE == 1
#include <cuda_fp16.h>
#elif TYPE == 2
#include <cuda_bf16.h>
#endif
#endif

using namespace nvcuda;

#if TYPE == 0
typedef float Element;
typedef wmma::precision::tf32 Precision;
#define STEP 8   // of the sum, in one instruction
#define ALIGN 4  // rows in shared memory begin at multiples of 16 bytes
static __device__ __forceinline__ Element rounded(float value) { return wmma::__float_to_tf32(value); }
#elif TYPE == 1
typedef half Element;
typedef half Precision;
#define STEP 16
#define ALIGN 8
static __device__ __forceinline__ Element rounded(float value) { return __float2half(value); }
#else
typedef __nv_bfloat16 Element;
typedef __nv_bfloat16 Precision;
#define STEP 16
#define ALIGN 8
static __device__ __forceinline__ Element rounded(float value) { return __float2bfloat16(value); }
#endif

#define THREADS (32 * WARPS)
#define CHUNK (STEP * WARPS)  // steps of the sum in shared memory at a time
#define SHARED_A (TM * (CHUNK + ALIGN) > CHUNK * (TM + ALIGN) ? TM * (CHUNK + ALIGN) : CHUNK * (TM + ALIGN))
#define SHARED_B (TN * (CHUNK + ALIGN) > CHUNK * (TN + ALIGN) ? TN * (CHUNK + ALIGN) : CHUNK * (TN + ALIGN))
#define SHARED_BYTES ((SHARED_A + SHARED_B) * (int)sizeof(Element))
#define SUM_BYTES (WARPS * TM * TN * 4)
#define TILE_FLOATS ((SHARED_BYTES > SUM_BYTES ? SHARED_BYTES : SUM_BYTES) / 4)

// Rounds a chunk of a factor into shared memory. Factors are objects: factor(i, k) is an element, i < SIZE across the
// tile, k along the sum; Factor::ALONG_SUM says that neighbours along the sum are neighbours in global memory. Those
// are read by neighbouring threads, and are neighbours in shared memory too.
template <int SIZE, class Factor>
static __device__ __forceinline__ void stage(const Factor& factor, int k0, int K, Element* shared)
{
    for (int at = threadIdx.x; at < SIZE * CHUNK; at += THREADS) {
        int i = Factor::ALONG_SUM ? at / CHUNK : at % SIZE, k = Factor::ALONG_SUM ? at % CHUNK : at / SIZE;
        int place = Factor::ALONG_SUM ? i * (CHUNK + ALIGN) + k : k * (SIZE + ALIGN) + i;
        shared[place] = rounded(k0 + k < K ? factor(i, k0 + k) : 0.0f);
    }
}

template <bool> struct Layout { typedef wmma::row_major A; typedef wmma::col_major B; };  // along the sum
template <> struct Layout<false> { typedef wmma::col_major A; typedef wmma::row_major B; };

// Σ_k a(i, k) · b(j, k) for 0 ≤ k < K, all i < TM, j < TN. tile: TILE_FLOATS of shared memory; read it with `total`.
template <class FactorA, class FactorB>
static __device__ __forceinline__ void product(const FactorA& a, const FactorB& b, int K, float* tile)
{
    Element *a_s = (Element*)tile, *b_s = a_s + SHARED_A;
    int warp = threadIdx.x / 32;
    wmma::fragment<wmma::accumulator, 16, 16, STEP, float> sum[TM / 16][TN / 16];
#pragma unroll
    for (int i = 0; i < TM / 16; ++i)
#pragma unroll
        for (int j = 0; j < TN / 16; ++j) wmma::fill_fragment(sum[i][j], 0.0f);

    const int a_row = FactorA::ALONG_SUM ? CHUNK + ALIGN : TM + ALIGN, a_k = FactorA::ALONG_SUM ? 1 : a_row;
    const int b_row = FactorB::ALONG_SUM ? CHUNK + ALIGN : TN + ALIGN, b_k = FactorB::ALONG_SUM ? 1 : b_row;
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        stage<TM>(a, k0, K, a_s);
        stage<TN>(b, k0, K, b_s);
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, STEP, Precision, typename Layout<FactorA::ALONG_SUM>::A> fa[TM / 16];
        wmma::fragment<wmma::matrix_b, 16, 16, STEP, Precision, typename Layout<FactorB::ALONG_SUM>::B> fb;
#pragma unroll
        for (int i = 0; i < TM / 16; ++i)
            wmma::load_matrix_sync(fa[i], a_s + warp * STEP * a_k + i * 16 * (a_k == 1 ? a_row : 1), a_row);
#pragma unroll
        for (int j = 0; j < TN / 16; ++j) {
            wmma::load_matrix_sync(fb, b_s + warp * STEP * b_k + j * 16 * (b_k == 1 ? b_row : 1), b_row);
#pragma unroll
            for (int i = 0; i < TM / 16; ++i) wmma::mma_sync(sum[i][j], fa[i], fb, sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < TM / 16; ++i)
#pragma unroll
        for (int j = 0; j < TN / 16; ++j)
            wmma::store_matrix_sync(tile + (warp * TM + i * 16) * TN + j * 16, sum[i][j], TN, wmma::mem_row_major);
    __syncthreads();
}

// Element (i, j) of the product: the warps' sums added.
static __device__ __forceinline__ float total(const float* tile, int i, int j)
{
    float sum = 0.0f;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) sum += tile[(warp * TM + i) * TN + j];
    return sum;
}
