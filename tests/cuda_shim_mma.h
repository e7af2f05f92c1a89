// 16-bit numbers, and what kernels/cuda/mma.cuh and half.cuh have for GPUs in inline PTX, for cuda_shim.h.
//
// Every lane has registers of its own here, too, and finds in those of others what the documented layout of fragments
// (PTX ISA) says: a kernel that puts a number into a wrong lane or register computes wrong sums.
#pragma once

static inline unsigned bits_of(float value) { unsigned bits; memcpy(&bits, &value, 4); return bits; }
static inline float float_of(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }

struct half { unsigned short bits; };
typedef half __half;

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
static inline unsigned pack(float low, float high) {
    return __float2half(low).bits | (unsigned)__float2half(high).bits << 16;
}

void multiply(float* d, const unsigned* a, const unsigned* b);
