// CUB: what a warp, a block or the whole device does together.
#pragma once

#include "../cuda_runtime.h"
#include "cub_block.h"
#include "cub_device.h"
