// The gradients of convolution + bias + ReLU + pooling (conv_forward.cu) with respect to weight and bias.
//
//   x (N, C, H, W), dy, mask (N, O, PH, PW) → dweight (O, C, KH, KW), dbias (O,), float32 (mask: uint16), NCHW
//   dweight[o,c,ki,kj] = Σ_n,i,j dz[n,o,i,j] · x[n,c,i+ki,j+kj]    dbias[o] = Σ_n,i,j dz[n,o,i,j]
//
// with dz as in conv_input_grad.cu. The gradients are written, not added to what was there.
//
// All images add to the same few numbers. Atomic additions would do it, but in another order, with other roundings,
// every time. Instead each group of images writes its own partial sums to a workspace, and a second kernel adds those
// in a fixed order: the same bits, run for run.
//
// Macros: C O H W KH KW S MAX_POOL RELU as in conv_forward.cu; N is an argument. For v2 also OB, CB, SLOTS, TILE_H.
//
// The ladder (counting for LeNet's second convolution: C=20, O=50, K=5, 8 × 8 outputs z):
//   v1  one thread a weight goes through all images in global memory: two loads a multiplication, and only 25,000
//       threads, each with 16,384 multiplications one after another.
//   v2  a thread owns a kernel, its 25 sums in registers, for a group of images. It walks down the tile of dz: a row of
//       dz (8 elements) meets 5 rows of x, of which 4 are still in registers: 200 multiplications for 5 vector loads.
//       For 256 images a scheduler of an H100 gets four warps, of about 7,900 instructions each, 6,400 of them
//       multiplications: 18 µs at one a clock. An estimate, as in conv_forward.cu.

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define ZH (PH * S)  // rows and columns of dz
#define ZW (PW * S)
#define K (KH * KW)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

// dz[n, o, i, j]; zero outside.
static __device__ __forceinline__ float unpool(
    const float* __restrict__ dy, const unsigned short* __restrict__ mask, int n, int o, int i, int j)
{
    if (i >= ZH || j >= ZW || o >= O) return 0.0f;
    int index = ((n * O + o) * PH + i / S) * PW + j / S;
    float g = MAX_POOL ? dy[index] : dy[index] * (1.0f / (S * S));
    return mask[index] >> (i % S * S + j % S) & 1 ? g : 0.0f;
}

extern "C" __global__ void __launch_bounds__(256) conv_weight_grad_v1(
    const float* __restrict__ x, const float* __restrict__ dy, const unsigned short* __restrict__ mask,
    float* __restrict__ dweight, float* __restrict__ dbias, int N)
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
// A block computes the kernels of OB output and CB input channels. It walks through the tiles (TILE_H × TILE_W of dz)
// of its group of images, SLOTS tiles at a time: a thread has a kernel and a slot, and each slot sums for itself.
// Group g has the images g, g + gridDim.x, … Grid: (groups, O / OB, C / CB). Block: CB × OB × SLOTS, CB first.
// Workspace: gridDim.x · SLOTS rows of K × O × C floats.
#define TILE_W (ZW <= 4 ? 4 : 8)
#define TILES_X CEIL_DIV(ZW, TILE_W)
#define TILES (CEIL_DIV(ZH, TILE_H) * TILES_X)        // of an image
#define PAIRS (OB * CB)
#define THREADS (PAIRS * SLOTS)
#define XH (TILE_H + KH - 1)                          // the part of x that a tile meets
#define XW (CEIL_DIV(TILE_W + KW - 1, 4) * 4)
#define X_PLANE ((XH * XW / 4 | 1) * 4)               // an odd number of vectors avoids bank conflicts
#define DZ_PLANE ((TILE_H * TILE_W / 4 | 1) * 4)

extern "C" __global__ void __launch_bounds__(THREADS) conv_weight_grad(
    const float* __restrict__ x, const float* __restrict__ dy, const unsigned short* __restrict__ mask,
    float* __restrict__ workspace, int N)
{
    __shared__ __align__(16) float x_s[SLOTS * CB * X_PLANE], dz_s[SLOTS * OB * DZ_PLANE];
    int o0 = blockIdx.y * OB, c0 = blockIdx.z * CB;
    int c = threadIdx.x % CB, o = threadIdx.x / CB % OB, slot = threadIdx.x / PAIRS;
    int images = CEIL_DIV(N - (int)blockIdx.x, (int)gridDim.x);  // in this group
    float sum[K] = {};

    for (int tile0 = 0; tile0 < images * TILES; tile0 += SLOTS) {
        for (int i = threadIdx.x; i < SLOTS * CB * XH * XW; i += THREADS) {
            int col = i % XW, row = i / XW % XH, plane = i / (XW * XH), tile = tile0 + plane / CB;
            int n = blockIdx.x + tile / TILES * gridDim.x, channel = c0 + plane % CB;
            int h = tile % TILES / TILES_X * TILE_H + row, w = tile % TILES_X * TILE_W + col;
            bool there = n < N && channel < C && h < H && w < W;
            x_s[plane * X_PLANE + row * XW + col] = there ? x[((n * C + channel) * H + h) * W + w] : 0.0f;
        }
        for (int i = threadIdx.x; i < SLOTS * OB * TILE_H * TILE_W; i += THREADS) {
            int col = i % TILE_W, row = i / TILE_W % TILE_H, plane = i / (TILE_W * TILE_H), tile = tile0 + plane / OB;
            int n = blockIdx.x + tile / TILES * gridDim.x;
            int zi = tile % TILES / TILES_X * TILE_H + row, zj = tile % TILES_X * TILE_W + col;
            dz_s[plane * DZ_PLANE + row * TILE_W + col] = n < N ? unpool(dy, mask, n, o0 + plane % OB, zi, zj) : 0.0f;
        }
        __syncthreads();

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
    if (o0 + o < O && c0 + c < C)
#pragma unroll
        for (int k = 0; k < K; ++k)
            workspace[(((blockIdx.x * SLOTS + slot) * K + k) * O + o0 + o) * C + c0 + c] = sum[k];
}
#endif

// Adds up: the rows of the workspace to dweight (the first blocks, 32 weights each), and dz to dbias (then O blocks).
// Block: (32, 32). Threads of one x share a sum; their 32 parts meet in shared memory, and one thread adds those.
extern "C" __global__ void __launch_bounds__(1024) conv_weight_grad_reduce(
    const float* __restrict__ workspace, const float* __restrict__ dy, const unsigned short* __restrict__ mask,
    float* __restrict__ dweight, float* __restrict__ dbias, int rows, int N)
{
    __shared__ float parts[32][33];
    int weight_blocks = CEIL_DIV(O * C * K, 32), lane = threadIdx.x, part = threadIdx.y;
    int index = blockIdx.x * 32 + lane, o = blockIdx.x - weight_blocks;
    float sum = 0.0f;
    if (o < 0) {
        if (index < O * C * K)
            for (int r = part; r < rows; r += 32) sum += workspace[r * (O * C * K) + index];
    } else {
        // Σ dz over a square is dy times the number of bits in its mask.
        for (int i = part * 32 + lane; i < N * PH * PW; i += 1024) {
            int square = (i / (PH * PW) * O + o) * (PH * PW) + i % (PH * PW);
            sum += dy[square] * __popc(mask[square]);
        }
    }
    parts[part][lane] = sum;
    __syncthreads();
    if (part == 0) {
        sum = 0.0f;
        for (int p = 0; p < 32; ++p) sum += parts[p][lane];
        if (o < 0 && index < O * C * K) dweight[index % (O * C) * K + index / (O * C)] = sum;
        parts[0][lane] = sum;
    }
    __syncthreads();
    if (o >= 0 && part == 0 && lane == 0) {
        sum = 0.0f;
        for (int l = 0; l < 32; ++l) sum += parts[0][l];
        dbias[o] = MAX_POOL ? sum : sum * (1.0f / (S * S));
    }
}
