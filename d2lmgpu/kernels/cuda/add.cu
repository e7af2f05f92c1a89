// dst += src, for the chunks that a collective receives. src may be another card's memory, if that card has peer access.
//
//   dst, src (n,) float32, float64 with DOUBLE, or int64 with LONG; anywhere in memory: chunks of a buffer start where they start
//
// Macros: DOUBLE 0 or 1, or LONG 1. Vectors of 16 bytes must lie at multiples of 16 bytes. So a few elements up to the first such
// place are added one by one, then vectors, then what is left. That works if dst and src are equally far from such a
// place; if not, all elements are added one by one.
// Over NVLink or PCI Express a load takes a microsecond, so many must be under way: each thread asks for all its vectors
// of a round before it adds any.
// Grid: any number of blocks. Block: 256.

#if LONG
#define NUMBER long long
#define VECTOR longlong2
#define ADD(a, b) make_longlong2(a.x + b.x, a.y + b.y)
#elif DOUBLE
#define NUMBER double
#define VECTOR double2
#define ADD(a, b) make_double2(a.x + b.x, a.y + b.y)
#else
#define NUMBER float
#define VECTOR float4
#define ADD(a, b) make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w)
#endif
#define PER_VECTOR (16 / (int)sizeof(NUMBER))
#define ROUND 4  // vectors that a thread asks for at a time

extern "C" __global__ void __launch_bounds__(256) add(NUMBER* dst, const NUMBER* src, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    int dst_offset = (unsigned long long)dst % 16 / sizeof(NUMBER);
    int src_offset = (unsigned long long)src % 16 / sizeof(NUMBER);
    int head = dst_offset == src_offset ? min((PER_VECTOR - dst_offset) % PER_VECTOR, n) : n;
    int vectors = (n - head) / PER_VECTOR, tail = head + vectors * PER_VECTOR;

    for (int i = thread; i < head; i += threads) dst[i] += src[i];
    VECTOR* dst4 = (VECTOR*)(dst + head);
    const VECTOR* src4 = (const VECTOR*)(src + head);
    for (int i = thread; i < vectors; i += ROUND * threads) {
        VECTOR values[ROUND];
#pragma unroll
        for (int r = 0; r < ROUND; ++r)
            if (i + r * threads < vectors) values[r] = src4[i + r * threads];
#pragma unroll
        for (int r = 0; r < ROUND; ++r)
            if (i + r * threads < vectors) dst4[i + r * threads] = ADD(dst4[i + r * threads], values[r]);
    }
    for (int i = tail + thread; i < n; i += threads) dst[i] += src[i];
}
