// 16-bit numbers and warp matrices (nvcuda::wmma) for cuda_shim.h: lane 0 of a warp does the work for all.
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

namespace nvcuda {
namespace wmma {

struct matrix_a; struct matrix_b; struct accumulator; struct row_major; struct col_major;
namespace precision { struct tf32; }
enum layout_t { mem_row_major, mem_col_major };

// To the nearest of 10 bits of fraction; of two equally near, away from zero.
static inline float __float_to_tf32(float value) { return float_of((bits_of(value) + 0x1000) & 0xffffe000); }
static inline float as_float(float value) { return value; }
static inline float as_float(half value) { return __half2float(value); }
static inline float as_float(__nv_bfloat16 value) { return __bfloat162float(value); }

// Kept as [i][k] for a, [k][j] for b, [i][j] for sums, whatever the layout in memory is.
template <class Use, int M, int N, int K, class T, class Order = void> struct fragment {
    static const int ROWS = std::is_same<Use, matrix_b>::value ? K : M;
    static const int COLUMNS = std::is_same<Use, matrix_a>::value ? K : N;
    float values[ROWS][COLUMNS];
};

template <class F> void fill_fragment(F& f, float value) {
    if (LANE) return;
    for (auto& row : f.values)
        for (float& element : row) element = value;
}

template <class Use, int M, int N, int K, class T, class Order, class Stored>
void load_matrix_sync(fragment<Use, M, N, K, T, Order>& f, const Stored* memory, unsigned row) {
    if ((size_t)memory % 32 || row * sizeof(Stored) % 16) abort();  // both are asked for by the guide
    if (LANE) return;
    for (int i = 0; i < f.ROWS; ++i)
        for (int j = 0; j < f.COLUMNS; ++j)
            f.values[i][j] = as_float(memory[std::is_same<Order, row_major>::value ? i * row + j : j * row + i]);
}

template <class D, class A, class B, class S> void mma_sync(D& d, const A& a, const B& b, const S& sum) {
    if (LANE) return;
    for (int i = 0; i < D::ROWS; ++i)
        for (int j = 0; j < D::COLUMNS; ++j) {
            float value = sum.values[i][j];
            for (int k = 0; k < A::COLUMNS; ++k) value += a.values[i][k] * b.values[k][j];
            d.values[i][j] = value;
        }
}

template <class F> void store_matrix_sync(float* memory, const F& f, unsigned row, layout_t) {
    if (LANE) return;
    for (int i = 0; i < F::ROWS; ++i)
        for (int j = 0; j < F::COLUMNS; ++j) memory[i * row + j] = f.values[i][j];
}

}  // namespace wmma
}  // namespace nvcuda
