// The dense layer and its gradients: three matrix products.
//
//   forward      y = relu(x @ weight + bias)        x (N, D), weight (D, O), bias (O,), y (N, O), float32
//   input grad   dx = dz @ weight^T                  dz = dy where y > 0, else 0; without ReLU dz = dy
//   weight grad  dweight = x^T @ dz, dbias = 1^T @ dz
//
// Macros: D O; RELU 0 or 1; TILE 16 or 32, the side of the square of the result that a block computes.
// N is an argument.
//
// The ladder:
//   v1  (forward only) one thread an output, two global loads a multiplication.
//   v2  all three. The matrices of a small network are small: 256 x 128 results are just 32 tiles of 32 x 32, and would
//       keep 32 of a GPU's hundred multiprocessors busy with 800 steps one after another. So tiles are small, and the
//       threads of a block also share the *sum*: each group of threads (a slice) takes every SLICES-th step of it, and
//       adds 4 x 4 outputs in registers, 16 multiplications for 2 vector loads. At the end the slices' sums are added
//       in a fixed order. The next chunk's loads from global memory are under way while this one is multiplied.
//
// Grid of v2: (tiles across, tiles down) of the result; of dweight with one more row, which is dbias. Block: 256.

#define SIDE (TILE / 4)                    // vectors along a side of the tile
#define SLICES (256 / (SIDE * SIDE))
#define CHUNK (2048 / TILE)                // steps of the sum that are in shared memory at a time
#define LOADS (CHUNK * SIDE / 256)         // vectors of a chunk of one factor that a thread brings
#define ROW (SIDE + 1)                     // an odd row length in vectors avoids bank conflicts

extern "C" __global__ void __launch_bounds__(256) dense_forward_v1(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int N)
{
    int index = blockIdx.x * blockDim.x + threadIdx.x, n = index / O, o = index % O;
    if (n >= N) return;
    float sum = bias[o];
    for (int d = 0; d < D; ++d) sum += x[n * D + d] * weight[d * O + o];
    y[index] = RELU && sum <= 0.0f ? 0.0f : sum;  // what is not a number stays so
}

// One factor of a product: element (i, k) is values[i * step + k * step_k], for i < size; k is what is summed over.
// Where gate is given and not positive, the element counts as 0. Row `ones`, if any, is all ones.
struct Factor {
    const float *values, *gate;
    int size, step, step_k, ones;
};

static __device__ __forceinline__ float element(Factor f, int i, int k, int K)
{
    if (k >= K) return 0.0f;
    if (i == f.ones) return 1.0f;
    if (i >= f.size) return 0.0f;
    int at = i * f.step + k * f.step_k;
    return f.gate && !(f.gate[at] > 0.0f) ? 0.0f : f.values[at];
}

// Where a thread's v-th vector of a chunk is: along the sum if the factor's memory runs that way, so that reads of
// global memory are coalesced, else along the tile.
static __device__ __forceinline__ void place(Factor f, int v, int* quad, int* k)
{
    int at = v * 256 + threadIdx.x;
    *quad = f.step_k == 1 ? at / CHUNK : at % SIDE;
    *k = f.step_k == 1 ? at % CHUNK : at / SIDE;
}

static __device__ __forceinline__ void fetch(Factor f, int i0, int k0, int K, float4 vectors[LOADS])
{
#pragma unroll
    for (int v = 0; v < LOADS; ++v) {
        int quad, k;
        place(f, v, &quad, &k);
        int i = i0 + quad * 4;
        vectors[v] = make_float4(element(f, i, k0 + k, K), element(f, i + 1, k0 + k, K),
                                 element(f, i + 2, k0 + k, K), element(f, i + 3, k0 + k, K));
    }
}

static __device__ __forceinline__ void store(Factor f, const float4 vectors[LOADS], float4* shared)
{
#pragma unroll
    for (int v = 0; v < LOADS; ++v) {
        int quad, k;
        place(f, v, &quad, &k);
        shared[k * ROW + quad] = vectors[v];
    }
}

// sum over k of a(i, k) * b(j, k), for the tile at (i0, j0). Leaves the slices' sums in shared memory: see `total`.
static __device__ __forceinline__ void product(Factor a, Factor b, int i0, int j0, int K, float4* shared)
{
    float4 *a_s = shared, *b_s = shared + CHUNK * ROW, a_next[LOADS], b_next[LOADS];
    int slice = threadIdx.x / (SIDE * SIDE), ti = threadIdx.x / SIDE % SIDE, tj = threadIdx.x % SIDE;
    float4 sum[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    fetch(a, i0, 0, K, a_next);
    fetch(b, j0, 0, K, b_next);
    for (int k0 = 0; k0 < K; k0 += CHUNK) {
        store(a, a_next, a_s);
        store(b, b_next, b_s);
        __syncthreads();
        if (k0 + CHUNK < K) {
            fetch(a, i0, k0 + CHUNK, K, a_next);
            fetch(b, j0, k0 + CHUNK, K, b_next);
        }
#pragma unroll
        for (int k = 0; k < CHUNK; k += SLICES) {
            float4 a4 = a_s[(k + slice) * ROW + ti], b4 = b_s[(k + slice) * ROW + tj];
            float a_i[4] = {a4.x, a4.y, a4.z, a4.w};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                sum[i].x += a_i[i] * b4.x, sum[i].y += a_i[i] * b4.y;
                sum[i].z += a_i[i] * b4.z, sum[i].w += a_i[i] * b4.w;
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) shared[(slice * TILE + ti * 4 + i) * SIDE + tj] = sum[i];
    __syncthreads();
}

// Element e = row * TILE + column of the tile: the slices' sums added.
static __device__ __forceinline__ float total(const float4* shared, int e)
{
    float sum = 0.0f;
#pragma unroll
    for (int slice = 0; slice < SLICES; ++slice) sum += ((const float*)shared)[slice * TILE * TILE + e];
    return sum;
}

extern "C" __global__ void __launch_bounds__(256, 2) dense_forward(
    const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
    float* __restrict__ y, int N)
{
    __shared__ float4 shared[2 * CHUNK * ROW];
    int i0 = blockIdx.y * TILE, j0 = blockIdx.x * TILE;
    Factor rows = {x, nullptr, N, D, 1, -1}, columns = {weight, nullptr, O, 1, O, -1};
    product(rows, columns, i0, j0, D, shared);
    for (int e = threadIdx.x; e < TILE * TILE; e += 256) {
        int n = i0 + e / TILE, o = j0 + e % TILE;
        if (n >= N || o >= O) continue;
        float z = total(shared, e) + bias[o];
        y[n * O + o] = RELU && z <= 0.0f ? 0.0f : z;
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) dense_input_grad(
    const float* __restrict__ dy, const float* __restrict__ y, const float* __restrict__ weight,
    float* __restrict__ dx, int N)
{
    __shared__ float4 shared[2 * CHUNK * ROW];
    int i0 = blockIdx.y * TILE, j0 = blockIdx.x * TILE;
    Factor rows = {dy, RELU ? y : nullptr, N, O, 1, -1}, columns = {weight, nullptr, D, O, 1, -1};
    product(rows, columns, i0, j0, O, shared);
    for (int e = threadIdx.x; e < TILE * TILE; e += 256) {
        int n = i0 + e / TILE, d = j0 + e % TILE;
        if (n < N && d < D) dx[n * D + d] = total(shared, e);
    }
}

// dbias is the gradient of one more row of weights, whose input is always 1.
extern "C" __global__ void __launch_bounds__(256, 2) dense_weight_grad(
    const float* __restrict__ x, const float* __restrict__ dy, const float* __restrict__ y,
    float* __restrict__ dweight, float* __restrict__ dbias, int N)
{
    __shared__ float4 shared[2 * CHUNK * ROW];
    int i0 = blockIdx.y * TILE, j0 = blockIdx.x * TILE;
    Factor rows = {x, nullptr, D, 1, D, D}, columns = {dy, RELU ? y : nullptr, O, 1, O, -1};
    product(rows, columns, i0, j0, N, shared);
    for (int e = threadIdx.x; e < TILE * TILE; e += 256) {
        int d = i0 + e / TILE, o = j0 + e % TILE;
        if (o < O && d < D) dweight[d * O + o] = total(shared, e);
        if (o < O && d == D) dbias[o] = total(shared, e);
    }
}
