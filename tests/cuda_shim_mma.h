// 16-bit numbers, and what kernels/cuda/mma.cuh has for GPUs in inline PTX, for cuda_shim.h.
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

struct Shown { unsigned a[4], b[2]; const char* unit; };
static Shown shown[1024];  // what each thread shows to its warp in the functions below

static const Shown& lane_shows(int lane) { return shown[current / 32 * 32 + lane]; }

// Show to the warp, look at what it shows, and wait until all have looked.
template <class Look> static void together(const Shown& mine, int line, Look look) {
    shown[current] = mine;
    wait(AT_WARP_BARRIER, line);
    look();
    wait(AT_WARP_BARRIER, -line);
}

// Unit r of eight i is at the address that lane 8 i + r gives.
template <int COUNT, bool TRANSPOSED> static void load(unsigned* r, const void* address, int line) {
    if ((size_t)address % 16) misaligned = true;
    together({{}, {}, (const char*)address}, line, [&] {
        int g = current % 32 / 4, t = current % 4;
        for (int i = 0; i < COUNT; ++i) {
            if (!TRANSPOSED) {
                memcpy(&r[i], lane_shows(8 * i + g).unit + 4 * t, 4);
            } else {
                unsigned short pair[2];
                for (int p = 0; p < 2; ++p) memcpy(&pair[p], lane_shows(8 * i + 2 * t + p).unit + 2 * g, 2);
                r[i] = pair[0] | (unsigned)pair[1] << 16;
            }
        }
    });
}

// d += a b: number k of a row is in unit k / (numbers in a unit), there in word t, and there in a half.
template <int NUMBERS, int UNITS, class Value>
static void mma(float* d, const unsigned* a, const unsigned* b, int line, Value value) {
    const int last = UNITS - 1;  // with one unit there are only half as many registers
    together({{a[0], a[1], a[2 * last], a[1 + 2 * last]}, {b[0], b[last]}, nullptr}, line, [&] {
        int g = current % 32 / 4, t = current % 4;
        for (int e = 0; e < 4; ++e) {
            int row = g + e / 2 * 8, column = 2 * t + e % 2;
            for (int k = 0; k < UNITS * NUMBERS; ++k) {
                int unit = k / NUMBERS, word = k % NUMBERS * 4 / NUMBERS, part = k % NUMBERS % (NUMBERS / 4);
                unsigned from_a = lane_shows(row % 8 * 4 + word).a[unit * 2 + row / 8];
                unsigned from_b = lane_shows(column * 4 + word).b[unit];
                d[e] += value(from_a, part) * value(from_b, part);
            }
        }
    });
}

}  // namespace cuda_shim

template <int COUNT> static void load_units(unsigned* r, const void* unit) {
    cuda_shim::load<COUNT, false>(r, unit, __LINE__);
}
template <int COUNT> static void load_units_transposed(unsigned* r, const void* unit) {
    cuda_shim::load<COUNT, true>(r, unit, __LINE__);
}

static inline float tf32_value(unsigned bits, int) { return float_of(bits & 0xffffe000); }
static inline float float16_value(unsigned bits, int part) {
    return __half2float({(unsigned short)(bits >> 16 * part)});
}
static inline float bfloat16_value(unsigned bits, int part) { return float_of(bits >> 16 * part << 16); }
#define MMA(type, numbers) \
    static void mma_##type(float* d, const unsigned* a, const unsigned* b) { \
        cuda_shim::mma<numbers, 2>(d, a, b, __LINE__, type##_value); \
    } \
    static void mma_one_##type(float* d, const unsigned* a, const unsigned* b) { \
        cuda_shim::mma<numbers, 1>(d, a, b, __LINE__ + 1000, type##_value); \
    }
MMA(tf32, 4)
MMA(float16, 8)
MMA(bfloat16, 8)
