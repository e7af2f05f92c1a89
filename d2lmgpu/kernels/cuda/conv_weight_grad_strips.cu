// The gradients of conv_weight_grad.cu where there are few input channels, as in a first convolution: version 3.
//
//   x (N, C, H, W), dy, mask (N, O, PH, PW) -> dweight (O, C, KH, KW), dbias (O,), float32 (mask: uint16), NCHW
//
// Macros: C O H W KH KW S MAX_POOL RELU as in conv_forward.cu; OB, IMAGES, ROWS, STRIP below. N is an argument.
//
// Another rung of the ladder (counting for LeNet's first convolution: C=1, O=20, K=3, S=2, 13 x 13 pooled outputs):
//   v2  gives a thread a kernel, but here are only 20 of those: a thread has 9 multiplications for each element of dz
//       that it unpools and writes to shared memory, and nobody to share it with.
//   v3  a thread owns an output channel and a strip of pooled squares, and has the sums of all C kernels and the bias's
//       in registers. It unpools while it walks: a square is one load of 8 bytes, gradient and mask together, which
//       serves its S x S elements of dz; x slides along in registers, S new columns a square. Lanes of a warp have
//       different output channels and mostly the same strip, so that they read x at the same address, at once.
//       A square is some 60 instructions, 40 of them arithmetic, so a warp has 1,000 in all. For 256 images that is
//       5 us on an H100, predicted.
//
// The sums of a block's strips meet in shared memory, and those of blocks in a workspace, always in the same order.

#define PH ((H - KH + 1) / S)
#define PW ((W - KW + 1) / S)
#define K (KH * KW)
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))
#define SUMS (C * K + 1)                                    // of an output channel: its weights and its bias

// A block takes tiles of IMAGES images, ROWS rows of pooled squares, all input and OB output channels: tile blockIdx.x,
// tile blockIdx.x + gridDim.x, ... A row is cut into strips of STRIP squares. Grid: (groups, O / OB).
// Block: OB x strips x ROWS x IMAGES, OB first. Workspace: gridDim.x rows, as of conv_weight_grad.
#define STRIPS CEIL_DIV(PW, STRIP)                          // of a row
#define BANDS CEIL_DIV(PH, ROWS)                            // of an image
#define THREADS (OB * STRIPS * ROWS * IMAGES)
#define VECTOR (S == 3 ? 1 : S)                             // S new columns of x are one load, but for S = 3
#define PAD ((VECTOR - (KW - 1) % VECTOR) % VECTOR)         // they begin at column KW - 1, which is to be aligned
#define XH (ROWS * S + KH - 1)
#define X_ROW (CEIL_DIV(PAD + W, VECTOR) * VECTOR)
#define X_FLOATS (CEIL_DIV(IMAGES * C * XH * X_ROW, 4) * 4)
#define SQUARES (IMAGES * OB * ROWS * PW)
#define PLANE (ROWS * PW | 1)                               // odd: lanes, with an o each, are in different banks
#define STAGED (X_FLOATS + IMAGES * OB * PLANE * 2)
#define SHARED (STAGED > SUMS * THREADS ? STAGED : SUMS * THREADS)

struct __align__(8) Square {
    float g;        // dz, where it is not zero
    unsigned mask;  // where that is
};

// S neighbouring floats, aligned.
static __device__ __forceinline__ void load(float* to, const float* from)
{
#if S == 2
    float2 two = *(const float2*)from;
    to[0] = two.x, to[1] = two.y;
#elif S == 4
    float4 four = *(const float4*)from;
    to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
#else
#pragma unroll
    for (int j = 0; j < S; ++j) to[j] = from[j];
#endif
}

// A thread's loads of a tile are under way together, BATCH(...) at a time. What is outside of an array is not a branch,
// which would make the next load wait, but a load of the array's last element and then, where it matters, a zero.
#define EACH(count) CEIL_DIV(count, THREADS)
#define BATCH(count) CEIL_DIV(EACH(count), CEIL_DIV(EACH(count), 8))

// The rows of x that the tile needs, the first at x[start]; ``size``: of x.
static __device__ __forceinline__ void stage_x(float* x_s, const float* x, int start, unsigned size)
{
    const int count = IMAGES * C * XH * W, batch = BATCH(count);
    for (int first = threadIdx.x; first < count; first += batch * THREADS) {
        float value[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = first + u * THREADS;
            unsigned index = start + (i / (XH * W) * (H * W) + i % (XH * W));
            value[u] = index < size ? x[min(index, size - 1)] : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = first + u * THREADS;
            if (i < count) x_s[i / W * X_ROW + PAD + i % W] = value[u];
        }
    }
}

// The tile's squares. Those of images and rows that are not there are zero, those of channels are never used.
static __device__ __forceinline__ void stage_squares(Square* squares, const float* dy,
    const unsigned short* mask, int n0, int o0, int row0, int N)
{
    const int count = SQUARES, batch = BATCH(SQUARES), start = (n0 * O + o0) * (PH * PW) + row0 * PW;
    const unsigned size = N * O * (PH * PW);
    for (int first = threadIdx.x; first < count; first += batch * THREADS) {
        Square value[batch];
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = first + u * THREADS, plane = i / (ROWS * PW), s = i % (ROWS * PW);
            bool whole = ROWS == PH && (IMAGES == 1 || OB == O);  // then the tile is one piece of dy
            unsigned index = start + (whole ? i : (plane / OB * O + plane % OB) * (PH * PW) + s);
            index = min(index, size - 1);
            value[u].g = dy[index] * (MAX_POOL ? 1.0f : 1.0f / (S * S));
            value[u].mask = mask[index];
            if (IMAGES > 1 && n0 + plane / OB >= N || PH % ROWS && row0 * PW + s >= PH * PW) value[u] = {0.0f, 0u};
        }
#pragma unroll
        for (int u = 0; u < batch; ++u) {
            int i = first + u * THREADS;
            if (i < count) squares[i / (ROWS * PW) * PLANE + i % (ROWS * PW)] = value[u];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) conv_weight_grad_strips(
    const float* x, const float* dy, const unsigned short* mask, float* workspace, int N)
{
    __shared__ __align__(16) float shared[SHARED];
    Square* squares = (Square*)(shared + X_FLOATS);
    int o = threadIdx.x % OB;
    int strip = threadIdx.x / OB % STRIPS, row = threadIdx.x / (OB * STRIPS) % ROWS;
    int image = threadIdx.x / (OB * STRIPS * ROWS);
    int length = PW % STRIP ? min(STRIP, PW - strip * STRIP) : STRIP;
    float sum[SUMS] = {};  // the last is the bias's

    for (int tile = blockIdx.x; tile < CEIL_DIV(N, IMAGES) * BANDS; tile += gridDim.x) {
        int n0 = tile / BANDS * IMAGES, row0 = tile % BANDS * ROWS;
        stage_x(shared, x, (n0 * C * H + row0 * S) * W, N * C * H * W);
        stage_squares(squares, dy, mask, n0, blockIdx.y * OB, row0, N);
        __syncthreads();

        const float* x_s = shared + (image * C * XH + row * S) * X_ROW + PAD + strip * STRIP * S;
        const Square* square = squares + (image * OB + o) * PLANE + row * PW + strip * STRIP;
        float patch[C][S + KH - 1][S + KW - 1];  // what a square meets
#pragma unroll
        for (int i = 0; i < C * (S + KH - 1); ++i)
#pragma unroll
            for (int j = 0; j < KW - 1; ++j)
                patch[i / (S + KH - 1)][i % (S + KH - 1)][S + j] =
                    x_s[(i / (S + KH - 1) * XH + i % (S + KH - 1)) * X_ROW + j];
        constexpr int squares_at_once = S * S * C * K <= 64 ? 4 : 1;
#pragma unroll squares_at_once
        for (int s = 0; s < length; ++s) {
#pragma unroll
            for (int i = 0; i < C * (S + KH - 1); ++i) {
                int c = i / (S + KH - 1), r = i % (S + KH - 1);
#pragma unroll
                for (int j = 0; j < KW - 1; ++j) patch[c][r][j] = patch[c][r][S + j];
                load(patch[c][r] + KW - 1, x_s + (c * XH + r) * X_ROW + KW - 1 + s * S);
            }
            Square here = square[s];
#pragma unroll
            for (int z = 0; z < S * S; ++z) {
                float dz = here.mask >> z & 1 ? here.g : 0.0f;
#pragma unroll
                for (int k = 0; k < C * K; ++k)
                    sum[k] += dz * patch[k / K][z / S + k % K / KW][z % S + k % KW];
                sum[C * K] += dz;
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int k = 0; k < SUMS; ++k) shared[k * THREADS + threadIdx.x] = sum[k];
    __syncthreads();
    for (int i = threadIdx.x; i < SUMS * OB; i += THREADS) {
        int k = i / OB, channel = blockIdx.y * OB + i % OB;
        float total = 0.0f;
        for (int part = 0; part < THREADS / OB; ++part) total += shared[k * THREADS + part * OB + i % OB];
        if (channel < O) {
            int column = k < C * K ? (k % K * O + channel) * C + k / K : C * K * O + channel;
            workspace[blockIdx.x * (SUMS * O) + column] = total;
        }
    }
}
