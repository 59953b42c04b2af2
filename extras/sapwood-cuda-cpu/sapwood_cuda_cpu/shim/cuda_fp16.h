// 16-bit floats: half and half2.
#pragma once

#include "sapwood/short_floats.h"

#ifdef __CUDA_NO_HALF_OPERATORS__
#define SAPWOOD_NO_OPERATORS
#endif
#define SAPWOOD_NAME_(a, b) a##half##b
#define SAPWOOD_NAME(a, b) SAPWOOD_NAME_(a, b)
#define SAPWOOD_PREFIX __
#define SAPWOOD_PAIR_OF __half2half2
#define SAPWOOD_FORMAT HalfFormat
#define SAPWOOD_T __half
#define SAPWOOD_T2 __half2
#include "sapwood/short_float_functions.h"
#include "sapwood/short_float_end.h"

typedef __half half;
typedef __half2 half2;
typedef __half nv_half;
typedef __half2 nv_half2;
