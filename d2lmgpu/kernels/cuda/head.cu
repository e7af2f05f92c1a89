// The head of a network in one kernel: the last dense layer, softmax and cross-entropy, and the way back to its input.
//
//   x (N, D), weight (D, O), bias (O,), labels (N,) int32, count (1,) int32, scale (1,) float32
//   logits (N, O) = x @ weight + bias
//   losses (N,), hits (N,) int32, dlogits (N, O) = scale * d losses / d logits: as in softmax_cross_entropy.cu
//   dx (N, D) = dlogits @ weight^T
//
// Each of these products is tiny (LeNet's: 256 rows, 128 inputs, 10 classes). As three kernels they take most of their
// time for starting, for waiting for the one before, and for reading what it wrote. Here one warp does a row from its
// inputs to their gradients, and nothing but the weights goes through shared memory: lane l owns the inputs
// l, l + 32, ... Its share of each logit is summed over the warp by shuffles, after which all lanes have all logits.
// Every lane then does the same softmax, instead of waiting for one that does it.
//
// Rows beyond count[0] are no examples: their losses, hits, dlogits and dx are 0.
//
// Macros: D; O = 1 to 32, as the logits are in registers; INPUT_GRAD 0 (dx is not wanted) or 1; ROWS, those of a block;
// CHUNK, a multiple of 32: how many rows of weight are in shared memory at a time; HALF_FACTORS of half.cuh, so that the
// results are those of the kernels on tensor cores; HALF_OUT of half.cuh, for logits and dx.
// Grid: N / ROWS rounded up. Block: 32 * ROWS.

#include "half.cuh"

#define EACH (CHUNK / 32)               // inputs of a chunk that a lane has
#define ROW (O | 1)                     // an odd row length avoids bank conflicts
#define LAST ((D - 1) / CHUNK * CHUNK)  // where the last chunk begins

// Rows d0, d0 + 1, ... of weight into shared memory; zeros beyond the last.
static __device__ __forceinline__ void fetch(const float* weight, int d0, float* weight_s)
{
    for (int i = threadIdx.x; i < CHUNK * O; i += 32 * ROWS)
        weight_s[i / O * ROW + i % O] = d0 + i / O < D ? FACTOR_OF(weight[d0 * O + i]) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(32 * ROWS, 1) head(
    const float* x, const float* weight, const float* bias, const int* labels, const int* count, const float* scale,
    float* logits, float* losses, int* hits, float* dlogits, float* dx, int N)
{
    __shared__ float weight_s[CHUNK * ROW];
    int lane = threadIdx.x % 32, n = blockIdx.x * ROWS + threadIdx.x / 32;
    bool there = n < N;

    // All that is read but the weights is on its way before any of it is waited for. The bias is lane 0's to add.
    int label = there ? labels[n] : 0, examples = count[0];
    float z[O], times = scale[0];
#pragma unroll
    for (int k = 0; k < O; ++k) z[k] = lane == 0 ? bias[k] : 0.0f;
    for (int d0 = 0; d0 < D; d0 += CHUNK) {
        float inputs[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int d = d0 + e * 32 + lane;
            inputs[e] = there && d < D ? x[n * D + d] : 0.0f;
        }
        if (d0 > 0) __syncthreads();  // all have used the weights before these
        fetch(weight, d0, weight_s);
        __syncthreads();
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            float input = FACTOR_OF(inputs[e]);
#pragma unroll
            for (int k = 0; k < O; ++k) z[k] += input * weight_s[(e * 32 + lane) * ROW + k];
        }
    }
#pragma unroll
    for (int k = 0; k < O; ++k)
#pragma unroll
        for (int other = 16; other > 0; other /= 2) z[k] += __shfl_xor_sync(0xffffffff, z[k], other);
#pragma unroll
    for (int k = 0; k < O; ++k) z[k] = OUT_OF(z[k]);

    // Less the largest logit, the first of equals, no exp overflows, and nothing else changes.
    float largest = z[0], at_label = z[0], sum = 0.0f, dz[O];
    int place = 0;
#pragma unroll
    for (int k = 1; k < O; ++k) {
        if (z[k] > largest) largest = z[k], place = k;
        if (k == label) at_label = z[k];
    }
#pragma unroll
    for (int k = 0; k < O; ++k) dz[k] = expf(z[k] - largest), sum += dz[k];
    bool example = n < examples;
    float inverse = 1.0f / sum;
#pragma unroll
    for (int k = 0; k < O; ++k) {
        dz[k] = example ? times * (dz[k] * inverse - (k == label ? 1.0f : 0.0f)) : 0.0f;
        if (there && lane == k) logits[n * O + k] = z[k], dlogits[n * O + k] = dz[k];
        dz[k] = FACTOR_OF(dz[k]);
    }
    if (there && lane == 0) {
        losses[n] = example ? logf(sum) - (at_label - largest) : 0.0f;
        hits[n] = example && place == label;
    }

#if INPUT_GRAD
    for (int d0 = LAST; d0 >= 0; d0 -= CHUNK) {  // backwards, because the last weights are still there
        if (d0 < LAST) {
            __syncthreads();
            fetch(weight, d0, weight_s);
            __syncthreads();
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int d = d0 + e * 32 + lane;
            float gradient = 0.0f;
#pragma unroll
            for (int k = 0; k < O; ++k) gradient += dz[k] * weight_s[(e * 32 + lane) * ROW + k];
            if (there && d < D) dx[n * D + d] = OUT_OF(gradient);
        }
    }
#endif
}
