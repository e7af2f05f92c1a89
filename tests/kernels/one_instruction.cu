// One multiplication of tensor cores, by the layout of fragments that the PTX ISA describes (test_cuda_kernels.py).
extern "C" __global__ void one_instruction(const float* a, const float* b, float* d)
{
    int g = threadIdx.x / 4, t = threadIdx.x % 4;  // A is 16 rows of 8 words, B 8 columns of 8 words
    unsigned in_a[4], in_b[2];
    auto word = [](const float* numbers, int i) { return pack(numbers[2 * i], numbers[2 * i + 1]); };
    for (int e = 0; e < 4; ++e) in_a[e] = word(a, (g + e % 2 * 8) * 8 + t + e / 2 * 4);
    for (int e = 0; e < 2; ++e) in_b[e] = word(b, g * 8 + t + e * 4);
    float sum[4] = {};
    multiply(sum, in_a, in_b);
    for (int e = 0; e < 4; ++e) d[(g + e / 2 * 8) * 8 + t * 2 + e % 2] = sum[e];
}
