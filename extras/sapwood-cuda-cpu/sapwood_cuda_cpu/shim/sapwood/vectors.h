// The short vectors, for C and for C++.
#pragma once

#define SAPWOOD_STRUCT(T, name, n, align, ...)                                                   \
    struct __attribute__((aligned(align))) name##n { T __VA_ARGS__; };                           \
    typedef struct name##n name##n;
#define SAPWOOD_VECTOR(T, name, align1, align2, align4)                                          \
    SAPWOOD_STRUCT(T, name, 1, align1, x)                                                        \
    SAPWOOD_STRUCT(T, name, 2, align2, x, y)                                                     \
    SAPWOOD_STRUCT(T, name, 3, align1, x, y, z)                                                  \
    SAPWOOD_STRUCT(T, name, 4, align4, x, y, z, w)                                               \
    static inline name##1 make_##name##1(T x) { name##1 v = {x}; return v; }                     \
    static inline name##2 make_##name##2(T x, T y) { name##2 v = {x, y}; return v; }             \
    static inline name##3 make_##name##3(T x, T y, T z) { name##3 v = {x, y, z}; return v; }     \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { name##4 v = {x, y, z, w}; return v; }

SAPWOOD_VECTOR(signed char, char, 1, 2, 4)
SAPWOOD_VECTOR(unsigned char, uchar, 1, 2, 4)
SAPWOOD_VECTOR(short, short, 2, 4, 8)
SAPWOOD_VECTOR(unsigned short, ushort, 2, 4, 8)
SAPWOOD_VECTOR(int, int, 4, 8, 16)
SAPWOOD_VECTOR(unsigned int, uint, 4, 8, 16)
SAPWOOD_VECTOR(long, long, 8, 16, 16)
SAPWOOD_VECTOR(unsigned long, ulong, 8, 16, 16)
SAPWOOD_VECTOR(long long, longlong, 8, 16, 16)
SAPWOOD_VECTOR(unsigned long long, ulonglong, 8, 16, 16)
SAPWOOD_VECTOR(float, float, 4, 8, 16)
SAPWOOD_VECTOR(double, double, 8, 16, 16)
#undef SAPWOOD_VECTOR
#undef SAPWOOD_STRUCT
