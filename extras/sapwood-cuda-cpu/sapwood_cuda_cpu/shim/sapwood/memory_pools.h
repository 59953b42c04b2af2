// Memory pools of one process: all of them give what cudaMalloc gives, at once.
#pragma once

#include "api.h"

enum cudaMemLocationType { cudaMemLocationTypeInvalid, cudaMemLocationTypeDevice, cudaMemLocationTypeHost, cudaMemLocationTypeHostNuma };
struct cudaMemLocation { cudaMemLocationType type; int id; };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtNone, cudaMemAccessFlagsProtRead, cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemAccessDesc { cudaMemLocation location; cudaMemAccessFlags flags; };
enum cudaMemAllocationType { cudaMemAllocationTypeInvalid, cudaMemAllocationTypePinned };
enum cudaMemAllocationHandleType { cudaMemHandleTypeNone, cudaMemHandleTypePosixFileDescriptor };
struct cudaMemPoolProps {
    cudaMemAllocationType allocType;
    cudaMemAllocationHandleType handleTypes;
    cudaMemLocation location;
    void *win32SecurityAttributes;
    size_t maxSize;
};
enum cudaMemPoolAttr {
    cudaMemPoolReuseFollowEventDependencies = 1, cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies,
    cudaMemPoolAttrReleaseThreshold, cudaMemPoolAttrReservedMemCurrent, cudaMemPoolAttrReservedMemHigh,
    cudaMemPoolAttrUsedMemCurrent, cudaMemPoolAttrUsedMemHigh
};

namespace sapwood_cuda {
struct MemoryPool {
    int reuse[4] = {0, 1, 1, 1};
    uint64_t threshold = 0;
};
inline MemoryPool default_pool, *current_pool = &default_pool;
}
typedef sapwood_cuda::MemoryPool *cudaMemPool_t;

inline cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
    *pool = &sapwood_cuda::default_pool;
    return device ? sapwood_cuda::fail(cudaErrorInvalidDevice) : cudaSuccess;
}
inline cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device) {
    *pool = sapwood_cuda::current_pool;
    return device ? sapwood_cuda::fail(cudaErrorInvalidDevice) : cudaSuccess;
}
inline cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    if (device || !pool) return sapwood_cuda::fail(device ? cudaErrorInvalidDevice : cudaErrorInvalidValue);
    sapwood_cuda::current_pool = pool;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolCreate(cudaMemPool_t *pool, const cudaMemPoolProps *wanted) {
    if (wanted->handleTypes != cudaMemHandleTypeNone) return sapwood_cuda::fail(cudaErrorNotSupported);
    *pool = new sapwood_cuda::MemoryPool;
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    if (!pool || pool == &sapwood_cuda::default_pool) return sapwood_cuda::fail(cudaErrorInvalidValue);
    if (pool == sapwood_cuda::current_pool) sapwood_cuda::current_pool = &sapwood_cuda::default_pool;
    delete pool;
    return cudaSuccess;
}
// What a pool holds is not counted: these are kept, and asked for again.
inline cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void *value) {
    if (which > cudaMemPoolAttrReleaseThreshold) return sapwood_cuda::fail(cudaErrorNotSupported);
    if (which == cudaMemPoolAttrReleaseThreshold) memcpy(&pool->threshold, value, sizeof pool->threshold);
    else memcpy(&pool->reuse[which], value, sizeof(int));
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr which, void *value) {
    if (which > cudaMemPoolAttrReleaseThreshold) return sapwood_cuda::fail(cudaErrorNotSupported);
    if (which == cudaMemPoolAttrReleaseThreshold) memcpy(value, &pool->threshold, sizeof pool->threshold);
    else memcpy(value, &pool->reuse[which], sizeof(int));
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
inline cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc *wanted, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (wanted[i].location.id) return sapwood_cuda::fail(cudaErrorInvalidDevice);
    return cudaSuccess;
}
inline cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags *flags, cudaMemPool_t, cudaMemLocation *) {
    *flags = cudaMemAccessFlagsProtReadWrite;
    return cudaSuccess;
}
template <class T> cudaError_t cudaMallocFromPoolAsync(T **p, size_t bytes, cudaMemPool_t, cudaStream_t, SAPWOOD_PLACE) {
    return sapwood_cuda::allocate((void **)p, bytes, "cudaMallocFromPoolAsync", file, line);
}
template <class T> cudaError_t cudaMallocAsync(T **p, size_t bytes, cudaMemPool_t, cudaStream_t, SAPWOOD_PLACE) {
    return sapwood_cuda::allocate((void **)p, bytes, "cudaMallocAsync", file, line);
}

// As CUDA 13 has them: hints where memory will be used.
inline cudaError_t cudaMemPrefetchAsync(const void *, size_t, cudaMemLocation, unsigned = 0, cudaStream_t = 0) { return cudaSuccess; }
inline cudaError_t cudaMemAdvise(const void *, size_t, cudaMemoryAdvise, cudaMemLocation) { return cudaSuccess; }
