// One 16-bit type, its pair, and their functions. Included once for each type, with macros that name it:
// SAPWOOD_T and SAPWOOD_T2 are the types, SAPWOOD_FORMAT is the format, and SAPWOOD_NAME(a, b) is a name
// that holds the type's word between a and b.

struct SAPWOOD_NAME(SAPWOOD_PREFIX, _raw) { unsigned short x; };
struct SAPWOOD_NAME(SAPWOOD_PREFIX, 2_raw) { unsigned short x, y; };

struct __attribute__((aligned(2))) SAPWOOD_T {
    unsigned short __x;
    using Format = ::sapwood_cuda::SAPWOOD_FORMAT;
    SAPWOOD_T() = default;
    constexpr SAPWOOD_T(SAPWOOD_NAME(SAPWOOD_PREFIX, _raw) raw) : __x(raw.x) {}
    operator SAPWOOD_NAME(SAPWOOD_PREFIX, _raw)() const { return {__x}; }
    SAPWOOD_T(float x) : __x(Format::from_float(x)) {}
    SAPWOOD_T(double x) : __x(Format::from_double(x)) {}
    template <class Other, class Otherwise = typename Other::Format> explicit SAPWOOD_T(Other x) : SAPWOOD_T(float(x)) {}
    operator float() const { return Format::to_float(__x); }
    template <class I, std::enable_if_t<std::is_integral_v<I>, int> = 0>
    SAPWOOD_T(I x) : __x(Format::from_double(::sapwood_cuda::odd_double(x))) {}
#define SAPWOOD_INTEGER(I) operator I() const { return ::sapwood_cuda::integer_of<I>(float(*this), ::sapwood_cuda::Rounding::zero); }
    SAPWOOD_INTEGER(char)
    SAPWOOD_INTEGER(signed char)
    SAPWOOD_INTEGER(unsigned char)
    SAPWOOD_INTEGER(short)
    SAPWOOD_INTEGER(unsigned short)
    SAPWOOD_INTEGER(int)
    SAPWOOD_INTEGER(unsigned)
    SAPWOOD_INTEGER(long)
    SAPWOOD_INTEGER(unsigned long)
    SAPWOOD_INTEGER(long long)
    SAPWOOD_INTEGER(unsigned long long)
#undef SAPWOOD_INTEGER
    operator bool() const { return (__x & 0x7fff) != 0; }
};

struct __attribute__((aligned(4))) SAPWOOD_T2 {
    SAPWOOD_T x, y;
    SAPWOOD_T2() = default;
    SAPWOOD_T2(SAPWOOD_T a, SAPWOOD_T b) : x(a), y(b) {}
    SAPWOOD_T2(SAPWOOD_NAME(SAPWOOD_PREFIX, 2_raw) raw)
        : x(SAPWOOD_NAME(SAPWOOD_PREFIX, _raw){raw.x}), y(SAPWOOD_NAME(SAPWOOD_PREFIX, _raw){raw.y}) {}
    operator SAPWOOD_NAME(SAPWOOD_PREFIX, 2_raw)() const { return {x.__x, y.__x}; }
};
static_assert(sizeof(SAPWOOD_T) == 2 && sizeof(SAPWOOD_T2) == 4, "the sizes of CUDA");

static inline SAPWOOD_T2 SAPWOOD_NAME(make_, 2)(SAPWOOD_T x, SAPWOOD_T y) { return {x, y}; }

// Bits.
static inline unsigned short SAPWOOD_NAME(__, _as_ushort)(SAPWOOD_T a) { return a.__x; }
static inline short SAPWOOD_NAME(__, _as_short)(SAPWOOD_T a) { return short(a.__x); }
static inline SAPWOOD_T SAPWOOD_NAME(__ushort_as_, )(unsigned short bits) {
    return SAPWOOD_NAME(SAPWOOD_PREFIX, _raw){bits};
}
static inline SAPWOOD_T SAPWOOD_NAME(__short_as_, )(short bits) { return SAPWOOD_NAME(__ushort_as_, )((unsigned short)bits); }

// Conversions from and to float, double and integers.
static inline float SAPWOOD_NAME(__, 2float)(SAPWOOD_T a) { return float(a); }
static inline SAPWOOD_T SAPWOOD_NAME(__float2, )(float x) { return x; }
static inline SAPWOOD_T SAPWOOD_NAME(__double2, )(double x) { return x; }
#define SAPWOOD_ROUNDING(suffix, how)                                                                      \
    static inline SAPWOOD_T SAPWOOD_NAME(__float2, suffix)(float x) {                                      \
        return SAPWOOD_NAME(__ushort_as_, )(::sapwood_cuda::short_bits<SAPWOOD_T::Format>(x, ::sapwood_cuda::Rounding::how)); \
    }                                                                                                      \
    SAPWOOD_INTEGER(short, short, suffix, how)                                                             \
    SAPWOOD_INTEGER(unsigned short, ushort, suffix, how)                                                   \
    SAPWOOD_INTEGER(int, int, suffix, how)                                                                 \
    SAPWOOD_INTEGER(unsigned, uint, suffix, how)                                                           \
    SAPWOOD_INTEGER(long long, ll, suffix, how)                                                            \
    SAPWOOD_INTEGER(unsigned long long, ull, suffix, how)
#define SAPWOOD_INTEGER(I, word, suffix, how)                                                              \
    static inline SAPWOOD_T SAPWOOD_NAME(__##word##2, suffix)(I x) {                                       \
        return SAPWOOD_NAME(__ushort_as_, )(::sapwood_cuda::short_bits<SAPWOOD_T::Format>(                 \
            ::sapwood_cuda::odd_double(x), ::sapwood_cuda::Rounding::how));                                \
    }                                                                                                      \
    static inline I SAPWOOD_NAME(__, 2##word##suffix)(SAPWOOD_T a) {                                       \
        return ::sapwood_cuda::integer_of<I>(float(a), ::sapwood_cuda::Rounding::how);                     \
    }
SAPWOOD_ROUNDING(_rn, nearest)
SAPWOOD_ROUNDING(_rz, zero)
SAPWOOD_ROUNDING(_ru, up)
SAPWOOD_ROUNDING(_rd, down)
#undef SAPWOOD_ROUNDING
#undef SAPWOOD_INTEGER
static inline signed char SAPWOOD_NAME(__, 2char_rz)(SAPWOOD_T a) { return (signed char)a; }
static inline unsigned char SAPWOOD_NAME(__, 2uchar_rz)(SAPWOOD_T a) { return (unsigned char)a; }

// Pairs.
static inline SAPWOOD_T2 SAPWOOD_NAME(__halves2, 2)(SAPWOOD_T x, SAPWOOD_T y) { return {x, y}; }
static inline SAPWOOD_T2 SAPWOOD_PAIR_OF(SAPWOOD_T a) { return {a, a}; }
static inline SAPWOOD_T SAPWOOD_NAME(__low2, )(SAPWOOD_T2 a) { return a.x; }
static inline SAPWOOD_T SAPWOOD_NAME(__high2, )(SAPWOOD_T2 a) { return a.y; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__low2, 2)(SAPWOOD_T2 a) { return {a.x, a.x}; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__high2, 2)(SAPWOOD_T2 a) { return {a.y, a.y}; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__lows2, 2)(SAPWOOD_T2 a, SAPWOOD_T2 b) { return {a.x, b.x}; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__highs2, 2)(SAPWOOD_T2 a, SAPWOOD_T2 b) { return {a.y, b.y}; }
static inline SAPWOOD_T2 __lowhigh2highlow(SAPWOOD_T2 a) { return {a.y, a.x}; }
static inline float __low2float(SAPWOOD_T2 a) { return float(a.x); }
static inline float __high2float(SAPWOOD_T2 a) { return float(a.y); }
static inline SAPWOOD_T2 SAPWOOD_NAME(__float2, 2_rn)(float x) { return {SAPWOOD_T(x), SAPWOOD_T(x)}; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__floats2, 2_rn)(float x, float y) { return {SAPWOOD_T(x), SAPWOOD_T(y)}; }
static inline SAPWOOD_T2 SAPWOOD_NAME(__float22, 2_rn)(float2 v) { return {SAPWOOD_T(v.x), SAPWOOD_T(v.y)}; }
static inline float2 SAPWOOD_NAME(__, 22float2)(SAPWOOD_T2 a) { return {float(a.x), float(a.y)}; }

// Arithmetic: sums, products, quotients and roots of floats, rounded again, are right; see Figueroa,
// "When is double rounding innocuous?", 1995. A product and a sum in one need more bits.
static inline SAPWOOD_T __hneg(SAPWOOD_T a) { return SAPWOOD_NAME(__ushort_as_, )((unsigned short)(a.__x ^ 0x8000)); }
static inline SAPWOOD_T __habs(SAPWOOD_T a) { return SAPWOOD_NAME(__ushort_as_, )((unsigned short)(a.__x & 0x7fff)); }
static inline bool __hisnan(SAPWOOD_T a) { return (a.__x & 0x7fff) > SAPWOOD_T::Format::infinity; }
static inline int __hisinf(SAPWOOD_T a) {
    return (a.__x & 0x7fff) != SAPWOOD_T::Format::infinity ? 0 : a.__x & 0x8000 ? -1 : 1;
}
static inline SAPWOOD_T __hadd(SAPWOOD_T a, SAPWOOD_T b) { return float(a) + float(b); }
static inline SAPWOOD_T __hsub(SAPWOOD_T a, SAPWOOD_T b) { return float(a) - float(b); }
static inline SAPWOOD_T __hmul(SAPWOOD_T a, SAPWOOD_T b) { return float(a) * float(b); }
static inline SAPWOOD_T __hdiv(SAPWOOD_T a, SAPWOOD_T b) { return float(a) / float(b); }
static inline SAPWOOD_T __hfma(SAPWOOD_T a, SAPWOOD_T b, SAPWOOD_T c) {
    return SAPWOOD_T::Format::sum(double(float(a)) * double(float(b)), double(float(c)));
}
static inline SAPWOOD_T __hadd_rn(SAPWOOD_T a, SAPWOOD_T b) { return __hadd(a, b); }
static inline SAPWOOD_T __hsub_rn(SAPWOOD_T a, SAPWOOD_T b) { return __hsub(a, b); }
static inline SAPWOOD_T __hmul_rn(SAPWOOD_T a, SAPWOOD_T b) { return __hmul(a, b); }
static inline SAPWOOD_T __hadd_sat(SAPWOOD_T a, SAPWOOD_T b) { return __saturatef(float(__hadd(a, b))); }
static inline SAPWOOD_T __hsub_sat(SAPWOOD_T a, SAPWOOD_T b) { return __saturatef(float(__hsub(a, b))); }
static inline SAPWOOD_T __hmul_sat(SAPWOOD_T a, SAPWOOD_T b) { return __saturatef(float(__hmul(a, b))); }
static inline SAPWOOD_T __hfma_sat(SAPWOOD_T a, SAPWOOD_T b, SAPWOOD_T c) { return __saturatef(float(__hfma(a, b, c))); }
static inline SAPWOOD_T __hfma_relu(SAPWOOD_T a, SAPWOOD_T b, SAPWOOD_T c) {
    const SAPWOOD_T made = __hfma(a, b, c);
    return float(made) < 0 ? SAPWOOD_T(0.0f) : made;
}

// Comparisons; those in "u" are true of a NaN.
static inline bool __heq(SAPWOOD_T a, SAPWOOD_T b) { return float(a) == float(b); }
static inline bool __hne(SAPWOOD_T a, SAPWOOD_T b) { return float(a) < float(b) || float(a) > float(b); }
static inline bool __hlt(SAPWOOD_T a, SAPWOOD_T b) { return float(a) < float(b); }
static inline bool __hle(SAPWOOD_T a, SAPWOOD_T b) { return float(a) <= float(b); }
static inline bool __hgt(SAPWOOD_T a, SAPWOOD_T b) { return float(a) > float(b); }
static inline bool __hge(SAPWOOD_T a, SAPWOOD_T b) { return float(a) >= float(b); }
static inline bool __hequ(SAPWOOD_T a, SAPWOOD_T b) { return !__hne(a, b); }
static inline bool __hneu(SAPWOOD_T a, SAPWOOD_T b) { return !__heq(a, b); }
static inline bool __hltu(SAPWOOD_T a, SAPWOOD_T b) { return !__hge(a, b); }
static inline bool __hleu(SAPWOOD_T a, SAPWOOD_T b) { return !__hgt(a, b); }
static inline bool __hgtu(SAPWOOD_T a, SAPWOOD_T b) { return !__hle(a, b); }
static inline bool __hgeu(SAPWOOD_T a, SAPWOOD_T b) { return !__hlt(a, b); }
// -0 is less than +0, and the other one is taken in place of a NaN.
static inline SAPWOOD_T __hmax_nan(SAPWOOD_T a, SAPWOOD_T b) {
    const SAPWOOD_T chosen = __hisnan(a) ? a : __hisnan(b) ? b : __heq(a, b) ? (a.__x & 0x8000 ? b : a) : __hgt(a, b) ? a : b;
    return chosen;
}
static inline SAPWOOD_T __hmin_nan(SAPWOOD_T a, SAPWOOD_T b) {
    const SAPWOOD_T chosen = __hisnan(a) ? a : __hisnan(b) ? b : __heq(a, b) ? (a.__x & 0x8000 ? a : b) : __hlt(a, b) ? a : b;
    return chosen;
}
static inline SAPWOOD_T __hmax(SAPWOOD_T a, SAPWOOD_T b) { return __hisnan(a) ? b : __hisnan(b) ? a : __hmax_nan(a, b); }
static inline SAPWOOD_T __hmin(SAPWOOD_T a, SAPWOOD_T b) { return __hisnan(a) ? b : __hisnan(b) ? a : __hmin_nan(a, b); }

// Elementary functions.
#define SAPWOOD_FUNCTION(name, expression)                                                                 \
    static inline SAPWOOD_T h##name(SAPWOOD_T a) { const float x = float(a); return SAPWOOD_T(expression); } \
    static inline SAPWOOD_T2 h2##name(SAPWOOD_T2 a) { return {h##name(a.x), h##name(a.y)}; }
SAPWOOD_FUNCTION(sqrt, sqrtf(x))
SAPWOOD_FUNCTION(rsqrt, rsqrtf(x))
SAPWOOD_FUNCTION(rcp, 1.0f / x)
SAPWOOD_FUNCTION(exp, expf(x))
SAPWOOD_FUNCTION(exp2, exp2f(x))
SAPWOOD_FUNCTION(exp10, std::pow(10.0, double(x)))
SAPWOOD_FUNCTION(log, logf(x))
SAPWOOD_FUNCTION(log2, log2f(x))
SAPWOOD_FUNCTION(log10, log10f(x))
SAPWOOD_FUNCTION(sin, sinf(x))
SAPWOOD_FUNCTION(cos, cosf(x))
SAPWOOD_FUNCTION(tanh, tanhf(x))
SAPWOOD_FUNCTION(tanh_approx, tanhf(x))
SAPWOOD_FUNCTION(ceil, ceilf(x))
SAPWOOD_FUNCTION(floor, floorf(x))
SAPWOOD_FUNCTION(trunc, truncf(x))
SAPWOOD_FUNCTION(rint, rintf(x))
#undef SAPWOOD_FUNCTION

// The same of pairs.
#define SAPWOOD_ONE(name)                                                                                  \
    static inline SAPWOOD_T2 name##2(SAPWOOD_T2 a) { return {name(a.x), name(a.y)}; }
#define SAPWOOD_TWO(name, pairs)                                                                           \
    static inline SAPWOOD_T2 pairs(SAPWOOD_T2 a, SAPWOOD_T2 b) { return {name(a.x, b.x), name(a.y, b.y)}; }
#define SAPWOOD_THREE(name, pairs)                                                                         \
    static inline SAPWOOD_T2 pairs(SAPWOOD_T2 a, SAPWOOD_T2 b, SAPWOOD_T2 c) {                             \
        return {name(a.x, b.x, c.x), name(a.y, b.y, c.y)};                                                 \
    }
SAPWOOD_ONE(__hneg)
SAPWOOD_ONE(__habs)
SAPWOOD_TWO(__hadd, __hadd2)
SAPWOOD_TWO(__hsub, __hsub2)
SAPWOOD_TWO(__hmul, __hmul2)
SAPWOOD_TWO(__hdiv, __h2div)
SAPWOOD_TWO(__hadd_rn, __hadd2_rn)
SAPWOOD_TWO(__hsub_rn, __hsub2_rn)
SAPWOOD_TWO(__hmul_rn, __hmul2_rn)
SAPWOOD_TWO(__hadd_sat, __hadd2_sat)
SAPWOOD_TWO(__hsub_sat, __hsub2_sat)
SAPWOOD_TWO(__hmul_sat, __hmul2_sat)
SAPWOOD_TWO(__hmax, __hmax2)
SAPWOOD_TWO(__hmin, __hmin2)
SAPWOOD_TWO(__hmax_nan, __hmax2_nan)
SAPWOOD_TWO(__hmin_nan, __hmin2_nan)
SAPWOOD_THREE(__hfma, __hfma2)
SAPWOOD_THREE(__hfma_sat, __hfma2_sat)
SAPWOOD_THREE(__hfma_relu, __hfma2_relu)
#undef SAPWOOD_ONE
#undef SAPWOOD_TWO
#undef SAPWOOD_THREE
static inline SAPWOOD_T2 __hisnan2(SAPWOOD_T2 a) {
    return {SAPWOOD_T(__hisnan(a.x) ? 1.0f : 0.0f), SAPWOOD_T(__hisnan(a.y) ? 1.0f : 0.0f)};
}
#define SAPWOOD_COMPARE(word)                                                                              \
    static inline SAPWOOD_T2 __h##word##2(SAPWOOD_T2 a, SAPWOOD_T2 b) {                                    \
        return {SAPWOOD_T(__h##word(a.x, b.x) ? 1.0f : 0.0f), SAPWOOD_T(__h##word(a.y, b.y) ? 1.0f : 0.0f)}; \
    }                                                                                                      \
    static inline unsigned __h##word##2_mask(SAPWOOD_T2 a, SAPWOOD_T2 b) {                                 \
        return (__h##word(a.x, b.x) ? 0xffffu : 0) | (__h##word(a.y, b.y) ? 0xffff0000u : 0);              \
    }                                                                                                      \
    static inline bool __hb##word##2(SAPWOOD_T2 a, SAPWOOD_T2 b) { return __h##word(a.x, b.x) && __h##word(a.y, b.y); }
SAPWOOD_COMPARE(eq)
SAPWOOD_COMPARE(ne)
SAPWOOD_COMPARE(lt)
SAPWOOD_COMPARE(le)
SAPWOOD_COMPARE(gt)
SAPWOOD_COMPARE(ge)
SAPWOOD_COMPARE(equ)
SAPWOOD_COMPARE(neu)
SAPWOOD_COMPARE(ltu)
SAPWOOD_COMPARE(leu)
SAPWOOD_COMPARE(gtu)
SAPWOOD_COMPARE(geu)
#undef SAPWOOD_COMPARE
// Products of complex numbers, added to a third one.
static inline SAPWOOD_T2 __hcmadd(SAPWOOD_T2 a, SAPWOOD_T2 b, SAPWOOD_T2 c) {
    return {__hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x)), __hfma(a.y, b.x, __hfma(a.x, b.y, c.y))};
}

#ifndef SAPWOOD_NO_OPERATORS
#define SAPWOOD_OPERATORS(T, plus, minus, times, over, less)                                               \
    static inline T operator+(const T &a, const T &b) { return plus(a, b); }                               \
    static inline T operator-(const T &a, const T &b) { return minus(a, b); }                              \
    static inline T operator*(const T &a, const T &b) { return times(a, b); }                              \
    static inline T operator/(const T &a, const T &b) { return over(a, b); }                               \
    static inline T &operator+=(T &a, const T &b) { return a = plus(a, b); }                               \
    static inline T &operator-=(T &a, const T &b) { return a = minus(a, b); }                              \
    static inline T &operator*=(T &a, const T &b) { return a = times(a, b); }                              \
    static inline T &operator/=(T &a, const T &b) { return a = over(a, b); }                               \
    static inline T operator+(const T &a) { return a; }                                                    \
    static inline T operator-(const T &a) { return less(a); }
SAPWOOD_OPERATORS(SAPWOOD_T, __hadd, __hsub, __hmul, __hdiv, __hneg)
SAPWOOD_OPERATORS(SAPWOOD_T2, __hadd2, __hsub2, __hmul2, __h2div, __hneg2)
#undef SAPWOOD_OPERATORS
static inline SAPWOOD_T &operator++(SAPWOOD_T &a) { return a = __hadd(a, SAPWOOD_T(1.0f)); }
static inline SAPWOOD_T &operator--(SAPWOOD_T &a) { return a = __hsub(a, SAPWOOD_T(1.0f)); }
static inline SAPWOOD_T operator++(SAPWOOD_T &a, int) { const SAPWOOD_T old = a; ++a; return old; }
static inline SAPWOOD_T operator--(SAPWOOD_T &a, int) { const SAPWOOD_T old = a; --a; return old; }
static inline bool operator==(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __heq(a, b); }
static inline bool operator!=(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __hneu(a, b); }
static inline bool operator<(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __hlt(a, b); }
static inline bool operator<=(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __hle(a, b); }
static inline bool operator>(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __hgt(a, b); }
static inline bool operator>=(const SAPWOOD_T &a, const SAPWOOD_T &b) { return __hge(a, b); }
static inline bool operator==(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hbeq2(a, b); }
static inline bool operator!=(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hbneu2(a, b); }
static inline bool operator<(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hblt2(a, b); }
static inline bool operator<=(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hble2(a, b); }
static inline bool operator>(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hbgt2(a, b); }
static inline bool operator>=(const SAPWOOD_T2 &a, const SAPWOOD_T2 &b) { return __hbge2(a, b); }
#endif
