// The words of CUDA C++ as a C++ compiler takes them: qualifiers, dim3 and the short vectors.
#pragma once

#define __SAPWOOD_CUDA__ 1

#include <algorithm>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#define __CUDACC__ 1
#define __NVCC__
#define __CUDA_ARCH_LIST__ 700
#define CUDART_VERSION 12000
#define CUDA_VERSION 12000
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 0
#define __DRIVER_TYPES_H__
#define __CUDA_RUNTIME_H__
#define __VECTOR_TYPES_H__

#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __inline_hint__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define CUDART_CB
#ifndef _Bool
#define _Bool bool // headers of C programs say so
#endif

namespace sapwood_cuda {
template <class T> struct Same { using type = T; };
}

#define SAPWOOD_VECTOR(T, name, align1, align2, align4)                                          \
    struct name##1 { T x; };                                                                     \
    struct alignas(align2) name##2 { T x, y; };                                                  \
    struct name##3 { T x, y, z; };                                                               \
    struct alignas(align4) name##4 { T x, y, z, w; };                                            \
    static inline name##1 make_##name##1(T x) { return {x}; }                                    \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                            \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                    \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

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

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
