// The errors of the runtime API: their numbers, names and texts.
#pragma once

#define SAPWOOD_ERRORS(each) \
    each(cudaSuccess, 0, "no error") \
    each(cudaErrorInvalidValue, 1, "invalid argument") \
    each(cudaErrorMemoryAllocation, 2, "out of memory") \
    each(cudaErrorInitializationError, 3, "initialization error") \
    each(cudaErrorCudartUnloading, 4, "cudart unloading") \
    each(cudaErrorProfilerDisabled, 5, "profiler disabled") \
    each(cudaErrorInvalidConfiguration, 9, "invalid configuration argument") \
    each(cudaErrorInvalidPitchValue, 12, "invalid pitch value") \
    each(cudaErrorInvalidSymbol, 13, "invalid device symbol") \
    each(cudaErrorInvalidHostPointer, 16, "invalid host pointer") \
    each(cudaErrorInvalidDevicePointer, 17, "invalid device pointer") \
    each(cudaErrorInvalidTexture, 18, "invalid texture") \
    each(cudaErrorInvalidMemcpyDirection, 21, "invalid memcpy direction") \
    each(cudaErrorInsufficientDriver, 35, "CUDA driver version is insufficient for CUDA runtime version") \
    each(cudaErrorMissingConfiguration, 52, "missing configuration") \
    each(cudaErrorPriorLaunchFailure, 53, "prior launch failure") \
    each(cudaErrorInvalidDeviceFunction, 98, "invalid device function") \
    each(cudaErrorNoDevice, 100, "no CUDA-capable device is detected") \
    each(cudaErrorInvalidDevice, 101, "invalid device ordinal") \
    each(cudaErrorDeviceUninitialized, 201, "device uninitialized") \
    each(cudaErrorNoKernelImageForDevice, 209, "no kernel image for device") \
    each(cudaErrorECCUncorrectable, 214, "eccuncorrectable") \
    each(cudaErrorUnsupportedLimit, 215, "unsupported limit") \
    each(cudaErrorPeerAccessUnsupported, 217, "peer access unsupported") \
    each(cudaErrorInvalidPtx, 218, "invalid ptx") \
    each(cudaErrorInvalidSource, 300, "invalid source") \
    each(cudaErrorFileNotFound, 301, "file not found") \
    each(cudaErrorOperatingSystem, 304, "operating system") \
    each(cudaErrorInvalidResourceHandle, 400, "invalid resource handle") \
    each(cudaErrorIllegalState, 401, "illegal state") \
    each(cudaErrorSymbolNotFound, 500, "symbol not found") \
    each(cudaErrorNotReady, 600, "device not ready") \
    each(cudaErrorIllegalAddress, 700, "an illegal memory access was encountered") \
    each(cudaErrorLaunchOutOfResources, 701, "too many resources requested for launch") \
    each(cudaErrorLaunchTimeout, 702, "launch timeout") \
    each(cudaErrorPeerAccessAlreadyEnabled, 704, "peer access already enabled") \
    each(cudaErrorPeerAccessNotEnabled, 705, "peer access not enabled") \
    each(cudaErrorSetOnActiveProcess, 708, "set on active process") \
    each(cudaErrorContextIsDestroyed, 709, "context is destroyed") \
    each(cudaErrorAssert, 710, "device-side assert triggered") \
    each(cudaErrorTooManyPeers, 711, "too many peers") \
    each(cudaErrorHostMemoryAlreadyRegistered, 712, "host memory already registered") \
    each(cudaErrorHostMemoryNotRegistered, 713, "host memory not registered") \
    each(cudaErrorHardwareStackError, 714, "hardware stack error") \
    each(cudaErrorIllegalInstruction, 715, "illegal instruction") \
    each(cudaErrorMisalignedAddress, 716, "misaligned address") \
    each(cudaErrorInvalidAddressSpace, 717, "invalid address space") \
    each(cudaErrorInvalidPc, 718, "invalid pc") \
    each(cudaErrorLaunchFailure, 719, "unspecified launch failure") \
    each(cudaErrorCooperativeLaunchTooLarge, 720, "cooperative launch too large") \
    each(cudaErrorNotPermitted, 800, "not permitted") \
    each(cudaErrorNotSupported, 801, "operation not supported") \
    each(cudaErrorTimeout, 909, "timeout") \
    each(cudaErrorUnknown, 999, "unknown error")

enum cudaError {
#define SAPWOOD_ERROR(name, number, text) name = number,
    SAPWOOD_ERRORS(SAPWOOD_ERROR)
#undef SAPWOOD_ERROR
    cudaErrorInvalidKernelImage = 200,
    cudaErrorApiFailureBase = 10000
};
typedef enum cudaError cudaError_t;

#ifdef __cplusplus
inline const char *cudaGetErrorName(cudaError_t error) {
    switch (error) {
#define SAPWOOD_ERROR(name, number, text) case name: return #name;
        SAPWOOD_ERRORS(SAPWOOD_ERROR)
#undef SAPWOOD_ERROR
        default: return "unrecognized error code";
    }
}

namespace sapwood_cuda {
inline const char *error_text(cudaError_t error) {
    switch (error) {
#define SAPWOOD_ERROR(name, number, text) case name: return text;
        SAPWOOD_ERRORS(SAPWOOD_ERROR)
#undef SAPWOOD_ERROR
        default: return "unrecognized error code";
    }
}
} // namespace sapwood_cuda
#endif
