// The dense layer and its gradients on tensor cores. Shapes and arguments as in dense.cu.
//
// Macros: D O; RELU 0 or 1; TYPE, TM, TN, CHUNK and STAGES as in tensor_cores.cuh; HALF_OUT of half.cuh, for dx.
// PRODUCT: 0 forward, 1 gradient of the input, 2 of the weights, the only one to be compiled: STAGES are as many as it has
// shared memory for.
// Grid: (tiles across, tiles down) of the result; of dweight with one more row, which is dbias. Block: 256.
//
// Predicted for LeNet's first dense layer (800 inputs, 128 outputs) and 256 images on an H100: 5 us each in tf32, where
// dense.cu takes 7; 4 of them to multiply and to wait for memory, 1 to begin.

#include "half.cuh"
#include "tensor_cores.cuh"

#if PRODUCT == 0
extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_forward_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int N)
{
    typedef Factor<TM, D, 1, false> Rows;
    typedef Factor<TN, 1, O, false> Columns;
    __shared__ float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {x, nullptr, i0, N};
    Columns columns = {weight, nullptr, j0, O};
    product(rows, columns, D, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, o = j0 + e % TN;
        if (n >= N || o >= O) continue;
        float z = total(shared, e / TN, e % TN) + bias[o];
        y[n * O + o] = RELU && z <= 0.0f ? 0.0f : z;
    }
}
#endif

#if PRODUCT == 1
extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_input_grad_tensor_cores(
    const float* __restrict__ dy, const float* __restrict__ y, const float* __restrict__ weight,
    float* __restrict__ dx, int N)
{
    typedef Factor<TM, O, 1, RELU> Rows;
    typedef Factor<TN, O, 1, false> Columns;
    __shared__ float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {dy, y, i0, N};
    Columns columns = {weight, nullptr, j0, D};
    product(rows, columns, O, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, d = j0 + e % TN;
#ifdef HALF_OUT
        float rounded = round_to_half(total(shared, e / TN, e % TN));  // in a branch each would be waited for
        if (n < N && d < D) dx[n * D + d] = rounded;
#else
        if (n < N && d < D) dx[n * D + d] = total(shared, e / TN, e % TN);
#endif
    }
}
#endif

#if PRODUCT == 2
extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_weight_grad_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ dy, const float* __restrict__ y,
    float* __restrict__ dweight, float* __restrict__ dbias, int N)
{
    typedef Factor<TM, 1, D, false, true> Rows;
    typedef Factor<TN, 1, O, RELU> Columns;
    __shared__ float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {x, nullptr, i0, D};
    Columns columns = {dy, y, j0, O};
    product(rows, columns, N, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int d = i0 + e / TN, o = j0 + e % TN;
        if (o < O && d < D) dweight[d * O + o] = total(shared, e / TN, e % TN);
        if (o < O && d == D) dbias[o] = total(shared, e / TN, e % TN);
    }
}
#endif
