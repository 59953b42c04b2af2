// 16-bit floats with the exponents of a float: __nv_bfloat16 and __nv_bfloat162.
#pragma once

#include "cuda_fp16.h"

#ifdef __CUDA_NO_BFLOAT16_OPERATORS__
#define SAPWOOD_NO_OPERATORS
#endif
#define SAPWOOD_NAME_(a, b) a##bfloat16##b
#define SAPWOOD_NAME(a, b) SAPWOOD_NAME_(a, b)
#define SAPWOOD_PREFIX __nv_
#define SAPWOOD_PAIR_OF __bfloat162bfloat162
#define SAPWOOD_FORMAT BrainFormat
#define SAPWOOD_T __nv_bfloat16
#define SAPWOOD_T2 __nv_bfloat162
#include "sapwood/short_float_functions.h"
#include "sapwood/short_float_end.h"

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;
