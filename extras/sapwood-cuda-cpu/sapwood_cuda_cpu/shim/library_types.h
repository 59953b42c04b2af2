#pragma once
#include "cuda_runtime.h"
#include "sapwood/data_types.h"
