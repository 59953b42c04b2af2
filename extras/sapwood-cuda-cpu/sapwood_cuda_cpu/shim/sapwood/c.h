// The runtime API for C sources; what they call is in for_c.cu.
#pragma once

#define __SAPWOOD_CUDA__ 1
#define CUDART_VERSION 12000
#define __host__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define CUDART_CB

#include "errors.h"
#include "names.h"
#include "vectors.h"

typedef struct dim3 { unsigned int x, y, z; } dim3;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaStreamCallback_t)(cudaStream_t, cudaError_t, void *);
typedef void (*cudaHostFn_t)(void *);

#include "c_functions.h"
#define SAPWOOD_C(type, name, parameters, arguments) type name parameters;
SAPWOOD_C_FUNCTIONS(SAPWOOD_C)
#undef SAPWOOD_C

// So that errors name the line of an allocation.
cudaError_t sapwood_cuda_allocate(void **p, size_t n, const char *call, const char *file, int line);
#define SAPWOOD_ALLOCATE(p, n, name) sapwood_cuda_allocate((void **)(p), n, #name, __FILE__, __LINE__)
#define cudaMalloc(p, n) SAPWOOD_ALLOCATE(p, n, cudaMalloc)
#define cudaMallocManaged(p, n, flags) ((void)(flags), SAPWOOD_ALLOCATE(p, n, cudaMallocManaged))
#define cudaMallocHost(p, n) SAPWOOD_ALLOCATE(p, n, cudaMallocHost)
#define cudaHostAlloc(p, n, flags) ((void)(flags), SAPWOOD_ALLOCATE(p, n, cudaHostAlloc))
