// 8-bit floats: E4M3, which has no infinity, and E5M2, the upper half of a half.
#pragma once

#include "cuda_bf16.h"

typedef unsigned char __nv_fp8_storage_t;
typedef unsigned short __nv_fp8x2_storage_t;
typedef unsigned __nv_fp8x4_storage_t;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

namespace sapwood_cuda {

// Rounds to the nearest once, of two equally near to the even one.
inline __nv_fp8_storage_t byte_float(double x, __nv_saturation_t saturation, __nv_fp8_interpretation_t kind) {
    const bool wide = kind == __NV_E5M2;
    const int fraction = wide ? 2 : 3, lowest = wide ? -14 : -6; // bits, and the exponent that small numbers have too
    const unsigned greatest = wide ? 0x7b : 0x7e;
    const unsigned long long bits = same_bits<unsigned long long>(x), size = bits & ~(1ull << 63);
    const unsigned sign = unsigned(bits >> 56) & 0x80;
    if (x != x) return 0x7f;
    unsigned long long rounded;
    if (size >> 52 < 1023ull + lowest) rounded = (unsigned long long)std::nearbyint(std::fabs(x) * double(1 << (fraction - lowest)));
    else {
        const int lost = 52 - fraction;
        const unsigned long long half = (1ull << (lost - 1)) - 1 + (size >> lost & 1);
        rounded = ((size + half) >> lost) - ((unsigned long long)(1022 + lowest) << fraction);
    }
    if (rounded <= greatest) return __nv_fp8_storage_t(sign | rounded);
    return __nv_fp8_storage_t(sign | (saturation == __NV_SATFINITE ? greatest : greatest + 1)); // an infinity, or the NaN
}
inline unsigned short half_bits(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    const unsigned sign = unsigned(x & 0x80) << 8, size = x & 0x7f;
    if (size > (kind == __NV_E5M2 ? 0x7cu : 0x7eu)) return 0x7fff;
    if (kind == __NV_E5M2) return (unsigned short)(x << 8);
    if (size >= 8) return (unsigned short)(sign | ((size << 7) + (8u << 10)));
    return (unsigned short)(sign | HalfFormat::from_float(float(size) / 512));
}

} // namespace sapwood_cuda

#define SAPWOOD_TO_BYTES(name, T, number)                                                                        \
    static inline __nv_fp8_storage_t __nv_cvt_##name##_to_fp8(T x, __nv_saturation_t s, __nv_fp8_interpretation_t k) { \
        return sapwood_cuda::byte_float(number, s, k);                                                           \
    }
SAPWOOD_TO_BYTES(double, double, x)
SAPWOOD_TO_BYTES(float, float, x)
SAPWOOD_TO_BYTES(halfraw, __half_raw, float(__half(x)))
SAPWOOD_TO_BYTES(bfloat16raw, __nv_bfloat16_raw, float(__nv_bfloat16(x)))
#undef SAPWOOD_TO_BYTES
#define SAPWOOD_TO_BYTES(name, pair, T, number)                                                                  \
    static inline __nv_fp8x2_storage_t __nv_cvt_##pair##_to_fp8x2(T v, __nv_saturation_t s, __nv_fp8_interpretation_t k) { \
        const auto low = __nv_cvt_##name##_to_fp8(number{v.x}, s, k), high = __nv_cvt_##name##_to_fp8(number{v.y}, s, k); \
        return __nv_fp8x2_storage_t(low | high << 8);                                                            \
    }
SAPWOOD_TO_BYTES(double, double2, double2, double)
SAPWOOD_TO_BYTES(float, float2, float2, float)
SAPWOOD_TO_BYTES(halfraw, halfraw2, __half2_raw, __half_raw)
SAPWOOD_TO_BYTES(bfloat16raw, bfloat16raw2, __nv_bfloat162_raw, __nv_bfloat16_raw)
#undef SAPWOOD_TO_BYTES
static inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t kind) {
    return {sapwood_cuda::half_bits(x, kind)};
}
static inline __half2_raw __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t x, __nv_fp8_interpretation_t kind) {
    return {sapwood_cuda::half_bits(__nv_fp8_storage_t(x), kind), sapwood_cuda::half_bits(__nv_fp8_storage_t(x >> 8), kind)};
}

// Numbers beyond the greatest become the greatest.
#define SAPWOOD_INTEGER(I) explicit operator I() const { return ::sapwood_cuda::integer_of<I>(float(*this), ::sapwood_cuda::Rounding::zero); }
#define SAPWOOD_BYTE_FLOATS(T, T2, T4, kind)                                                                     \
    struct T {                                                                                                   \
        __nv_fp8_storage_t __x;                                                                                  \
        T() = default;                                                                                           \
        explicit T(double x) : __x(__nv_cvt_double_to_fp8(x, __NV_SATFINITE, kind)) {}                           \
        explicit T(float x) : __x(__nv_cvt_float_to_fp8(x, __NV_SATFINITE, kind)) {}                             \
        explicit T(__half x) : T(float(x)) {}                                                                    \
        explicit T(__nv_bfloat16 x) : T(float(x)) {}                                                             \
        template <class I, std::enable_if_t<std::is_integral_v<I>, int> = 0> explicit T(I x) : T(float(x)) {}    \
        explicit operator __half() const { return __half(__nv_cvt_fp8_to_halfraw(__x, kind)); }                  \
        explicit operator float() const { return float(__half(*this)); }                                         \
        explicit operator double() const { return float(*this); }                                                \
        explicit operator __nv_bfloat16() const { return __nv_bfloat16(float(*this)); }                          \
        explicit operator bool() const { return (__x & 0x7f) != 0; }                                             \
        SAPWOOD_INTEGER(char)                                                                                    \
        SAPWOOD_INTEGER(signed char)                                                                             \
        SAPWOOD_INTEGER(unsigned char)                                                                           \
        SAPWOOD_INTEGER(short)                                                                                   \
        SAPWOOD_INTEGER(unsigned short)                                                                          \
        SAPWOOD_INTEGER(int)                                                                                     \
        SAPWOOD_INTEGER(unsigned)                                                                                \
        SAPWOOD_INTEGER(long)                                                                                    \
        SAPWOOD_INTEGER(unsigned long)                                                                           \
        SAPWOOD_INTEGER(long long)                                                                               \
        SAPWOOD_INTEGER(unsigned long long)                                                                      \
    };                                                                                                           \
    struct T2 {                                                                                                  \
        __nv_fp8x2_storage_t __x;                                                                                \
        T2() = default;                                                                                          \
        explicit T2(double2 v) : __x(__nv_cvt_double2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                      \
        explicit T2(float2 v) : __x(__nv_cvt_float2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                        \
        explicit T2(__half2 v) : __x(__nv_cvt_halfraw2_to_fp8x2(v, __NV_SATFINITE, kind)) {}                     \
        explicit T2(__nv_bfloat162 v) : __x(__nv_cvt_bfloat16raw2_to_fp8x2(v, __NV_SATFINITE, kind)) {}          \
        explicit operator __half2() const { return __half2(__nv_cvt_fp8x2_to_halfraw2(__x, kind)); }             \
        explicit operator float2() const { return __half22float2(__half2(*this)); }                              \
    };                                                                                                           \
    struct T4 {                                                                                                  \
        __nv_fp8x4_storage_t __x;                                                                                \
        T4() = default;                                                                                          \
        T4(T2 low, T2 high) : __x(low.__x | unsigned(high.__x) << 16) {}                                         \
        explicit T4(double4 v) : T4(T2(double2{v.x, v.y}), T2(double2{v.z, v.w})) {}                             \
        explicit T4(float4 v) : T4(T2(float2{v.x, v.y}), T2(float2{v.z, v.w})) {}                                \
        explicit T4(__half2 low, __half2 high) : T4(T2(low), T2(high)) {}                                        \
        explicit T4(__nv_bfloat162 low, __nv_bfloat162 high) : T4(T2(low), T2(high)) {}                          \
        explicit operator float4() const {                                                                       \
            const float2 low = pair(__x), high = pair(__x >> 16);                                                \
            return {low.x, low.y, high.x, high.y};                                                               \
        }                                                                                                        \
        static float2 pair(unsigned bits) {                                                                      \
            return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(bits), kind)));        \
        }                                                                                                        \
    };
SAPWOOD_BYTE_FLOATS(__nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
SAPWOOD_BYTE_FLOATS(__nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
#undef SAPWOOD_BYTE_FLOATS
#undef SAPWOOD_INTEGER
