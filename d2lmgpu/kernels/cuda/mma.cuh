// One instruction of a tensor core: inline PTX, which needs no header.
//
// A warp multiplies D (16 x 8) += A (16 x k) B (k x 8) in one instruction. The factors have fewer bits than float32,
// the sums D are float32. Macro TYPE:
//   0  tf32      8 bits exponent, 10 bits fraction, kept in 32 bits; k = 8; from sm_80
//   1  float16   5 bits exponent, 10 bits fraction: below 6e-8 all is 0, above 65504 infinite; k = 16; from sm_75
//   2  bfloat16  8 bits exponent,  7 bits fraction; k = 16; from sm_80
// float32 numbers are rounded to the nearest; of two equally near, to the even one, or with tf32 away from zero.
//
// Which lane of the warp has what (PTX ISA, "Matrix Fragments for mma.m16n8k16 / m16n8k8"), with g = lane / 4 and
// t = lane % 4. A register of A or B has a word of PER_WORD numbers that follow each other along the sum, 2 of 16 bits or 1
// of tf32; along the sum an instruction takes eight such words.
//   A  a[0]: row g, word t    a[1]: row g + 8, word t    a[2]: row g, word t + 4    a[3]: row g + 8, word t + 4
//   B  b[0]: column g, word t    b[1]: column g, word t + 4
//   D  d[0], d[1]: row g, columns 2t, 2t + 1    d[2], d[3]: row g + 8, the same columns
//
// Without __CUDACC__ the tests' shim has functions of the same names, which follow this comment lane by lane.

#define MMA_FUNCTION __device__ __forceinline__

#ifdef __CUDACC__

#if TYPE == 0
MMA_FUNCTION unsigned round_tf32(float value)
{
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

MMA_FUNCTION void mma_tf32(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#elif TYPE == 1
MMA_FUNCTION unsigned round_float16(float low, float high)
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

MMA_FUNCTION void mma_float16(float d[4], const unsigned a[4], const unsigned b[2])
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
#else
MMA_FUNCTION unsigned round_bfloat16(float low, float high)
{
    unsigned bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

MMA_FUNCTION void mma_bfloat16(float d[4], const unsigned a[4], const unsigned b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

#endif  // __CUDACC__

// PER_WORD: how many numbers are 4 bytes. pack: makes 4 bytes of them.
#if TYPE == 0
#define PER_WORD 1
#define multiply mma_tf32
MMA_FUNCTION unsigned pack(const float value[1]) { return round_tf32(value[0]); }
#else
#define PER_WORD 2
#if TYPE == 1
#define multiply mma_float16
MMA_FUNCTION unsigned pack(const float value[2]) { return round_float16(value[0], value[1]); }
#else
#define multiply mma_bfloat16
MMA_FUNCTION unsigned pack(const float value[2]) { return round_bfloat16(value[0], value[1]); }
#endif
#endif
