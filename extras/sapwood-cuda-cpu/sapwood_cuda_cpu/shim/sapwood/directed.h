// Arithmetic that rounds to nearest, to zero, up or down, as its name says.
#pragma once

#include <cmath>
#include <limits>

namespace sapwood_cuda {

#ifdef __SIZEOF_FLOAT128__
typedef __float128 Quad;
#else
typedef long double Quad;
#endif
// Numbers with more than twice the bits: products of two are exact.
template <class T> struct Wider;
template <> struct Wider<float> { typedef double type; };
template <> struct Wider<double> { typedef Quad type; };

enum class Rounding { nearest, zero, up, down };

// Rounds sum + rest, of which the rest is too small to be a part of the sum.
template <class T, class W> T directed(W sum, W rest, Rounding how) {
    const T near = T(sum);
    const T infinity = std::numeric_limits<T>::infinity();
    if (near != near) return near;
    const W lost = W(near) == sum ? rest : sum - W(near);
    const bool down = how == Rounding::down || (how == Rounding::zero && sum > 0);
    const bool up = how == Rounding::up || (how == Rounding::zero && sum < 0);
    if (down && lost < 0) return T(std::nextafter(near, -infinity));
    if (up && lost > 0) return T(std::nextafter(near, infinity));
    return near;
}
template <class T> T directed_sum(typename Wider<T>::type a, typename Wider<T>::type b, Rounding how) {
    const auto sum = a + b, part = sum - a, rest = (a - (sum - part)) + (b - part);
    if (sum == 0 && how == Rounding::down && (std::signbit(T(a)) || std::signbit(T(b)))) return -T(0);
    return directed<T>(sum, sum - sum == 0 ? rest : sum - sum, how);
}
template <class T> T directed_product(T a, T b, Rounding how) {
    typedef typename Wider<T>::type W;
    return directed<T>(W(a) * W(b), W(0), how);
}
template <class T> T directed_quotient(T a, T b, Rounding how) {
    typedef typename Wider<T>::type W;
    return directed<T>(W(a) / W(b), W(0), how);
}
template <class T> T directed_root(T x, Rounding how) {
    typedef typename Wider<T>::type W;
    const T near = T(std::sqrt(x));
    if (!(near - near == 0)) return near;
    const W rest = W(x) - W(near) * W(near);
    if (rest < 0 && how != Rounding::up) return T(std::nextafter(near, T(0)));
    if (rest > 0 && how == Rounding::up) return T(std::nextafter(near, std::numeric_limits<T>::infinity()));
    return near;
}

} // namespace sapwood_cuda

#define SAPWOOD_DIRECTED(T, name, parameters, nearest, other)                                    \
    static inline T name##_rn parameters { return nearest; }                                     \
    static inline T name##_rz parameters { const auto how = sapwood_cuda::Rounding::zero; return other; } \
    static inline T name##_ru parameters { const auto how = sapwood_cuda::Rounding::up; return other; } \
    static inline T name##_rd parameters { const auto how = sapwood_cuda::Rounding::down; return other; }
#define SAPWOOD_ARITHMETIC(T, prefix, fma_name, fma_function, one)                               \
    SAPWOOD_DIRECTED(T, prefix##add, (T a, T b), a + b, sapwood_cuda::directed_sum<T>(a, b, how)) \
    SAPWOOD_DIRECTED(T, prefix##sub, (T a, T b), a - b, sapwood_cuda::directed_sum<T>(a, -b, how)) \
    SAPWOOD_DIRECTED(T, prefix##mul, (T a, T b), a * b, sapwood_cuda::directed_product(a, b, how)) \
    SAPWOOD_DIRECTED(T, prefix##div, (T a, T b), a / b, sapwood_cuda::directed_quotient(a, b, how)) \
    SAPWOOD_DIRECTED(T, prefix##rcp, (T a), one / a, sapwood_cuda::directed_quotient(one, a, how)) \
    SAPWOOD_DIRECTED(T, prefix##sqrt, (T a), T(std::sqrt(a)), sapwood_cuda::directed_root(a, how))    \
    SAPWOOD_DIRECTED(T, fma_name, (T a, T b, T c), fma_function(a, b, c),                        \
                     sapwood_cuda::directed_sum<T>(sapwood_cuda::Wider<T>::type(a) * b, c, how))
SAPWOOD_ARITHMETIC(float, __f, __fmaf, fmaf, 1.0f)
SAPWOOD_ARITHMETIC(double, __d, __fma, fma, 1.0)
SAPWOOD_DIRECTED(float, __fmaf_ieee, (float a, float b, float c), fmaf(a, b, c),
                 sapwood_cuda::directed_sum<float>(double(a) * b, c, how))
#undef SAPWOOD_ARITHMETIC
#undef SAPWOOD_DIRECTED
