// The dense layer and its gradients on tensor cores. Shapes and arguments as in dense.cu.
//
// Macros: D O; RELU 0 or 1; TYPE, TM, TN, WARPS and PASSES as in tensor_cores.cuh.
// Grid: (tiles across, tiles down) of the result; of dweight with one more row, which is dbias. Block: 32 * WARPS.

#include "tensor_cores.cuh"

// Element (i, k) is values[i * STEP_I + k * STEP_K], for i < size, and where gate, if given, is positive; else 0.
// Row `ones`, if any, is all ones.
template <int STEP_I, int STEP_K>
struct Matrix {
    static const bool ALONG_SUM = STEP_K == 1;
    const float *values, *gate;
    int first, size, ones;

    __device__ __forceinline__ float operator()(int i, int k) const
    {
        i += first;
        if (i == ones) return 1.0f;
        if (i >= size) return 0.0f;
        int at = i * STEP_I + k * STEP_K;
        return gate && !(gate[at] > 0.0f) ? 0.0f : values[at];
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_forward_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Matrix<D, 1> rows = {x, nullptr, i0, N, -1};
    Matrix<1, O> columns = {weight, nullptr, j0, O, -1};
    product(rows, columns, D, tile);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, o = j0 + e % TN;
        if (n >= N || o >= O) continue;
        float z = total(tile, e / TN, e % TN) + bias[o];
        y[n * O + o] = RELU && z <= 0.0f ? 0.0f : z;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_input_grad_tensor_cores(
    const float* __restrict__ dy, const float* __restrict__ y, const float* __restrict__ weight,
    float* __restrict__ dx, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Matrix<O, 1> rows = {dy, RELU ? y : nullptr, i0, N, -1}, columns = {weight, nullptr, j0, D, -1};
    product(rows, columns, O, tile);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, d = j0 + e % TN;
        if (n < N && d < D) dx[n * D + d] = total(tile, e / TN, e % TN);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_weight_grad_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ dy, const float* __restrict__ y,
    float* __restrict__ dweight, float* __restrict__ dbias, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Matrix<1, D> rows = {x, nullptr, i0, D, D};
    Matrix<1, O> columns = {dy, RELU ? y : nullptr, j0, O, -1};
    product(rows, columns, N, tile);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int d = i0 + e / TN, o = j0 + e % TN;
        if (o < O && d < D) dweight[d * O + o] = total(tile, e / TN, e % TN);
        if (o < O && d == D) dbias[o] = total(tile, e / TN, e % TN);
    }
}
