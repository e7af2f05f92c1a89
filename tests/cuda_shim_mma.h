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

namespace cuda_shim {

struct Shown { unsigned a[4], b[2]; };
static Shown shown[1024];  // what each thread shows to its warp in the functions below

static const Shown& lane_shows(int lane) { return shown[current / 32 * 32 + lane]; }

// Show to the warp, look at what it shows, and wait until all have looked.
template <class Look> static void together(const Shown& mine, int line, Look look) {
    shown[current] = mine;
    wait(AT_WARP_BARRIER, line);
    look();
    wait(AT_WARP_BARRIER, -line);
}

// d += a b: number k of a row is in word k / (numbers in a word) of eight, and there in a half.
template <int NUMBERS, class Value>
static void mma(float* d, const unsigned* a, const unsigned* b, int line, Value value) {
    together({{a[0], a[1], a[2], a[3]}, {b[0], b[1]}}, line, [&] {
        int g = current % 32 / 4, t = current % 4;
        for (int e = 0; e < 4; ++e) {
            int row = g + e / 2 * 8, column = 2 * t + e % 2;
            for (int k = 0; k < 8 * NUMBERS; ++k) {
                int word = k / NUMBERS, part = k % NUMBERS;
                unsigned from_a = lane_shows(row % 8 * 4 + word % 4).a[word / 4 * 2 + row / 8];
                unsigned from_b = lane_shows(column * 4 + word % 4).b[word / 4];
                d[e] += value(from_a, part) * value(from_b, part);
            }
        }
    });
}

}  // namespace cuda_shim

static inline float tf32_value(unsigned bits, int) { return float_of(bits & 0xffffe000); }
static inline float float16_value(unsigned bits, int part) {
    return __half2float({(unsigned short)(bits >> 16 * part)});
}
static inline float bfloat16_value(unsigned bits, int part) { return float_of(bits >> 16 * part << 16); }
#define MMA(type, numbers) \
    static void mma_##type(float* d, const unsigned* a, const unsigned* b) { \
        cuda_shim::mma<numbers>(d, a, b, __LINE__, type##_value); \
    }
MMA(tf32, 1)
MMA(float16, 2)
MMA(bfloat16, 2)
