// CUDA C++ for a C++ compiler and a machine without a GPU; every patched source starts with it.
#pragma once

#ifndef __cplusplus
#include "sapwood/c.h"
#else

#include "sapwood/types.h"

#include "sapwood/api.h"
#include "sapwood/arrays.h"
#include "sapwood/atomics.h"
#include "sapwood/block_mode.h"
#include "sapwood/device_math.h"
#include "sapwood/guarded.h"
#include "sapwood/launch.h"
#include "sapwood/memory_pools.h"
#include "sapwood/shifts.h"
#include "sapwood/simd.h"
#include "sapwood/warp.h"

#endif
