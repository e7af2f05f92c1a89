// One instruction of a tensor core, and how its factors come from shared memory: inline PTX, which needs no header.
//
// A warp multiplies D (16 x 8) += A (16 x k) B (k x 8) in one instruction. The factors have fewer bits than float32,
// the sums D are float32. Macro TYPE:
//   0  tf32      8 bits exponent, 10 bits fraction, kept in 32 bits; k = 8; from sm_80
//   1  float16   5 bits exponent, 10 bits fraction: below 6e-8 all is 0, above 65504 infinite; k = 16; from sm_75
//   2  bfloat16  8 bits exponent,  7 bits fraction; k = 16; from sm_80
// float32 numbers are rounded to the nearest; of two equally near, to the even one, or with tf32 away from zero.
//
// What is along the sum is counted in *units* of 16 bytes: 8 numbers of 16 bits, or 4 of tf32. One instruction takes
// two units of every row of A and of every column of B, whatever the type. So all kernels are written in units.
//
// Which lane of the warp has what (PTX ISA, "Matrix Fragments for mma.m16n8k16 / m16n8k8"), with g = lane / 4 and
// t = lane % 4. A register of A or B has the t-th 4 bytes of a unit: 2 numbers of 16 bits, or 1 of tf32.
//   A  a[0]: row g, unit 0    a[1]: row g + 8, unit 0    a[2]: row g, unit 1    a[3]: row g + 8, unit 1
//   B  b[0]: column g, unit 0    b[1]: column g, unit 1
//   D  d[0], d[1]: row g, columns 2t, 2t + 1    d[2], d[3]: row g + 8, the same columns
//
// multiply takes two units, multiply_one only the first: registers a[0], a[1] and b[0].
//
// load_units (PTX: ldmatrix) makes such registers of units in shared memory: for COUNT times 8 units (COUNT 1, 2 or 4),
// lane 8 i + r gives the address of unit r of the i-th eight, and register i is then its 4 bytes t of unit g.
// load_units_transposed is for 16 bits: a unit has 8 numbers across the sum, and the eight are 8 steps of the sum.
//
// Without __CUDACC__ the tests' shim has functions of the same names, which follow this comment lane by lane.

#define MMA_FUNCTION __device__ __forceinline__

#ifdef __CUDACC__

MMA_FUNCTION unsigned shared_address(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

template <int COUNT>
MMA_FUNCTION void load_units(unsigned r[COUNT], const void* unit)
{
    if (COUNT == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1 % COUNT]), "=r"(r[2 % COUNT]), "=r"(r[3 % COUNT])
                     : "r"(shared_address(unit)) : "memory");
    else if (COUNT == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1 % COUNT]) : "r"(shared_address(unit)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(r[0]) : "r"(shared_address(unit)) : "memory");
}

template <int COUNT>
MMA_FUNCTION void load_units_transposed(unsigned r[COUNT], const void* unit)
{
    if (COUNT == 4)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1 % COUNT]), "=r"(r[2 % COUNT]), "=r"(r[3 % COUNT])
                     : "r"(shared_address(unit)) : "memory");
    else if (COUNT == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
                     : "=r"(r[0]), "=r"(r[1 % COUNT]) : "r"(shared_address(unit)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
                     : "=r"(r[0]) : "r"(shared_address(unit)) : "memory");
}

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

MMA_FUNCTION void mma_one_tf32(float d[4], const unsigned a[2], const unsigned b[1])
{
    asm("mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
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

MMA_FUNCTION void mma_one_float16(float d[4], const unsigned a[2], const unsigned b[1])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}

MMA_FUNCTION void mma_float16(float d[4], const unsigned a[4], const unsigned b[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    mma_one_float16(d, a, b);
    mma_one_float16(d, a + 2, b + 1);
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

MMA_FUNCTION void mma_one_bfloat16(float d[4], const unsigned a[2], const unsigned b[1])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
#endif

#endif  // __CUDACC__

// UNIT: how many numbers make a unit. pack: 4 bytes of a unit, of PER_WORD numbers.
#if TYPE == 0
#define PER_WORD 1
#define multiply mma_tf32
#define multiply_one mma_one_tf32
MMA_FUNCTION unsigned pack(const float value[1]) { return round_tf32(value[0]); }
#else
#define PER_WORD 2
#if TYPE == 1
#define multiply mma_float16
#define multiply_one mma_one_float16
MMA_FUNCTION unsigned pack(const float value[2]) { return round_float16(value[0], value[1]); }
#else
#define multiply mma_bfloat16
#define multiply_one mma_one_bfloat16
MMA_FUNCTION unsigned pack(const float value[2]) { return round_bfloat16(value[0], value[1]); }
#endif
#endif
#define UNIT (4 * PER_WORD)

// A unit of UNIT numbers that lie `step` apart, of which `count` are there; the others are 0.
MMA_FUNCTION uint4 unit_of(const float* from, int step, int count)
{
    unsigned word[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        float value[PER_WORD];
#pragma unroll
        for (int p = 0; p < PER_WORD; ++p) {
            int e = w * PER_WORD + p;
            value[p] = e < count ? from[e * step] : 0.0f;
        }
        word[w] = pack(value);
    }
    uint4 unit = {word[0], word[1], word[2], word[3]};
    return unit;
}
