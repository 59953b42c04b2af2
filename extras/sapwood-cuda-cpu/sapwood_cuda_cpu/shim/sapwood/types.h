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
#ifndef __shared__ // what reads a source without compiling it has another one
#define __shared__ static thread_local
#endif
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

#include "vectors.h"

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
    constexpr operator uint3() const { return uint3{x, y, z}; }
};
