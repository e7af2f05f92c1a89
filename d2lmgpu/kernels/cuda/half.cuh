// Numbers that are kept as float32, but have only the digits of float16: what mixed precision multiplies, see
// networks/mixed.py. Who writes a number that is to be multiplied rounds it, once, and not all who read it.
//
// Macros, 1 or not there:
//   HALF_OUT      what the kernel writes for the next layer, y or dx, is rounded
//   HALF_WEIGHT   the weights that it reads are rounded, as they stay float32 where they are kept
//   HALF_FACTORS  all factors of its products are rounded where they are multiplied; FACTOR_OF needs HALF_OUT, too
//
// Without __CUDACC__ the tests' shim has round_to_half.

#if defined(__CUDACC__) && (defined(HALF_OUT) || defined(HALF_WEIGHT))
// To the nearest; of two equally near, to the even one. Infinite from 65520 on.
static __device__ __forceinline__ float round_to_half(float value)
{
    float rounded;
    asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; cvt.f32.f16 %0, h; }" : "=f"(rounded) : "f"(value));
    return rounded;
}
#endif

#ifdef HALF_OUT
#define OUT_OF(value) round_to_half(value)
#else
#define OUT_OF(value) (value)
#endif

#ifdef HALF_WEIGHT
#define WEIGHT_OF(value) round_to_half(value)
#else
#define WEIGHT_OF(value) (value)
#endif

#ifdef HALF_FACTORS
#define FACTOR_OF(value) round_to_half(value)
#else
#define FACTOR_OF(value) (value)
#endif
