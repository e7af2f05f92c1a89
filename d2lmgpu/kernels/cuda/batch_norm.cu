// Batch normalisation with the ReLU and pooling after it, cut where sums over images are needed (layers/batch_norm.py).
//
//   x (N, C, H, W), weight, bias (C) -> y (N, C, PH, PW), mask like y: as in conv_forward.cu, with
//   z = (x - mean) * slope + bias,  slope = weight * factor,  factor = 1 / sqrt(variance + EPSILON)
//   y[n,c,p,q] = mean or maximum of relu(z) over the S x S square at (p*S, q*S); S = 1: no pooling
//   dx = (dz - mean of dz - x^ * mean of dz * x^) * slope, where dz, the gradient of z, is dy through pooling and ReLU
//
//   moments            x -> a workspace              sums of x and of x^2 over a part of the images
//   moments_sum        workspace -> moments (3, C)   how many values a channel has, their sum, their squares' sum
//                      (here other devices' moments may be added)
//   normalise          x, moments -> y, mask         normalise_fixed: with a given mean and variance
//   gradient_sums      dy, mask, x -> a workspace    sums of dz and of dz * (x - mean) over a part of the images
//   gradient_sums_sum  workspace -> sums (2, C)      sums of dz and of dz * x^; and dbias and dweight, which are the same
//                      (here other devices' sums may be added; the gradients stay this device's own)
//   input_grad         dy, mask, x, sums -> dx
//   track              moments -> the running mean and variance, in place
//
// moments, sums and workspaces are float64, all else float32. Only the first count[0] of the N images are examples: no
// sum has the others, their y and dx are 0. count is in device memory: a captured graph can be replayed for a full
// batch and for the last one.
//
// Digits. The variance is a small difference of large sums, hence float64. But most GPUs add 32 times fewer numbers of
// 64 bits than of 32 in a clock. So a thread takes VALUES numbers at a time, subtracts the first of them from all, adds
// up the differences d and d^2 as float32, and puts into its float64 sums only what came out:
//   sum x = sum d + n * first           sum x^2 = sum d^2 + first * (2 * sum d + n * first)
// The rounding errors are some 2^-24 * sum d^2. Whatever the first number is, the sums have it, too, so that its
// distance from the mean is part of the variance: the errors are small beside it even for a mean of 1000 and a spread
// of 0.1. (Shifted data: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".)
//
// Which thread does what. Each channel's values (its elements of y, for all but moments and input_grad) are counted
// through all images, v = image * size + place. A block has TC channels and 256 / TC threads for each: TC is 1 where
// neighbouring values of a channel are neighbours in memory; where images are so small that they are not, TC is 32, and
// neighbouring threads are neighbouring channels. All sums are in a fixed order: the same bits in every run.
//
// Macros: C H W; S = 1 to 4; MAX_POOL and RELU 0 or 1; TC 1 or 32; EPSILON MOMENTUM, those
// of layers/batch_norm.py; HALF_OUT of half.cuh, for y. N is an argument.
// Block: 256. Grid: (parts, C / TC rounded up), any number of parts; track: C / 256 rounded up;
// the two that add up workspaces: (1, C / 8 rounded up), a warp a channel, and rows is the parts that wrote it.
// Workspaces are (2, parts, C).

#include "squares.cuh"

#define PH (H / S)
#define PW (W / S)
#define IN (H * W)
#define OUT (PH * PW)
#define T (256 / TC)                       // threads of a channel
#define VALUES 8                           // that a thread takes at a time
#define SQUARES (S == 1 ? 8 : S == 2 ? 2 : 1)

// This thread's channel, the first of its values, and how far it is to the next ones of the block and of the grid.
#define PLACE \
    int c = blockIdx.y * TC + threadIdx.x % TC, lane = threadIdx.x / TC; \
    bool there = c < C; \
    (void)there
#define FIRST(at_a_time) (blockIdx.x * (T * (at_a_time)) + lane)
#define STRIDE(at_a_time) (gridDim.x * (T * (at_a_time)))

// Add up what the threads of a channel have, and write it to the workspace.
static __device__ __forceinline__ void write_sums(double first, double second, int c, bool there, double* workspace)
{
    __shared__ double first_s[256], second_s[256];
    int thread = threadIdx.x;
    first_s[thread] = first, second_s[thread] = second;
    __syncthreads();
#pragma unroll
    for (int half = 128; half >= TC; half /= 2) {
        if (thread < half) first_s[thread] += first_s[thread + half], second_s[thread] += second_s[thread + half];
        __syncthreads();
    }
    if (thread < TC && there) {
        workspace[blockIdx.x * C + c] = first_s[thread];
        workspace[(gridDim.x + blockIdx.x) * C + c] = second_s[thread];
    }
}

extern "C" __global__ void __launch_bounds__(256) moments(const float* x, const int* count, double* workspace, int N)
{
    PLACE;
    unsigned total = there ? min(count[0], N) * IN : 0;
    double sum = 0.0, squares = 0.0;
    for (unsigned start = FIRST(VALUES); start < total; start += STRIDE(VALUES)) {
        float value[VALUES], d_sum = 0.0f, d_squares = 0.0f;
        int n = 0;
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            unsigned v = start + i * T;
            bool valid = v < total;
            value[i] = valid ? x[(v / IN * C + c) * IN + v % IN] : value[0];
            n += valid;
        }
#pragma unroll
        for (int i = 1; i < VALUES; ++i) {
            float d = value[i] - value[0];
            d_sum += d, d_squares += d * d;
        }
        double first = value[0], shift = n * first;
        sum += d_sum + shift;
        squares += d_squares + first * (2.0 * d_sum + shift);
    }
    write_sums(sum, squares, c, there, workspace);
}

// The sum of a column of a workspace by the 32 lanes of a warp, which all get it.
static __device__ __forceinline__ double column(const double* workspace, int c, int rows)
{
    double sum = 0.0;
    for (int row = threadIdx.x % 32; row < rows; row += 32) sum += workspace[row * C + c];
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    return sum;
}

extern "C" __global__ void __launch_bounds__(256) moments_sum(
    const double* workspace, const int* count, double* moments, int rows, int N)
{
    int c = blockIdx.y * 8 + threadIdx.x / 32;
    if (c >= C) return;  // the whole warp
    double sum = column(workspace, c, rows), squares = column(workspace + rows * C, c, rows);
    if (threadIdx.x % 32 == 0) {
        moments[c] = (double)min(count[0], N) * IN;
        moments[C + c] = sum;
        moments[2 * C + c] = squares;
    }
}

// Of moments that may be those of no images, too.
static __device__ __forceinline__ void mean_and_variance(const double* moments, int c, double* mean, double* variance)
{
    double per_value = 1.0 / fmax(moments[c], 1.0);
    *mean = moments[C + c] * per_value;
    *variance = fmax(moments[2 * C + c] * per_value - *mean * *mean, 0.0);
    if (!(*mean - *mean == 0.0)) *variance = *mean - *mean;  // fmax takes 0 for what is not a number
}

// What is to be known of a channel to normalise it.
struct Channel { float mean, factor; };

static __device__ __forceinline__ Channel channel_of(const double* moments, int c)
{
    double mean, variance;
    mean_and_variance(moments, c, &mean, &variance);
    return {(float)mean, 1.0f / sqrtf((float)variance + EPSILON)};
}

// The same of each of a block's channels, computed once for the threads that share it.
static __device__ __forceinline__ Channel shared_channel(const double* moments, int c, bool there)
{
    __shared__ Channel channels[TC];
    if (threadIdx.x < TC && there) channels[threadIdx.x] = channel_of(moments, c);
    __syncthreads();
    return channels[threadIdx.x % TC];
}

static __device__ __forceinline__ void normalise_channel(
    const float* x, Channel channel, float weight, float bias, int count, float* y, unsigned short* mask, int c,
    int lane, int N)
{
    float slope = channel.factor * weight;
    unsigned total = N * OUT, examples = min(count, N) * OUT;
    for (unsigned start = FIRST(SQUARES); start < total; start += STRIDE(SQUARES)) {
        float z[SQUARES][S * S];
#pragma unroll
        for (int i = 0; i < SQUARES; ++i) {
            unsigned v = start + i * T, place = v % OUT;
            const float* corner = x + ((v / OUT * C + c) * H + place / PW * S) * W + place % PW * S;
#pragma unroll
            for (int q = 0; q < S * S; ++q) z[i][q] = v < examples ? corner[q / S * W + q % S] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < SQUARES; ++i) {
            unsigned v = start + i * T;
            if (v >= total) break;
            int index = (v / OUT * C + c) * OUT + v % OUT;
#pragma unroll
            for (int q = 0; q < S * S; ++q) z[i][q] = (z[i][q] - channel.mean) * slope + bias;
            unsigned short bits;
            float pooled = pool(z[i], &bits);
            y[index] = v < examples ? pooled : 0.0f;
            mask[index] = v < examples ? bits : 0;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) normalise(
    const float* x, const float* weight, const float* bias, const double* moments, const int* count, float* y,
    unsigned short* mask, int N)
{
    PLACE;
    Channel channel = shared_channel(moments, c, there);
    if (there) normalise_channel(x, channel, weight[c], bias[c], count[0], y, mask, c, lane, N);
}

extern "C" __global__ void __launch_bounds__(256) normalise_fixed(
    const float* x, const float* weight, const float* bias, const float* mean, const float* variance, const int* count,
    float* y, unsigned short* mask, int N)
{
    PLACE;
    if (!there) return;
    Channel channel = {mean[c], 1.0f / sqrtf(variance[c] + EPSILON)};
    normalise_channel(x, channel, weight[c], bias[c], count[0], y, mask, c, lane, N);
}

// Which of a square's z get a gradient; without ReLU and pooling it is the one there is.
static __device__ __forceinline__ unsigned bits_of(const unsigned short* mask, int index)
{
    return S == 1 && !RELU ? 1u : mask[index];
}

#define SHARE (MAX_POOL ? 1.0f : 1.0f / (S * S))  // of dy, for each z whose bit is set

extern "C" __global__ void __launch_bounds__(256) gradient_sums(
    const float* x, const float* dy, const unsigned short* mask, const double* moments, const int* count,
    double* workspace, int N)
{
    PLACE;
    float mean = shared_channel(moments, c, there).mean;
    unsigned total = there ? min(count[0], N) * OUT : 0;
    double sum = 0.0, products = 0.0;
    for (unsigned start = FIRST(SQUARES); start < total; start += STRIDE(SQUARES)) {
        float value[SQUARES][S * S], dz[SQUARES], some = 0.0f, some_products = 0.0f;
        unsigned bits[SQUARES];
#pragma unroll
        for (int i = 0; i < SQUARES; ++i) {
            unsigned v = start + i * T, place = v % OUT;
            int plane = v / OUT * C + c, index = plane * OUT + place;
            const float* corner = x + (plane * H + place / PW * S) * W + place % PW * S;
            bits[i] = v < total ? bits_of(mask, index) : 0;
            dz[i] = v < total ? dy[index] * SHARE : 0.0f;
#pragma unroll
            for (int q = 0; q < S * S; ++q) value[i][q] = v < total ? corner[q / S * W + q % S] : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < SQUARES; ++i)
#pragma unroll
            for (int q = 0; q < S * S; ++q) {
                float here = bits[i] >> q & 1 ? dz[i] : 0.0f;
                some += here, some_products += here * (value[i][q] - mean);
            }
        sum += some, products += some_products;
    }
    write_sums(sum, products, c, there, workspace);
}

extern "C" __global__ void __launch_bounds__(256) gradient_sums_sum(
    const double* workspace, const double* moments, double* sums, float* dweight, float* dbias, int rows)
{
    int c = blockIdx.y * 8 + threadIdx.x / 32;
    if (c >= C) return;  // the whole warp
    double sum = column(workspace, c, rows), products = column(workspace + rows * C, c, rows);
    if (threadIdx.x % 32 == 0) {
        products *= channel_of(moments, c).factor;
        sums[c] = sum, sums[C + c] = products;
        dbias[c] = (float)sum, dweight[c] = (float)products;
    }
}

extern "C" __global__ void __launch_bounds__(256) input_grad(
    const float* x, const float* dy, const unsigned short* mask, const float* weight, const double* moments,
    const double* sums, const int* count, float* dx, int N)
{
    PLACE;
    // y depends on x also through mean and variance: what they take away is the part of dz along 1 and along x^.
    __shared__ float along_one_s[TC], along_x_s[TC];
    if (threadIdx.x < TC && there) {
        double per_value = 1.0 / fmax(moments[c], 1.0);
        along_one_s[threadIdx.x] = (float)(sums[c] * per_value);
        along_x_s[threadIdx.x] = (float)(sums[C + c] * per_value);
    }
    Channel channel = shared_channel(moments, c, there);  // with a barrier, behind which along_one_s is there, too
    if (!there) return;
    float along_one = along_one_s[threadIdx.x % TC], along_x = along_x_s[threadIdx.x % TC] * channel.factor;
    float slope = channel.factor * weight[c];
    unsigned total = N * IN, examples = min(count[0], N) * IN;
    for (unsigned start = FIRST(VALUES); start < total; start += STRIDE(VALUES)) {
        float value[VALUES], dz[VALUES];
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            unsigned v = start + i * T;
            int plane = v / IN * C + c, h = v % IN / W, w = v % W;
            bool valid = v < examples, in_square = valid && h < PH * S && w < PW * S;
            int index = (plane * PH + h / S) * PW + w / S;
            value[i] = valid ? x[plane * IN + v % IN] : 0.0f;
            dz[i] = in_square && bits_of(mask, index) >> (h % S * S + w % S) & 1 ? dy[index] * SHARE : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            unsigned v = start + i * T;
            if (v >= total) break;
            float result = (dz[i] - along_one - (value[i] - channel.mean) * along_x) * slope;
            dx[(v / IN * C + c) * IN + v % IN] = v < examples ? result : 0.0f;
        }
    }
}

// Moves by MOMENTUM towards the moments' mean and variance, the unbiased one, with n - 1 for n. Moments of no images change
// nothing.
extern "C" __global__ void __launch_bounds__(256) track(
    const double* moments, float* running_mean, float* running_variance)
{
    int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= C || !(moments[c] > 0.0)) return;
    double mean, variance, n = moments[c];
    mean_and_variance(moments, c, &mean, &variance);
    variance *= n / fmax(n - 1.0, 1.0);
    running_mean[c] += (float)((mean - running_mean[c]) * MOMENTUM);
    running_variance[c] += (float)((variance - running_variance[c]) * MOMENTUM);
}
