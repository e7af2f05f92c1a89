// One instruction of a tensor core: inline PTX, which needs no header.
//
// A warp multiplies D (16 x 8) += A (16 x 16) B (16 x 8) in one instruction. The factors are float16: 5 bits exponent, 10
// bits fraction; below 6e-8 all is 0, above 65504 infinite. The sums D are float32.
//
// Which lane of the warp has what (PTX ISA, "Matrix Fragments for mma.m16n8k16"), with g = lane / 4 and t = lane % 4. A
// register of A or B has a word of two numbers that follow each other along the sum, eight words of it in all.
//   A  a[0]: row g, word t    a[1]: row g + 8, word t    a[2]: row g, word t + 4    a[3]: row g + 8, word t + 4
//   B  b[0]: column g, word t    b[1]: column g, word t + 4
//   D  d[0], d[1]: row g, columns 2t, 2t + 1    d[2], d[3]: row g + 8, the same columns
//
// Without __CUDACC__ the tests' shim has functions of the same names, which follow this comment lane by lane.

#ifdef __CUDACC__

// A word, rounded to the nearest; of two equally near, to the even one.
static __device__ __forceinline__ unsigned pack(float low, float high)
{
    unsigned bits;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
#else
    asm("{ .reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h}; }"
        : "=r"(bits) : "f"(low), "f"(high));
#endif
    return bits;
}

static __device__ __forceinline__ void multiply(float d[4], const unsigned a[4], const unsigned b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else  // Turing: half of the sum at a time
    for (int half = 0; half < 2; ++half)
        asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#endif
}

#endif  // __CUDACC__
