// What the one device says of itself: its properties and attributes.
#pragma once

#include <cstring>

#include "launch.h"

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1, cudaDevAttrMaxBlockDimX = 2, cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10, cudaDevAttrClockRate = 13, cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxBlockDimY = 3, cudaDevAttrMaxBlockDimZ = 4, cudaDevAttrMaxGridDimX = 5, cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7, cudaDevAttrTotalConstantMemory = 9, cudaDevAttrMaxRegistersPerBlock = 12,
    cudaDevAttrIntegrated = 18, cudaDevAttrCanMapHostMemory = 19, cudaDevAttrComputeMode = 20,
    cudaDevAttrConcurrentKernels = 31, cudaDevAttrEccEnabled = 32, cudaDevAttrPciBusId = 33, cudaDevAttrPciDeviceId = 34,
    cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37, cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39, cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrStreamPrioritiesSupported = 78, cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxRegistersPerMultiprocessor = 82, cudaDevAttrIsMultiGpuBoard = 84, cudaDevAttrPageableMemoryAccess = 88,
    cudaDevAttrHostNativeAtomicSupported = 86,
    cudaDevAttrManagedMemory = 83, cudaDevAttrConcurrentManagedAccess = 89,
    cudaDevAttrCooperativeLaunch = 95, cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor, totalConstMem;
    size_t memPitch, textureAlignment;
    int regsPerBlock, regsPerMultiprocessor, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
    int clockRate, memoryClockRate, memoryBusWidth, l2CacheSize, major, minor, multiProcessorCount;
    int maxThreadsPerMultiProcessor, maxBlocksPerMultiProcessor, concurrentKernels, asyncEngineCount;
    int integrated, canMapHostMemory, computeMode, ECCEnabled, pciBusID, pciDeviceID, pciDomainID;
    int unifiedAddressing, managedMemory, concurrentManagedAccess, cooperativeLaunch, deviceOverlap;
    int kernelExecTimeoutEnabled, tccDriver, streamPrioritiesSupported, globalL1CacheSupported, localL1CacheSupported;
    int isMultiGpuBoard, multiGpuBoardGroupID, hostNativeAtomicSupported, pageableMemoryAccess, persistingL2CacheMaxSize;
    int singleToDoublePrecisionPerfRatio, computePreemptionSupported, accessPolicyMaxWindowSize, canUseHostPointerForRegisteredMem;
    int cooperativeMultiDeviceLaunch, pageableMemoryAccessUsesHostPageTables, directManagedMemAccessFromHost;
    size_t surfaceAlignment, reservedSharedMemPerBlock;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, maxDynamicSharedSizeBytes;
};

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
