// Conversions of 16-bit floats, each rounded once, in all rounding modes.
#pragma once

#include "../cuda_runtime.h"

namespace sapwood_cuda {

// Rounds to odd: what is rounded again to far fewer bits is right then.
inline float odd_float(double x) {
    const float near = float(x);
    const unsigned bits = same_bits<unsigned>(near);
    if (!(double(near) != x) || x != x) return near;
    return same_bits<float>((std::fabs(double(near)) > std::fabs(x) ? bits - 1 : bits) | 1);
}
template <class T> double odd_double(T x) { // of an integer
    const double near = double(x);
    const unsigned long long bits = same_bits<unsigned long long>(near);
    const __int128 back = __int128(near), exact = x;
    if (back == exact) return near;
    const bool beyond = exact < 0 ? back < exact : back > exact;
    return same_bits<double>((beyond ? bits - 1 : bits) | 1);
}
inline double odd_sum(double a, double b) {
    const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    const unsigned long long bits = same_bits<unsigned long long>(sum);
    if (!(lost != 0) || sum - sum != 0 || bits & 1) return sum;
    return same_bits<double>((sum > 0) == (lost > 0) ? bits + 1 : bits - 1);
}

// IEEE's binary16: five bits of exponent.
struct HalfFormat {
    static constexpr unsigned short infinity = 0x7c00;
    static double sum(double product, double b) { return product + b; } // 53 bits are enough
    static float to_float(unsigned short bits) {
#if defined(__F16C__) && defined(__clang__)
        return float(__builtin_bit_cast(__fp16, bits));
#elif defined(__F16C__) && defined(__FLT16_MAX__)
        return float(__builtin_bit_cast(_Float16, bits));
#else
        const unsigned sign = unsigned(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
        const float small = float(fraction) * 0x1p-24f;
        const unsigned large = (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
        return same_bits<float>(sign | (exponent ? large : same_bits<unsigned>(small)));
#endif
    }
    static unsigned short from_double(double x) { return from_float(odd_float(x)); }
    static unsigned short from_float(float x) {
#if defined(__F16C__) && defined(__clang__)
        return __builtin_bit_cast(unsigned short, __fp16(x));
#elif defined(__F16C__) && defined(__FLT16_MAX__)
        return __builtin_bit_cast(unsigned short, _Float16(x));
#else
        const unsigned bits = same_bits<unsigned>(x), size = bits & 0x7fffffff;
        const unsigned normal = (size + 0xfff + (size >> 13 & 1) - 0x38000000u) >> 13;
        const unsigned small = same_bits<unsigned>(same_bits<float>(size) + 0.5f) - same_bits<unsigned>(0.5f);
        const unsigned finite = size < 0x38800000u ? small : normal;
        const unsigned found = size > 0x7f800000u ? 0x7fffu : size >= 0x47800000u ? 0x7c00u : finite;
        return (unsigned short)(found | (bits >> 16 & 0x8000));
#endif
    }
};

// The upper half of a float.
struct BrainFormat {
    static constexpr unsigned short infinity = 0x7f80;
    static double sum(double product, double b) { return odd_sum(product, b); }
    static float to_float(unsigned short bits) { return same_bits<float>(unsigned(bits) << 16); }
    static unsigned short from_double(double x) { return from_float(odd_float(x)); }
    static unsigned short from_float(float x) {
        const unsigned bits = same_bits<unsigned>(x);
        const unsigned rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        return (unsigned short)(x != x ? 0x7fff : rounded);
    }
};

template <class Format> unsigned short short_bits(double x, Rounding how) {
    unsigned short bits = Format::from_double(x);
    const double near = double(Format::to_float(bits));
    const bool large = std::fabs(near) > std::fabs(x), small = std::fabs(near) < std::fabs(x);
    const bool outward = how == Rounding::up ? x > 0 : how == Rounding::down && x < 0;
    if (how == Rounding::nearest) return bits;
    if (large && !outward) return (unsigned short)(bits - 1);
    return small && outward ? (unsigned short)(bits + 1) : bits;
}
template <class To> To integer_of(float x, Rounding how) {
    return clamp_to<To>(how == Rounding::nearest ? std::nearbyint(x) : how == Rounding::zero ? std::trunc(x)
                        : how == Rounding::up ? std::ceil(x) : std::floor(x));
}

} // namespace sapwood_cuda
