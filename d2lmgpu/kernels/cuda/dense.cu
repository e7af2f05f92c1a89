// The dense layer and its gradients: three matrix products.
//
//   forward      y = relu(x @ weight + bias)        x (N, D), weight (D, O), bias (O,), y (N, O), float32
//   input grad   dx = dz @ weight^T                  dz = dy where y > 0, else 0; without ReLU dz = dy
//   weight grad  dweight = x^T @ dz, dbias = 1^T @ dz
//
// Macros: D O; RELU 0 or 1; PRODUCT: 0 forward, 1 gradient of the input, 2 of the weights, the only one to be compiled;
// TM, TN, CHUNK and STAGES as in factors.cuh; HALF_FACTORS (then on tensor cores) and HALF_OUT, for dx, as in half.cuh. N
// is an argument.
//
// The ladder:
//   v1  (forward only) one thread an output, two global loads a multiplication.
//   v2  all three. The matrices of a small network are small: 256 x 128 results are just 32 tiles of 32 x 32, and would
//       keep 32 of a GPU's hundred multiprocessors busy with 800 steps one after another. So tiles are small, and the
//       threads of a block also share the *sum*: each group of them has some steps of every chunk of it, and at the
//       end the groups' sums are added in a fixed order. The next chunks are on their way in the meantime.
//
// Predicted for LeNet's first dense layer (800 inputs, 128 outputs) and 256 images on an H100: 5 us each, of which the
// multiplications are 1, and starting another 1.
//
// Grid of v2: (tiles across, tiles down) of the result; of dweight with one more row, which is dbias. Block: 256.

#include "half.cuh"
#include "factors.cuh"
#ifdef HALF_FACTORS
#include "tensor_cores.cuh"
#else
#include "multiply_add.cuh"
#endif

#if PRODUCT == 0
extern "C" __global__ void __launch_bounds__(256) dense_forward_v1(
    const float* x, const float* weight, const float* bias, float* y, int N)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x, n = index / O, o = index % O;
    if (n >= N) return;
    float sum = bias[o];
    for (int d = 0; d < D; ++d) sum += x[n * D + d] * weight[d * O + o];
    y[index] = RELU && sum <= 0.0f ? 0.0f : sum;  // what is not a number stays so
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_forward(
    const float* x, const float* weight, const float* bias, float* y, int N)
{
    typedef Factor<TM, D, 1, false> Rows;
    typedef Factor<TN, 1, O, false> Columns;
    __shared__ __align__(16) float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {x, nullptr, i0, N};
    Columns columns = {weight, nullptr, j0, O};
    product<Sums>(rows, columns, D, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, o = j0 + e % TN;
        if (n >= N || o >= O) continue;
        float z = total<Sums>(shared, e / TN, e % TN) + bias[o];
        y[n * O + o] = RELU && z <= 0.0f ? 0.0f : z;
    }
}
#endif

#if PRODUCT == 1
extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_input_grad(
    const float* dy, const float* y, const float* weight, float* dx, int N)
{
    typedef Factor<TM, O, 1, RELU> Rows;
    typedef Factor<TN, O, 1, false> Columns;
    __shared__ __align__(16) float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {dy, y, i0, N};
    Columns columns = {weight, nullptr, j0, D};
    product<Sums>(rows, columns, O, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int n = i0 + e / TN, d = j0 + e % TN;
        if (n < N && d < D) dx[n * D + d] = OUT_OF(total<Sums>(shared, e / TN, e % TN));
    }
}
#endif

// dbias is the gradient of one more row of weights, whose input is always 1.
#if PRODUCT == 2
extern "C" __global__ void __launch_bounds__(THREADS, 2) dense_weight_grad(
    const float* x, const float* dy, const float* y, float* dweight, float* dbias, int N)
{
    typedef Factor<TM, 1, D, false, true> Rows;
    typedef Factor<TN, 1, O, RELU> Columns;
    __shared__ __align__(16) float shared[STAGES * (Rows::ALL_FLOATS + Columns::ALL_FLOATS)];
    int i0 = blockIdx.y * TM, j0 = blockIdx.x * TN;
    Rows rows = {x, nullptr, i0, D};
    Columns columns = {dy, y, j0, O};
    product<Sums>(rows, columns, N, shared);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int d = i0 + e / TN, o = j0 + e % TN;
        if (o < O && d < D) dweight[d * O + o] = total<Sums>(shared, e / TN, e % TN);
        if (o < O && d == D) dbias[o] = total<Sums>(shared, e / TN, e % TN);
    }
}
#endif
