// Device functions of CUDA that the C library has under other names, or not at all.
#pragma once

#include <math.h>
#include <type_traits>

#include "directed.h"
#include "threads.h"
#include "types.h"

#define CUDART_PI_F 3.141592654f
#define CUDART_PI 3.1415926535897931e+0
#define CUDART_INF_F __builtin_inff()
#define CUDART_INF __builtin_inf()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_NAN __builtin_nan("")
#define CUDART_MIN_DENORM_F 1.4012984643248171e-45f
#define CUDART_MAX_NORMAL_F 3.402823466e+38f

#define __expf expf
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __tanhf tanhf
#define __powf powf
#define __exp10f(x) powf(10.0f, x)
#define __sincosf sincosf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float fdividef(float x, float y) { return x / y; }
static inline double fdivide(double x, double y) { return x / y; }
static inline float __saturatef(float x) { return x != x ? 0.0f : x < 0 ? 0.0f : x > 1 ? 1.0f : x; }
// The C23 functions of a new C library have these names too, and no inline definition.
#define rsqrtf sapwood_rsqrtf
#define rsqrt sapwood_rsqrt
#define sinpif sapwood_sinpif
#define cospif sapwood_cospif
#define sinpi sapwood_sinpi
#define cospi sapwood_cospi
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
static inline double rcbrt(double x) { return 1.0 / cbrt(x); }
static inline float sinpif(float x) { return float(sin(M_PI * fmod(double(x), 2.0))); }
static inline float cospif(float x) { return float(cos(M_PI * fmod(double(x), 2.0))); }
static inline double sinpi(double x) { return sin(M_PI * fmod(x, 2.0)); }
static inline double cospi(double x) { return cos(M_PI * fmod(x, 2.0)); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
static inline double normcdf(double x) { return 0.5 * erfc(-x * M_SQRT1_2); }
static inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); }
static inline double norm3d(double a, double b, double c) { return sqrt(a * a + b * b + c * c); }
static inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
static inline double rhypot(double a, double b) { return 1.0 / hypot(a, b); }
static inline float norm4df(float a, float b, float c, float d) { return sqrtf(a * a + b * b + c * c + d * d); }
static inline double norm4d(double a, double b, double c, double d) { return sqrt(a * a + b * b + c * c + d * d); }
static inline float rnorm3df(float a, float b, float c) { return 1.0f / norm3df(a, b, c); }
static inline double rnorm3d(double a, double b, double c) { return 1.0 / norm3d(a, b, c); }
static inline float rnorm4df(float a, float b, float c, float d) { return 1.0f / norm4df(a, b, c, d); }
static inline double rnorm4d(double a, double b, double c, double d) { return 1.0 / norm4d(a, b, c, d); }
static inline void sincospif(float x, float *s, float *c) { *s = sinpif(x), *c = cospif(x); }
static inline void sincospi(double x, double *s, double *c) { *s = sinpi(x), *c = cospi(x); }
static inline double erfcx(double x) {
    if (x < 25) return exp(x * x) * erfc(x);
    double terms = 1;
    for (int i = 13; i > 0; i -= 2) terms = 1 - i / (2 * x * x) * terms;
    return terms / (x * sqrt(M_PI));
}
static inline double erfcinv(double x) { // Halley's steps, from Hastings' approximation
    if (!(x > 0 && x < 2)) return x == 0 ? __builtin_inf() : x == 2 ? -__builtin_inf() : __builtin_nan("");
    if (x > 1) return -erfcinv(2 - x);
    const double t = sqrt(-2 * log(x / 2));
    double y = M_SQRT1_2 * (t - (2.30753 + t * 0.27061) / (1 + t * (0.99229 + t * 0.04481)));
    for (int i = 0; i < 3; i++) {
        const double beyond = erfc(y) - x;
        y += beyond / (M_2_SQRTPI * exp(-y * y) - y * beyond);
    }
    return y;
}
static inline double erfinv(double x) {
    if (!(fabs(x) < 0.5)) return x < 0 ? -erfcinv(1 + x) : erfcinv(1 - x);
    double y = x / M_2_SQRTPI;
    for (int i = 0; i < 4; i++) {
        const double beyond = erf(y) - x;
        y -= beyond / (M_2_SQRTPI * exp(-y * y) + y * beyond);
    }
    return y;
}
// The modified Bessel functions of order 0 and 1, by their series.
static inline double cyl_bessel_i0(double x) {
    double term = 1, sum = 1;
    for (int k = 1; term > 1e-17 * sum && k < 2000; k++) sum += term *= x * x / 4 / k / k;
    return sum;
}
static inline double cyl_bessel_i1(double x) {
    double term = x / 2, sum = term;
    for (int k = 1; fabs(term) > 1e-17 * fabs(sum) && k < 2000; k++) sum += term *= x * x / 4 / k / (k + 1);
    return sum;
}
static inline float cyl_bessel_i0f(float x) { return float(cyl_bessel_i0(x)); }
static inline float cyl_bessel_i1f(float x) { return float(cyl_bessel_i1(x)); }
// The lengths of vectors.
static inline double norm(int n, const double *v) {
    double length = 0;
    for (int i = 0; i < n; i++) length = hypot(length, v[i]);
    return length;
}
static inline float normf(int n, const float *v) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += double(v[i]) * v[i];
    return float(sqrt(sum));
}
static inline double rnorm(int n, const double *v) { return 1.0 / norm(n, v); }
static inline float rnormf(int n, const float *v) { return 1.0f / normf(n, v); }
static inline double normcdfinv(double p) { return -M_SQRT2 * erfcinv(2 * p); }
static inline float erfcxf(float x) { return float(erfcx(x)); }
static inline float erfinvf(float x) { return float(erfinv(x)); }
static inline float erfcinvf(float x) { return float(erfcinv(x)); }
static inline float normcdfinvf(float x) { return float(normcdfinv(x)); }

static inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }

// Conversions clamp as the GPU's do; in C++ a value out of range would be undefined.
namespace sapwood_cuda {
template <class To, class From> To clamp_to(From x) {
    if (x != x) return sizeof(To) == 8 ? To(1ull << 63) : To(0);
    if (x <= From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    if (x >= From(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return To(x);
}
}
#define SAPWOOD_CONVERT(prefix, From, suffix, To)                                                \
    static inline To __##prefix##2##suffix##_rn(From x) { return sapwood_cuda::clamp_to<To>(std::nearbyint(x)); } \
    static inline To __##prefix##2##suffix##_rz(From x) { return sapwood_cuda::clamp_to<To>(std::trunc(x)); } \
    static inline To __##prefix##2##suffix##_ru(From x) { return sapwood_cuda::clamp_to<To>(std::ceil(x)); } \
    static inline To __##prefix##2##suffix##_rd(From x) { return sapwood_cuda::clamp_to<To>(std::floor(x)); }
SAPWOOD_CONVERT(float, float, int, int)
SAPWOOD_CONVERT(float, float, uint, unsigned)
SAPWOOD_CONVERT(float, float, ll, long long)
SAPWOOD_CONVERT(double, double, int, int)
SAPWOOD_CONVERT(double, double, uint, unsigned)
SAPWOOD_CONVERT(double, double, ll, long long)
SAPWOOD_CONVERT(float, float, ull, unsigned long long)
SAPWOOD_CONVERT(double, double, ull, unsigned long long)
#undef SAPWOOD_CONVERT
static inline float __int2float_rn(int x) { return float(x); }
static inline float __uint2float_rn(unsigned x) { return float(x); }
static inline double __int2double_rn(int x) { return double(x); }
static inline double __uint2double_rn(unsigned x) { return double(x); }
static inline float __ll2float_rn(long long x) { return float(x); }
static inline float __ull2float_rn(unsigned long long x) { return float(x); }
static inline double __ll2double_rn(long long x) { return double(x); }
static inline double __ull2double_rn(unsigned long long x) { return double(x); }
static inline float __double2float_rn(double x) { return float(x); }
namespace sapwood_cuda { // to one side of what To(x) is, where that is beyond x; `to` is where to go
template <class To, class From> To rounded(From x, To to) {
    using Exact = std::conditional_t<std::is_integral_v<From>, __int128, double>;
    const To near = To(x);
    const bool beyond = to > near ? Exact(near) < Exact(x) : Exact(near) > Exact(x);
    return beyond && near - near == 0 ? std::nextafter(near, to) : near;
}
}
#define SAPWOOD_TO(name, To, From)                                                                        \
    static inline To name##_ru(From x) { return sapwood_cuda::rounded<To>(x, To(CUDART_INF_F)); }        \
    static inline To name##_rd(From x) { return sapwood_cuda::rounded<To>(x, -To(CUDART_INF_F)); }       \
    static inline To name##_rz(From x) { return sapwood_cuda::rounded<To>(x, To(x < 0 ? CUDART_INF_F : -CUDART_INF_F)); }
SAPWOOD_TO(__int2float, float, int)
SAPWOOD_TO(__uint2float, float, unsigned)
SAPWOOD_TO(__ll2float, float, long long)
SAPWOOD_TO(__ull2float, float, unsigned long long)
SAPWOOD_TO(__ll2double, double, long long)
SAPWOOD_TO(__ull2double, double, unsigned long long)
SAPWOOD_TO(__double2float, float, double)
#undef SAPWOOD_TO

namespace sapwood_cuda {
template <class To, class From> To same_bits(From x) { return __builtin_bit_cast(To, x); }
}
static inline float __int_as_float(int x) { return sapwood_cuda::same_bits<float>(x); }
static inline int __float_as_int(float x) { return sapwood_cuda::same_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return sapwood_cuda::same_bits<float>(x); }
static inline unsigned __float_as_uint(float x) { return sapwood_cuda::same_bits<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return sapwood_cuda::same_bits<double>(x); }
static inline long long __double_as_longlong(double x) { return sapwood_cuda::same_bits<long long>(x); }
static inline int __double2loint(double x) { return int(__double_as_longlong(x)); }
static inline int __double2hiint(double x) { return int(__double_as_longlong(x) >> 32); }
static inline double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1u) << (31 - i);
    return y;
}
static inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
namespace sapwood_cuda { // PTX's bfe and bfi
static inline unsigned bits_of(unsigned x, unsigned from, unsigned n) {
    from &= 0xff, n &= 0xff;
    return from > 31 || !n ? 0 : n > 31 ? x >> from : x >> from & ((1u << n) - 1);
}
static inline unsigned with_bits(unsigned bits, unsigned x, unsigned from, unsigned n) {
    from &= 0xff, n &= 0xff;
    if (from > 31 || !n) return x;
    const unsigned mask = (n > 31 ? ~0u : (1u << n) - 1) << from;
    return (x & ~mask) | (bits << from & mask);
}
// What PTX moves between memory and registers: bits where one of both is a float and the other is none.
template <class To, class From> void set_register(To &to, From value) {
    if constexpr (std::is_floating_point_v<To> != std::is_floating_point_v<From>) {
        static_assert(sizeof(To) == sizeof(From), "a register of another size");
        memcpy(&to, &value, sizeof to);
    } else to = To(value);
}
template <class T, class... A> void read_registers(const T *at, A &...to) {
    const volatile T *next = at;
    const T values[] = {((void)sizeof(to), *next++)...};
    const T *value = values;
    (set_register(to, *value++), ...);
}
template <class T, class... A> void write_registers(T *at, A... from) {
    volatile T *next = at;
    T value;
    ((set_register(value, from), *next++ = value), ...);
}
}
static inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int __mulhi(int a, int b) { return int((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline unsigned __sad(int a, int b, unsigned c) { return unsigned(abs(a - b)) + c; }
static inline unsigned __usad(unsigned a, unsigned b, unsigned c) { return (a < b ? b - a : a - b) + c; }
static inline int __hadd(int a, int b) { return int(((long long)a + b) >> 1); }
static inline int __rhadd(int a, int b) { return int(((long long)a + b + 1) >> 1); }
static inline unsigned __uhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b) >> 1); }
static inline unsigned __urhadd(unsigned a, unsigned b) { return unsigned(((unsigned long long)a + b + 1) >> 1); }
static inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }
static inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (b >> i & 0xff);
    return c;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned n) {
    return n & 31 ? high << (n & 31) | low >> (32 - (n & 31)) : high;
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned n) {
    return n & 31 ? low >> (n & 31) | high << (32 - (n & 31)) : low;
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned n) {
    return n > 31 ? low : __funnelshift_l(low, high, n);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned n) {
    return n > 31 ? high : __funnelshift_r(low, high, n);
}
// Where the n-th bit that is set is, from a bit upwards, or downwards for a negative n.
static inline unsigned __fns(unsigned mask, unsigned base, int n) {
    if (n == 0) return base < 32 && mask >> base & 1 ? base : ~0u;
    const int step = n > 0 ? 1 : -1;
    for (int at = int(base), left = n * step; at >= 0 && at < 32; at += step)
        if (mask >> at & 1 && !--left) return unsigned(at);
    return ~0u;
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    unsigned long long both = (unsigned long long)b << 32 | a;
    unsigned y = 0;
    for (int i = 0; i < 4; i++) y |= unsigned(both >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
    return y;
}

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldca(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldlu(const T *p) { return *p; }
template <class T> static inline T __ldcv(const T *p) { return *(const volatile T *)p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
template <class T> static inline void __stwb(T *p, T v) { *p = v; }
template <class T> static inline void __stwt(T *p, T v) { *p = v; }

// As CUDA's, these are no templates: a program may have templates of its own by these names.
#define SAPWOOD_LEAST(T)                                                                         \
    static inline T min(T a, T b) { return b < a ? b : a; }                                      \
    static inline T max(T a, T b) { return a < b ? b : a; }
SAPWOOD_LEAST(int)
SAPWOOD_LEAST(unsigned)
SAPWOOD_LEAST(long)
SAPWOOD_LEAST(unsigned long)
SAPWOOD_LEAST(long long)
SAPWOOD_LEAST(unsigned long long)
SAPWOOD_LEAST(float)
SAPWOOD_LEAST(double)
#undef SAPWOOD_LEAST
// Two types that differ.
template <class A, class B, class C = std::common_type_t<A, B>,
          class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
static inline C min(A a, B b) { return C(b) < C(a) ? C(b) : C(a); }
template <class A, class B, class C = std::common_type_t<A, B>,
          class = std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B> && !std::is_same_v<A, B>>>
static inline C max(A a, B b) { return C(a) < C(b) ? C(b) : C(a); }
static inline unsigned umin(unsigned a, unsigned b) { return min(a, b); }
static inline unsigned umax(unsigned a, unsigned b) { return max(a, b); }
static inline long long llmin(long long a, long long b) { return min(a, b); }
static inline long long llmax(long long a, long long b) { return max(a, b); }
static inline unsigned long long ullmin(unsigned long long a, unsigned long long b) { return min(a, b); }
static inline unsigned long long ullmax(unsigned long long a, unsigned long long b) { return max(a, b); }

static inline long long clock64() {
    return sapwood_cuda::now();
}
