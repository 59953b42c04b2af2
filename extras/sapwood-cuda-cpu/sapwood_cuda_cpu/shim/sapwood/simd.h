// Words of 32 bits as two or four numbers: CUDA's SIMD intrinsics, its DPX functions and its dot products.
#pragma once

#include "types.h"

namespace sapwood_cuda {
// What a function gives for each number of some words, put together again; the lowest bits of it count.
template <class T, class F, class... Words> unsigned each_lane(F function, Words... words) {
    unsigned found = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(T))
        found |= unsigned(std::make_unsigned_t<T>(function(int(T(words >> at))...))) << at;
    return found;
}
template <class T, class F, class... Words> unsigned sum_of_lanes(F function, Words... words) {
    unsigned found = 0;
    for (unsigned at = 0; at < 32; at += 8 * sizeof(T)) found += unsigned(function(int(T(words >> at))...));
    return found;
}
template <class T> constexpr int within(int x) { // the nearest number of a type
    constexpr int least = std::numeric_limits<T>::min(), most = std::numeric_limits<T>::max();
    return x < least ? least : x > most ? most : x;
}
}

#define SAPWOOD_ONE(name, T, expression)                                                         \
    static inline unsigned name(unsigned a) {                                                    \
        return sapwood_cuda::each_lane<T>([](int x) { return expression; }, a);                  \
    }
#define SAPWOOD_TWO(name, T, expression)                                                         \
    static inline unsigned name(unsigned a, unsigned b) {                                        \
        return sapwood_cuda::each_lane<T>([](int x, int y) { return expression; }, a, b);        \
    }
#define SAPWOOD_SUM(name, T, expression)                                                         \
    static inline unsigned name(unsigned a, unsigned b) {                                        \
        return sapwood_cuda::sum_of_lanes<T>([](int x, int y) { return expression; }, a, b);     \
    }
#define SAPWOOD_COMPARED(name, sign, lanes, T, operator)                                         \
    SAPWOOD_TWO(__vcmp##name##sign##lanes, T, x operator y ? -1 : 0)                                   \
    SAPWOOD_TWO(__vset##name##sign##lanes, T, x operator y ? 1 : 0)
#define SAPWOOD_SIMD(lanes, S, U)                                                                \
    SAPWOOD_ONE(__vabs##lanes, S, x < 0 ? -x : x)                                                \
    SAPWOOD_ONE(__vabsss##lanes, S, sapwood_cuda::within<S>(x < 0 ? -x : x))                     \
    SAPWOOD_ONE(__vneg##lanes, S, -x)                                                            \
    SAPWOOD_ONE(__vnegss##lanes, S, sapwood_cuda::within<S>(-x))                                 \
    SAPWOOD_TWO(__vadd##lanes, U, x + y)                                                         \
    SAPWOOD_TWO(__vaddss##lanes, S, sapwood_cuda::within<S>(x + y))                              \
    SAPWOOD_TWO(__vaddus##lanes, U, sapwood_cuda::within<U>(x + y))                              \
    SAPWOOD_TWO(__vsub##lanes, U, x - y)                                                         \
    SAPWOOD_TWO(__vsubss##lanes, S, sapwood_cuda::within<S>(x - y))                              \
    SAPWOOD_TWO(__vsubus##lanes, U, sapwood_cuda::within<U>(x - y))                              \
    SAPWOOD_TWO(__vabsdiffs##lanes, S, x < y ? y - x : x - y)                                    \
    SAPWOOD_TWO(__vabsdiffu##lanes, U, x < y ? y - x : x - y)                                    \
    SAPWOOD_TWO(__vavgs##lanes, S, (x + y + (x + y >= 0)) >> 1) /* halves go away from 0 */      \
    SAPWOOD_TWO(__vavgu##lanes, U, (x + y + 1) >> 1)                                             \
    SAPWOOD_TWO(__vhaddu##lanes, U, (x + y) >> 1)                                                \
    SAPWOOD_TWO(__vmaxs##lanes, S, x < y ? y : x)                                                \
    SAPWOOD_TWO(__vmaxu##lanes, U, x < y ? y : x)                                                \
    SAPWOOD_TWO(__vmins##lanes, S, y < x ? y : x)                                                \
    SAPWOOD_TWO(__vminu##lanes, U, y < x ? y : x)                                                \
    SAPWOOD_SUM(__vsads##lanes, S, x < y ? y - x : x - y)                                        \
    SAPWOOD_SUM(__vsadu##lanes, U, x < y ? y - x : x - y)                                        \
    SAPWOOD_COMPARED(eq, , lanes, U, ==)                                                           \
    SAPWOOD_COMPARED(ne, , lanes, U, !=)                                                           \
    SAPWOOD_COMPARED(ge, s, lanes, S, >=)                                                          \
    SAPWOOD_COMPARED(ge, u, lanes, U, >=)                                                          \
    SAPWOOD_COMPARED(gt, s, lanes, S, >)                                                           \
    SAPWOOD_COMPARED(gt, u, lanes, U, >)                                                           \
    SAPWOOD_COMPARED(le, s, lanes, S, <=)                                                          \
    SAPWOOD_COMPARED(le, u, lanes, U, <=)                                                          \
    SAPWOOD_COMPARED(lt, s, lanes, S, <)                                                           \
    SAPWOOD_COMPARED(lt, u, lanes, U, <)
SAPWOOD_SIMD(2, int16_t, uint16_t)
SAPWOOD_SIMD(4, int8_t, uint8_t)
#undef SAPWOOD_SIMD
#undef SAPWOOD_COMPARED
#undef SAPWOOD_SUM
#undef SAPWOOD_TWO
#undef SAPWOOD_ONE

// DPX: the greater and the lesser of two and three, of whole words and of halves.
namespace sapwood_cuda {
template <class T> T most_of(T a, T b) { return a < b ? b : a; }
template <class T> T least_of(T a, T b) { return b < a ? b : a; }
template <class T> T wrapped_sum(T a, T b) { return T(unsigned(a) + unsigned(b)); }
template <class T> bool chosen(T a, T b, bool *first, bool greater) { return *first = greater ? a >= b : a <= b; }
}
#define SAPWOOD_DPX(name, pick, greater)                                                         \
    SAPWOOD_WHOLE(name, pick, greater, s32, int)                                                 \
    SAPWOOD_WHOLE(name, pick, greater, u32, unsigned)                                            \
    SAPWOOD_HALVES(name, pick, greater, s16x2, int16_t)                                            \
    SAPWOOD_HALVES(name, pick, greater, u16x2, uint16_t)                                   \
    SAPWOOD_RELU(name, pick, s32, int, int, pick(a, b), pick(pick(a, b), c),                     \
                 pick(sapwood_cuda::wrapped_sum(a, b), c))                                       \
    SAPWOOD_RELU(name, pick, s16x2, unsigned, int16_t, __vi##name##_s16x2(a, b),                   \
                 __vi##name##3_s16x2(a, b, c), __viadd##name##_s16x2(a, b, c))
#define SAPWOOD_WHOLE(name, pick, greater, suffix, T)                                            \
    static inline T __vi##name##_##suffix(T a, T b) { return pick(a, b); }                       \
    static inline T __vi##name##3_##suffix(T a, T b, T c) { return pick(pick(a, b), c); }        \
    static inline T __viadd##name##_##suffix(T a, T b, T c) {                                    \
        return pick(sapwood_cuda::wrapped_sum(a, b), c);                                         \
    }                                                                                            \
    static inline T __vib##name##_##suffix(T a, T b, bool *first) {                              \
        return sapwood_cuda::chosen(a, b, first, greater) ? a : b;                               \
    }
#define SAPWOOD_HALVES(name, pick, greater, suffix, T)                                           \
    static inline unsigned __vi##name##_##suffix(unsigned a, unsigned b) {                       \
        return sapwood_cuda::each_lane<T>([](int x, int y) { return pick(x, y); }, a, b);        \
    }                                                                                            \
    static inline unsigned __vi##name##3_##suffix(unsigned a, unsigned b, unsigned c) {          \
        return __vi##name##_##suffix(__vi##name##_##suffix(a, b), c);                            \
    }                                                                                            \
    static inline unsigned __viadd##name##_##suffix(unsigned a, unsigned b, unsigned c) {        \
        return __vi##name##_##suffix(__vadd2(a, b), c);                                          \
    }                                                                                            \
    static inline unsigned __vib##name##_##suffix(unsigned a, unsigned b, bool *high, bool *low) { \
        sapwood_cuda::chosen(T(a >> 16), T(b >> 16), high, greater);                             \
        sapwood_cuda::chosen(T(a), T(b), low, greater);                                          \
        return __vi##name##_##suffix(a, b);                                                      \
    }
#define SAPWOOD_RELU(name, pick, suffix, Word, T, of_two, of_three, of_sum)                      \
    static inline Word __vi##name##_##suffix##_relu(Word a, Word b) {                            \
        return sapwood_cuda::not_below_0<T>(of_two);                                             \
    }                                                                                            \
    static inline Word __vi##name##3_##suffix##_relu(Word a, Word b, Word c) {                   \
        return sapwood_cuda::not_below_0<T>(of_three);                                           \
    }                                                                                            \
    static inline Word __viadd##name##_##suffix##_relu(Word a, Word b, Word c) {                 \
        return sapwood_cuda::not_below_0<T>(of_sum);                                             \
    }
namespace sapwood_cuda {
template <class T, class Word> Word not_below_0(Word a) {
    if constexpr (sizeof(T) == sizeof(Word)) return a < 0 ? 0 : a;
    else return each_lane<T>([](int x) { return x < 0 ? 0 : x; }, a);
}
}
SAPWOOD_DPX(max, sapwood_cuda::most_of, true)
SAPWOOD_DPX(min, sapwood_cuda::least_of, false)
#undef SAPWOOD_DPX
#undef SAPWOOD_WHOLE
#undef SAPWOOD_HALVES
#undef SAPWOOD_RELU

// Two halves by the lower or upper two bytes of another word.
#define SAPWOOD_DOT(T, S, B)                                                                     \
    static inline T __dp2a_lo(T a, T b, T c) {                                                   \
        return T(unsigned(c) + unsigned(S(a) * B(b)) + unsigned(S(a >> 16) * B(b >> 8)));        \
    }                                                                                            \
    static inline T __dp2a_hi(T a, T b, T c) { return __dp2a_lo(a, T(unsigned(b) >> 16), c); }
SAPWOOD_DOT(int, int16_t, int8_t)
SAPWOOD_DOT(unsigned, uint16_t, uint8_t)
#undef SAPWOOD_DOT
