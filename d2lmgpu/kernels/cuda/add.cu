// dst += src, for the chunks that a collective receives.
//
//   dst, src (n,) float32, anywhere in memory: chunks of a buffer start where they start
//
// No macros. Vectors of 16 bytes must lie at multiples of 16 bytes. So a few elements up to the first such place are
// added one by one, then vectors, then what is left. That works if dst and src are equally far from such a place;
// if not, all elements are added one by one.
// Grid: any number of blocks. Block: 256.

extern "C" __global__ void __launch_bounds__(256) add(float* __restrict__ dst, const float* __restrict__ src, int n)
{
    int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    int dst_offset = (unsigned long long)dst % 16 / 4, src_offset = (unsigned long long)src % 16 / 4;
    int head = dst_offset == src_offset ? min((4 - dst_offset) % 4, n) : n;
    int vectors = (n - head) / 4, tail = head + vectors * 4;

    for (int i = thread; i < head; i += threads) dst[i] += src[i];
    float4* dst4 = (float4*)(dst + head);
    const float4* src4 = (const float4*)(src + head);
    for (int i = thread; i < vectors; i += threads) {
        float4 d = dst4[i], s = src4[i];
        dst4[i] = make_float4(d.x + s.x, d.y + s.y, d.z + s.z, d.w + s.w);
    }
    for (int i = tail + thread; i < n; i += threads) dst[i] += src[i];
}
