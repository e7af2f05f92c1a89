// Convolution + bias + ReLU + pooling and its gradients on tensor cores, as matrix products.
//
// Shapes, masks and arguments are those of conv_forward.cu, conv_input_grad.cu and conv_weight_grad.cu. The matrices of
// patches that layers/convolution.py writes to memory ("im2col") exist here only a chunk at a time, in shared memory,
// while a product needs it: an *implicit* matrix product (Chetlur et al. 2014, cuDNN).
//
//   forward      z (O, columns)   = weight (O, C*KH*KW) * patches of x     a column: one output of one image
//   input grad   dx (C, columns)  = weight^T (C, O*KH*KW) * patches of dz   a column: one input of one image
//   weight grad  dweight (O, C*KH*KW) = sum dz * patches of x                the sum: all outputs of a group of images
//
// Macros: C O H W KH KW S MAX_POOL RELU; TYPE, TM, TN, WARPS as in tensor_cores.cuh. Block: 32 * WARPS.

#include "tensor_cores.cuh"

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)
#define ZW (PW * S)
#define K (KH * KW)

// Across: outputs o; along the sum: (c, ki, kj). Weights lie in memory in this order.
struct Kernels {
    static const bool ALONG_SUM = true;
    const float* weight;
    int first;
    __device__ __forceinline__ float operator()(int i, int k) const
    {
        return first + i < O ? weight[(first + i) * C * K + k] : 0.0f;
    }
};

// Across: outputs z, the S * S of a square one after another, so that they can be pooled where they are made.
#define SQUARES (TN / (S * S))  // in a tile
struct Patches {
    static const bool ALONG_SUM = false;
    const float* x;
    int first, N;  // first square
    __device__ __forceinline__ float operator()(int j, int k) const
    {
        int square = first + j / (S * S), q = j % (S * S), n = square / (PH * PW);
        if (j >= SQUARES * S * S || n >= N) return 0.0f;
        int h = square / PW % PH * S + q / S + k / KW % KH, w = square % PW * S + q % S + k % KW;
        return x[((n * C + k / K) * H + h) * W + w];
    }
};

// Grid: (squares / SQUARES, outputs / TM).
extern "C" __global__ void __launch_bounds__(THREADS) conv_forward_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, unsigned short* __restrict__ mask, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int o0 = blockIdx.y * TM, square0 = blockIdx.x * SQUARES;
    Kernels kernels = {weight, o0};
    Patches patches = {x, square0, N};
    product(kernels, patches, C * K, tile);
    for (int e = threadIdx.x; e < TM * SQUARES; e += THREADS) {
        int i = e / SQUARES, o = o0 + i, square = square0 + e % SQUARES, n = square / (PH * PW);
        if (o >= O || n >= N) continue;
        float result = 0.0f;
        unsigned bits = 0;
#pragma unroll
        for (int q = 0; q < S * S; ++q) {
            float z = total(tile, i, e % SQUARES * S * S + q) + bias[o];
            bool passes = !RELU || z > 0.0f;
            if (RELU && z <= 0.0f) z = 0.0f;  // what is not a number stays so
            if (!MAX_POOL) {
                result += z * (1.0f / (S * S));
                bits |= (unsigned)passes << q;
            } else if (q == 0 || z > result || z != z) {
                result = z;
                bits = (unsigned)passes << q;
            }
        }
        int index = (n * O + o) * (PH * PW) + square % (PH * PW);
        y[index] = result;
        mask[index] = (unsigned short)bits;
    }
}

// dz[n, o, i, j]; zero outside.
static __device__ __forceinline__ float unpool(const float* dy, const unsigned short* mask, int n, int o, int i, int j)
{
    if (i < 0 || i >= ZH || j < 0 || j >= ZW) return 0.0f;
    int index = ((n * O + o) * PH + i / S) * PW + j / S;
    float g = MAX_POOL ? dy[index] : dy[index] * (1.0f / (S * S));
    return mask[index] >> (i % S * S + j % S) & 1 ? g : 0.0f;
}

// Across: input channels c; along the sum: (o, ki, kj).
struct KernelsTransposed {
    static const bool ALONG_SUM = true;
    const float* weight;
    int first;
    __device__ __forceinline__ float operator()(int i, int k) const
    {
        return first + i < C ? weight[(k / K * C + first + i) * K + k % K] : 0.0f;
    }
};

struct GradientPatches {
    static const bool ALONG_SUM = false;
    const float* dy;
    const unsigned short* mask;
    int first, N;
    __device__ __forceinline__ float operator()(int j, int k) const
    {
        int column = first + j, n = column / (H * W), h = column / W % H, w = column % W;
        return n < N ? unpool(dy, mask, n, k / K, h - k / KW % KH, w - k % KW) : 0.0f;
    }
};

// Grid: (N * H * W / TN, C / TM).
extern "C" __global__ void __launch_bounds__(THREADS) conv_input_grad_tensor_cores(
    const float* __restrict__ dy, const unsigned short* __restrict__ mask, const float* __restrict__ weight,
    float* __restrict__ dx, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int c0 = blockIdx.y * TM, column0 = blockIdx.x * TN;
    KernelsTransposed kernels = {weight, c0};
    GradientPatches patches = {dy, mask, column0, N};
    product(kernels, patches, O * K, tile);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int c = c0 + e / TN, column = column0 + e % TN, n = column / (H * W);
        if (c < C && n < N) dx[(n * C + c) * (H * W) + column % (H * W)] = total(tile, e / TN, e % TN);
    }
}

// Across: outputs o; along the sum: positions (image of the group, i, j).
struct Gradients {
    static const bool ALONG_SUM = true;
    const float* dy;
    const unsigned short* mask;
    int first;
    __device__ __forceinline__ float operator()(int i, int k) const
    {
        int n = blockIdx.z + k / (ZH * ZW) * gridDim.z;
        return first + i < O ? unpool(dy, mask, n, first + i, k / ZW % ZH, k % ZW) : 0.0f;
    }
};

// Across: elements (c, ki, kj) of a kernel; along the sum: positions.
struct PatchesAlongSum {
    static const bool ALONG_SUM = true;
    const float* x;
    int first;
    __device__ __forceinline__ float operator()(int j, int k) const
    {
        int n = blockIdx.z + k / (ZH * ZW) * gridDim.z, c = (first + j) / K, at = (first + j) % K;
        return c < C ? x[((n * C + c) * H + k / ZW % ZH + at / KW) * W + k % ZW + at % KW] : 0.0f;
    }
};

// Group g has the images g, g + gridDim.z, ... Writes rows of the workspace for conv_weight_grad_reduce, one a group.
// Grid: (C*KH*KW / TN, O / TM, groups).
extern "C" __global__ void __launch_bounds__(THREADS) conv_weight_grad_tensor_cores(
    const float* __restrict__ x, const float* __restrict__ dy, const unsigned short* __restrict__ mask,
    float* __restrict__ workspace, int N)
{
    __shared__ __align__(16) unsigned tile[TILE_WORDS];
    int o0 = blockIdx.y * TM, first = blockIdx.x * TN;
    int images = (N - (int)blockIdx.z + (int)gridDim.z - 1) / (int)gridDim.z;  // in this group
    Gradients gradients = {dy, mask, o0};
    PatchesAlongSum patches = {x, first};
    product(gradients, patches, images * ZH * ZW, tile);
    for (int e = threadIdx.x; e < TM * TN; e += THREADS) {
        int o = o0 + e / TN, c = (first + e % TN) / K, at = (first + e % TN) % K;
        if (o < O && c < C) workspace[((blockIdx.z * K + at) * O + o) * C + c] = total(tile, e / TN, e % TN);
    }
}
