// Macros of another file that are not the same on host and device.
#pragma once
#define HOST_DEVICE __host__ __device__
#ifdef __CUDA_ARCH__
#define SHARED_FAST 3
#define WHERE_FROM 8
#else
#define WHERE_FROM 9
#endif
