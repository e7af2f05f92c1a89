// 16-bit numbers, and what kernels/cuda/mma.cuh and half.cuh have for GPUs in inline PTX, for cuda_shim.h.
//
// Every lane has registers of its own here, too, and finds in those of others what the documented layout of fragments
// (PTX ISA) says: a kernel that puts a number into a wrong lane or register computes wrong sums.
#pragma once

static inline unsigned bits_of(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static inline float float_of(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }

struct half { unsigned short bits; };
typedef half __half;
struct __nv_bfloat16 { unsigned short bits; };

// To the nearest; of two equally near, to the even one. Infinite from 65520 on.
static inline half __float2half(float value) {
    unsigned short sign = bits_of(value) >> 16 & 0x8000;
    float size = fabsf(value);
    if (size != size) return {0x7fff};
    if (size >= 65520.0f) return {(unsigned short)(sign | 0x7c00)};
    int exponent = max(-14, size > 0 ? ilogbf(size) : -14);
    int steps = (int)nearbyintf(ldexpf(size, 10 - exponent));  // 2^(exponent-10) apart; 1024 is the implicit bit
    return {(unsigned short)(sign | ((exponent + 14) * 1024 + steps))};
}
static inline float __half2float(half value) {
    int exponent = value.bits >> 10 & 31, steps = value.bits & 1023;
    float size = ldexpf(exponent ? 1024 + steps : steps, max(exponent, 1) - 25);
    if (exponent == 31) size = steps ? NAN : INFINITY;
    return value.bits >> 15 ? -size : size;
}
static inline float round_to_half(float value) { return __half2float(__float2half(value)); }
static inline __nv_bfloat16 __float2bfloat16(float value) {
    unsigned bits = bits_of(value);
    if (value != value) return {0x7fff};
    return {(unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
static inline float __bfloat162float(__nv_bfloat16 value) { return float_of((unsigned)value.bits << 16); }

// To the nearest of 10 bits of fraction; of two equally near, away from zero.
static inline unsigned round_tf32(float value) {
    return value != value ? 0x7fffffff : (bits_of(value) + 0x1000) & 0xffffe000;
}
static inline unsigned round_float16(float low, float high) {
    return __float2half(low).bits | (unsigned)__float2half(high).bits << 16;
}
static inline unsigned round_bfloat16(float low, float high) {
    return __float2bfloat16(low).bits | (unsigned)__float2bfloat16(high).bits << 16;
}

void mma_tf32(float* d, const unsigned* a, const unsigned* b);
void mma_float16(float* d, const unsigned* a, const unsigned* b);
void mma_bfloat16(float* d, const unsigned* a, const unsigned* b);
