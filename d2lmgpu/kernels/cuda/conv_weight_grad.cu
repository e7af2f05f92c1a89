// The gradients of convolution + bias + ReLU + pooling (conv_forward.cu) with respect to weight and bias.
//
//   x (N, C, H, W), dy, mask (N, O, PH, PW) -> dweight (O, C, KH, KW), dbias (O,), float32 (mask: uint16), NCHW
//   dweight[o,c,ki,kj] = sum over n,i,j of dz[n,o,i,j] * x[n,c,i+ki,j+kj]    dbias[o] = sum over n,i,j of dz[n,o,i,j]
//
// with dz as in conv_input_grad.cu. The gradients are written, not added to what was there.
//
// All images add to the same few numbers. Atomic additions would do it, but in another order, with other roundings,
// every time. Instead each group of images writes its own partial sums to a workspace, and a second kernel adds those
// in a fixed order: the same bits, run for run.
//
// Macros: C O H W KH KW S MAX_POOL RELU as in conv_forward.cu; N is an argument. For v2 also OB, CB, SLOTS, TILE_H
// and RESIDENT, the blocks that a multiprocessor is to hold.
//
// The ladder (counting for LeNet's second convolution: C=20, O=50, K=5, 8 x 8 outputs z):
//   v1  one thread a weight goes through all images in global memory: two loads a multiplication, and only 25,000
//       threads, each with 16,384 multiplications one after another.
//   v2  a thread owns a kernel, its 25 sums in registers, for a group of images. It walks down the tile of dz: a row of
//       dz (8 elements) meets 5 rows of x, of which 4 are still in registers: 200 multiplications for 5 vector loads.
//       For 256 images a scheduler of an H100 gets four warps, of about 7,400 instructions each, 6,400 of them
//       multiplications: 17 us at one a clock, counted; 21 us predicted, as the block waits for each of its tiles.
//   v3  for few input channels is in conv_weight_grad_strips.cu.

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)  // rows and columns of dz
#define ZW (PW * S)
#define K (KH * KW)
#define COLUMNS (O * C * K + O)  // of the workspace: weights, and then biases
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

// dz[n, o, i, j]; zero outside.
static __device__ __forceinline__ float unpool(
    const float* dy, const unsigned short* mask, int n, int o, int i, int j)
{
    if (i >= ZH || j >= ZW || o >= O) return 0.0f;
    int index = ((n * O + o) * PH + i / S) * PW + j / S;
    float g = MAX_POOL ? dy[index] : dy[index] * (1.0f / (S * S));
    return mask[index] >> (i % S * S + j % S) & 1 ? g : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) conv_weight_grad_v1(
    const float* x, const float* dy, const unsigned short* mask, float* dweight, float* dbias, int N)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= O * C * K + O) return;
    bool is_weight = index < O * C * K;  // the last O threads have a bias each
    int kj = index % KW, ki = index / KW % KH, c = index / K % C, o = is_weight ? index / (K * C) : index - O * C * K;
    float sum = 0.0f;
    for (int n = 0; n < N; ++n)
        for (int i = 0; i < ZH; ++i)
            for (int j = 0; j < ZW; ++j) {
                float g = unpool(dy, mask, n, o, i, j);
                sum += is_weight ? g * x[((n * C + c) * H + i + ki) * W + j + kj] : g;
            }
    if (is_weight) dweight[index] = sum;
    else dbias[o] = sum;
}

#ifdef OB
// A block computes the kernels of OB output and CB input channels. It walks through the tiles (TILE_H x TILE_W of dz)
// of its group of images, SLOTS tiles at a time: a thread has a kernel and a slot, and each slot sums for itself.
// Group g has the images g, g + gridDim.x, ... Grid: (groups, O / OB, C / CB). Block: CB x OB x SLOTS, CB first.
// Workspace: gridDim.x x SLOTS rows of K x O x C floats, and O for the bias.
#define TILE_W (ZW <= 4 ? 4 : 8)
#define TILES_X CEIL_DIV(ZW, TILE_W)
#define TILES (CEIL_DIV(ZH, TILE_H) * TILES_X)        // of an image
#define PAIRS (OB * CB)
#define THREADS (PAIRS * SLOTS)
#define XH (TILE_H + KH - 1)                          // the part of x that a tile meets
#define XW (CEIL_DIV(TILE_W + KW - 1, 4) * 4)
#define X_PLANE ((XH * XW / 4 | 1) * 4)               // an odd number of vectors avoids bank conflicts
#define DZ_PLANE ((TILE_H * TILE_W / 4 | 1) * 4)

// A thread's loads of a tile are under way together, up to 8 at a time, and what they need to know of their place does
// not change from tile to tile. What is outside of an array is not a branch, which would make the next load wait, but a
// load of the array's last element; it meets a zero of dz, or belongs to channels that are not there.
#define EACH(count) CEIL_DIV(count, THREADS)
#define BATCHES(count) CEIL_DIV(EACH(count), 8)

// Of this block's tiles, counted one after another.
static __device__ __forceinline__ int image_of(int tile)
{
    return blockIdx.x + tile / TILES * gridDim.x;
}

static __device__ __forceinline__ void stage_x(float* x_s, const float* x, int tile0, int c0, int N)
{
    const int count = SLOTS * CB * X_PLANE, batches = BATCHES(count), batch = CEIL_DIV(EACH(count), batches);
    for (int b = 0; b < batches; ++b) {
        float value[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = (b * batch + u) * THREADS + threadIdx.x, plane = i / X_PLANE, in_plane = i % X_PLANE;
            int tile = tile0 + plane / CB % SLOTS, n = image_of(tile), c = c0 + plane % CB;
            int h = tile % TILES / TILES_X * TILE_H + in_plane / XW, w = tile % TILES_X * TILE_W + in_plane % XW;
            if (SLOTS > 1) n = min(n, N - 1);
            unsigned index = n * (C * H * W) + ((c * H + h) * W + w), size = N * (C * H * W);
            value[u] = x[min(index, size - 1)];
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = (b * batch + u) * THREADS + threadIdx.x;
            if ((b * batch + u + 1) * THREADS <= count || i < count) x_s[i] = value[u];
        }
    }
}

static __device__ __forceinline__ void stage_dz(float* dz_s, const float* dy,
    const unsigned short* mask, int tile0, int o0, int N)
{
    const int count = SLOTS * OB * DZ_PLANE, batches = BATCHES(count), batch = CEIL_DIV(EACH(count), batches);
    for (int b = 0; b < batches; ++b) {
        float value[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = (b * batch + u) * THREADS + threadIdx.x, plane = i / DZ_PLANE, in_plane = i % DZ_PLANE;
            int tile = tile0 + plane / OB % SLOTS, n = image_of(tile), o = o0 + plane % OB;
            int zi = tile % TILES / TILES_X * TILE_H + in_plane / TILE_W;
            int zj = tile % TILES_X * TILE_W + in_plane % TILE_W;
            bool there = (SLOTS == 1 || n < N) && (ZH % TILE_H == 0 || zi < ZH) && (ZW % TILE_W == 0 || zj < ZW);
            if (SLOTS > 1) n = min(n, N - 1);
            unsigned index = n * (O * PH * PW) + ((o * PH + zi / S) * PW + zj / S), size = N * (O * PH * PW);
            index = min(index, size - 1);
            float g = MAX_POOL ? dy[index] : dy[index] * (1.0f / (S * S));
            value[u] = mask[index] >> (zi % S * S + zj % S) & there ? g : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = (b * batch + u) * THREADS + threadIdx.x;
            if ((b * batch + u + 1) * THREADS <= count || i < count) dz_s[i] = value[u];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT) conv_weight_grad(
    const float* x, const float* dy, const unsigned short* mask, float* workspace, int N)
{
    __shared__ __align__(16) float x_s[SLOTS * CB * X_PLANE], dz_s[SLOTS * OB * DZ_PLANE];
    __shared__ float bias_s[THREADS];
    int o0 = blockIdx.y * OB, c0 = blockIdx.z * CB;
    int c = threadIdx.x % CB, o = threadIdx.x / CB % OB, slot = threadIdx.x / PAIRS;
    float sum[K] = {}, bias = 0.0f;

    for (int tile0 = 0; image_of(tile0) < N; tile0 += SLOTS) {
        stage_x(x_s, x, tile0, c0, N);
        stage_dz(dz_s, dy, mask, tile0, o0, N);
        __syncthreads();

        if (c0 == 0)  // the threads of an output channel share its elements
#pragma unroll
            for (int e = 0; e < TILE_H * TILE_W; e += CB)
                if (e + CB <= TILE_H * TILE_W || e + c < TILE_H * TILE_W)
                    bias += dz_s[(slot * OB + o) * DZ_PLANE + e + c];
        const float4* x4 = (const float4*)(x_s + (slot * CB + c) * X_PLANE);
        const float4* dz4 = (const float4*)(dz_s + (slot * OB + o) * DZ_PLANE);
        float rows[KH][XW];  // the KH rows of x that a row of dz meets; the oldest makes way
#pragma unroll
        for (int r = 0; r < XH; ++r) {
#pragma unroll
            for (int v = 0; v < XW; v += 4) {
                float4 four = x4[(r * XW + v) / 4];
                rows[r % KH][v] = four.x, rows[r % KH][v + 1] = four.y;
                rows[r % KH][v + 2] = four.z, rows[r % KH][v + 3] = four.w;
            }
            int i = r - (KH - 1);
            if (i < 0) continue;
#pragma unroll
            for (int v = 0; v < TILE_W; v += 4) {
                float4 four = dz4[(i * TILE_W + v) / 4];
                float g[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                for (int k = 0; k < K; ++k)
#pragma unroll
                    for (int j = 0; j < 4; ++j) sum[k] += g[j] * rows[(i + k / KW) % KH][v + j + k % KW];
            }
        }
        __syncthreads();
    }
    // Pairs of channels last in the workspace: neighbouring threads then write neighbouring addresses.
    float* row = workspace + (blockIdx.x * SLOTS + slot) * COLUMNS;
    if (o0 + o < O && c0 + c < C)
#pragma unroll
        for (int k = 0; k < K; ++k) row[(k * O + o0 + o) * C + c0 + c] = sum[k];
    bias_s[threadIdx.x] = bias;
    __syncthreads();
    if (c || c0 || o0 + o >= O) return;
    for (int part = 1; part < CB; ++part) bias += bias_s[threadIdx.x + part];
    row[O * C * K + o0 + o] = bias;
}
#endif

#define PARTS (COLUMNS > 8192 ? 8 : 32)  // with many columns there are threads enough that add

// Adds up the rows of the workspace, of the kernel above, conv_weight_grad_strips and winograd_weight_grad, 32 columns a
// block. Block: (32, PARTS). Threads of one x share a sum; their parts meet in shared memory, and one thread adds those.
extern "C" __global__ void __launch_bounds__(32 * PARTS) conv_weight_grad_sum(
    const float* workspace, float* dweight, float* dbias, int rows)
{
    __shared__ float parts[PARTS][33];
    int lane = threadIdx.x, part = threadIdx.y, column = blockIdx.x * 32 + lane;
    float sum = 0.0f;
    if (column < COLUMNS)
#pragma unroll 8
        for (int r = part; r < rows; r += PARTS) sum += workspace[r * COLUMNS + column];
    parts[part][lane] = sum;
    __syncthreads();
    if (part || column >= COLUMNS) return;
    sum = 0.0f;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) sum += parts[p][lane];
    if (column < O * C * K) dweight[column % (O * C) * K + column / (O * C)] = sum;
    else dbias[column - O * C * K] = sum;
}
