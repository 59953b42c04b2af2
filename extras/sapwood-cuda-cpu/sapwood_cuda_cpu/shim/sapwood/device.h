// What the one device says of itself: its properties and attributes.
#pragma once

#include <cstring>

#include "launch.h"
#include "names.h"

namespace sapwood_cuda {
inline size_t memory_bytes() { return size_t(sysconf(_SC_PHYS_PAGES)) * size_t(sysconf(_SC_PAGESIZE)); }
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (device != 0) return sapwood_cuda::fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "CPU (Sapwood)");
    p->totalGlobalMem = sapwood_cuda::memory_bytes();
    p->sharedMemPerBlock = p->sharedMemPerMultiprocessor = sapwood_cuda::usual_shared;
    p->sharedMemPerBlockOptin = sapwood_cuda::most_shared;
    p->totalConstMem = 65536;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32, p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->clockRate = 1000000, p->memoryClockRate = 1000000, p->memoryBusWidth = 64, p->l2CacheSize = 1 << 20;
    p->major = 7, p->multiProcessorCount = int(sapwood_cuda::pool().count()), p->maxThreadsPerMultiProcessor = 1024;
    p->maxBlocksPerMultiProcessor = 1, p->integrated = p->canMapHostMemory = p->unifiedAddressing = 1;
    p->managedMemory = p->concurrentManagedAccess = p->cooperativeLaunch = 1;
    p->memoryPoolsSupported = p->hostRegisterSupported = p->unifiedFunctionPointers = 1;
    p->memPitch = 0x7fffffff, p->textureAlignment = 512;
    p->maxTexture1D = p->maxTexture2D[0] = 131072, p->maxTexture2D[1] = 65536, p->maxTexture1DLinear = 1 << 28;
    p->maxTexture3D[0] = p->maxTexture3D[1] = p->maxTexture3D[2] = 16384, p->maxTexture2DLinear[0] = 131072;
    p->maxTexture2DLinear[1] = 65000, p->maxTexture2DLinear[2] = 1 << 21, p->texturePitchAlignment = 32;
    p->maxTexture1DLayered[0] = p->maxTexture2DLayered[0] = p->maxTexture2DLayered[1] = 32768;
    p->maxTexture1DLayered[1] = p->maxTexture2DLayered[2] = 2048;
    p->maxSurface1D = p->maxSurface2D[0] = p->maxSurface2D[1] = 32768, p->surfaceAlignment = 512;
    p->asyncEngineCount = p->deviceOverlap = 1; // copies in streams work; programs ask before they use any
    return cudaSuccess;
}
inline cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr which, int device) {
    cudaDeviceProp p;
    if (auto error = cudaGetDeviceProperties(&p, device)) return error;
    switch (which) {
        case cudaDevAttrMaxThreadsPerBlock: case cudaDevAttrMaxBlockDimX: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = int(p.sharedMemPerBlockOptin); break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
        case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
        case cudaDevAttrClockRate: *value = p.clockRate; break;
        case cudaDevAttrMaxBlockDimY: *value = 1024; break;
        case cudaDevAttrMaxBlockDimZ: *value = p.maxThreadsDim[2]; break;
        case cudaDevAttrMaxGridDimX: *value = p.maxGridSize[0]; break;
        case cudaDevAttrMaxGridDimY: case cudaDevAttrMaxGridDimZ: *value = p.maxGridSize[1]; break;
        case cudaDevAttrTotalConstantMemory: *value = int(p.totalConstMem); break;
        case cudaDevAttrMaxRegistersPerBlock: case cudaDevAttrMaxRegistersPerMultiprocessor: *value = p.regsPerBlock; break;
        case cudaDevAttrMemoryClockRate: *value = p.memoryClockRate; break;
        case cudaDevAttrGlobalMemoryBusWidth: *value = p.memoryBusWidth; break;
        case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = int(p.sharedMemPerMultiprocessor); break;
        case cudaDevAttrMaxPitch: *value = int(p.memPitch); break;
        case cudaDevAttrTextureAlignment: *value = int(p.textureAlignment); break;
        case cudaDevAttrMaxBlocksPerMultiprocessor: *value = p.maxBlocksPerMultiProcessor; break;
        case cudaDevAttrMemoryPoolsSupported: case cudaDevAttrHostRegisterSupported:
        case cudaDevAttrGpuOverlap: case cudaDevAttrAsyncEngineCount:
        case cudaDevAttrIntegrated: case cudaDevAttrCanMapHostMemory: case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrPageableMemoryAccess: case cudaDevAttrHostNativeAtomicSupported:
        case cudaDevAttrManagedMemory: case cudaDevAttrConcurrentManagedAccess: case cudaDevAttrCooperativeLaunch:
            *value = 1;
            break;
        default: *value = 0;
    }
    return cudaSuccess;
}

// There is one device: no other one to reach.
enum cudaDeviceP2PAttr {
    cudaDevP2PAttrPerformanceRank = 1, cudaDevP2PAttrAccessSupported, cudaDevP2PAttrNativeAtomicSupported,
    cudaDevP2PAttrCudaArrayAccessSupported
};
inline cudaError_t cudaDeviceGetP2PAttribute(int *, cudaDeviceP2PAttr, int, int) {
    return sapwood_cuda::fail(cudaErrorInvalidDevice);
}
inline cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    *can = 0;
    return device || peer ? sapwood_cuda::fail(cudaErrorInvalidDevice) : cudaSuccess;
}
inline cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return sapwood_cuda::fail(cudaErrorInvalidDevice); }
inline cudaError_t cudaDeviceDisablePeerAccess(int) { return sapwood_cuda::fail(cudaErrorPeerAccessNotEnabled); }
