// Complex numbers as pairs of floats or doubles.
#pragma once

#include "cuda_runtime.h"

typedef float2 cuFloatComplex;
typedef double2 cuDoubleComplex;
typedef cuFloatComplex cuComplex;

#define SAPWOOD_COMPLEX(T, C, f, make, root)                                                     \
    static inline C make(T x, T y) { return {x, y}; }                                            \
    static inline T cuCreal##f(C a) { return a.x; }                                              \
    static inline T cuCimag##f(C a) { return a.y; }                                              \
    static inline C cuConj##f(C a) { return {a.x, -a.y}; }                                       \
    static inline C cuCadd##f(C a, C b) { return {a.x + b.x, a.y + b.y}; }                       \
    static inline C cuCsub##f(C a, C b) { return {a.x - b.x, a.y - b.y}; }                       \
    static inline C cuCmul##f(C a, C b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; } \
    static inline C cuCdiv##f(C a, C b) { /* scaled, so that squares stay in range */            \
        T s = T(1) / (std::fabs(b.x) + std::fabs(b.y));                                          \
        T ax = a.x * s, ay = a.y * s, bx = b.x * s, by = b.y * s, d = T(1) / (bx * bx + by * by); \
        return {(ax * bx + ay * by) * d, (ay * bx - ax * by) * d};                               \
    }                                                                                            \
    static inline C cuCfma##f(C a, C b, C c) { return cuCadd##f(cuCmul##f(a, b), c); }           \
    static inline T cuCabs##f(C a) { return root(a.x, a.y); }
SAPWOOD_COMPLEX(float, cuFloatComplex, f, make_cuFloatComplex, hypotf)
SAPWOOD_COMPLEX(double, cuDoubleComplex, , make_cuDoubleComplex, hypot)
#undef SAPWOOD_COMPLEX
static inline cuComplex make_cuComplex(float x, float y) { return {x, y}; }
static inline cuDoubleComplex cuComplexFloatToDouble(cuFloatComplex a) { return {a.x, a.y}; }
static inline cuFloatComplex cuComplexDoubleToFloat(cuDoubleComplex a) { return {float(a.x), float(a.y)}; }
