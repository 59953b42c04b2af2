#pragma once
__device__ __forceinline__ int global_index() { return blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __noinline__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    return v;
}
