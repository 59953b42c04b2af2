// The functions of the runtime API that C sources may call: each(type, name, parameters, arguments).

#define SAPWOOD_C_FUNCTIONS(each) \
    each(cudaError_t, cudaGetLastError, (void), ()) \
    each(cudaError_t, cudaPeekAtLastError, (void), ()) \
    each(const char *, cudaGetErrorString, (cudaError_t error), (error)) \
    each(const char *, cudaGetErrorName, (cudaError_t error), (error)) \
    each(cudaError_t, cudaGetDeviceCount, (int *n), (n)) \
    each(cudaError_t, cudaGetDevice, (int *device), (device)) \
    each(cudaError_t, cudaSetDevice, (int device), (device)) \
    each(cudaError_t, cudaSetDeviceFlags, (unsigned flags), (flags)) \
    each(cudaError_t, cudaGetDeviceFlags, (unsigned *flags), (flags)) \
    each(cudaError_t, cudaGetDeviceProperties, (struct cudaDeviceProp *p, int device), (p, device)) \
    each(cudaError_t, cudaChooseDevice, (int *device, const struct cudaDeviceProp *p), (device, p)) \
    each(cudaError_t, cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr which, int device), (value, which, device)) \
    each(cudaError_t, cudaDeviceGetPCIBusId, (char *id, int n, int device), (id, n, device)) \
    each(cudaError_t, cudaDeviceGetLimit, (size_t *value, enum cudaLimit which), (value, which)) \
    each(cudaError_t, cudaDeviceSetLimit, (enum cudaLimit which, size_t value), (which, value)) \
    each(cudaError_t, cudaDeviceSetCacheConfig, (enum cudaFuncCache which), (which)) \
    each(cudaError_t, cudaDeviceSetSharedMemConfig, (enum cudaSharedMemConfig which), (which)) \
    each(cudaError_t, cudaDeviceCanAccessPeer, (int *can, int device, int peer), (can, device, peer)) \
    each(cudaError_t, cudaDeviceEnablePeerAccess, (int peer, unsigned flags), (peer, flags)) \
    each(cudaError_t, cudaDeviceDisablePeerAccess, (int peer), (peer)) \
    each(cudaError_t, cudaDeviceGetStreamPriorityRange, (int *least, int *greatest), (least, greatest)) \
    each(cudaError_t, cudaDeviceSynchronize, (void), ()) \
    each(cudaError_t, cudaThreadSynchronize, (void), ()) \
    each(cudaError_t, cudaDeviceReset, (void), ()) \
    each(cudaError_t, cudaThreadExit, (void), ()) \
    each(cudaError_t, cudaRuntimeGetVersion, (int *version), (version)) \
    each(cudaError_t, cudaDriverGetVersion, (int *version), (version)) \
    each(cudaError_t, cudaMalloc, (void **p, size_t n), (p, n)) \
    each(cudaError_t, cudaMallocManaged, (void **p, size_t n, unsigned flags), (p, n, flags)) \
    each(cudaError_t, cudaMallocHost, (void **p, size_t n), (p, n)) \
    each(cudaError_t, cudaHostAlloc, (void **p, size_t n, unsigned flags), (p, n, flags)) \
    each(cudaError_t, cudaMallocPitch, (void **p, size_t *pitch, size_t width, size_t height), (p, pitch, width, height)) \
    each(cudaError_t, cudaMallocAsync, (void **p, size_t n, cudaStream_t s), (p, n, s)) \
    each(cudaError_t, cudaFree, (void *p), (p)) \
    each(cudaError_t, cudaFreeHost, (void *p), (p)) \
    each(cudaError_t, cudaFreeAsync, (void *p, cudaStream_t s), (p, s)) \
    each(cudaError_t, cudaHostRegister, (void *p, size_t n, unsigned flags), (p, n, flags)) \
    each(cudaError_t, cudaHostUnregister, (void *p), (p)) \
    each(cudaError_t, cudaHostGetDevicePointer, (void **p, void *host, unsigned flags), (p, host, flags)) \
    each(cudaError_t, cudaMemGetInfo, (size_t *free, size_t *total), (free, total)) \
    each(cudaError_t, cudaPointerGetAttributes, (struct cudaPointerAttributes *a, const void *p), (a, p)) \
    each(cudaError_t, cudaMemcpy, (void *to, const void *from, size_t n, enum cudaMemcpyKind kind), (to, from, n, kind)) \
    each(cudaError_t, cudaMemcpyAsync, (void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s), \
         (to, from, n, kind, s)) \
    each(cudaError_t, cudaMemcpyPeer, (void *to, int td, const void *from, int fd, size_t n), (to, td, from, fd, n)) \
    each(cudaError_t, cudaMemcpy2D, (void *to, size_t tp, const void *from, size_t fp, size_t width, size_t height, \
                                     enum cudaMemcpyKind kind), (to, tp, from, fp, width, height, kind)) \
    each(cudaError_t, cudaMemcpy2DAsync, (void *to, size_t tp, const void *from, size_t fp, size_t width, size_t height, \
                                          enum cudaMemcpyKind kind, cudaStream_t s), (to, tp, from, fp, width, height, kind, s)) \
    each(cudaError_t, cudaMemset, (void *p, int value, size_t n), (p, value, n)) \
    each(cudaError_t, cudaMemsetAsync, (void *p, int value, size_t n, cudaStream_t s), (p, value, n, s)) \
    each(cudaError_t, cudaMemset2D, (void *p, size_t pitch, int value, size_t width, size_t height), \
         (p, pitch, value, width, height)) \
    each(cudaError_t, cudaMemPrefetchAsync, (const void *p, size_t n, int device, cudaStream_t s), (p, n, device, s)) \
    each(cudaError_t, cudaMemAdvise, (const void *p, size_t n, enum cudaMemoryAdvise what, int device), (p, n, what, device)) \
    each(cudaError_t, cudaStreamCreate, (cudaStream_t *s), (s)) \
    each(cudaError_t, cudaStreamCreateWithFlags, (cudaStream_t *s, unsigned flags), (s, flags)) \
    each(cudaError_t, cudaStreamCreateWithPriority, (cudaStream_t *s, unsigned flags, int priority), (s, flags, priority)) \
    each(cudaError_t, cudaStreamDestroy, (cudaStream_t s), (s)) \
    each(cudaError_t, cudaStreamSynchronize, (cudaStream_t s), (s)) \
    each(cudaError_t, cudaStreamQuery, (cudaStream_t s), (s)) \
    each(cudaError_t, cudaStreamWaitEvent, (cudaStream_t s, cudaEvent_t e, unsigned flags), (s, e, flags)) \
    each(cudaError_t, cudaStreamAddCallback, (cudaStream_t s, cudaStreamCallback_t call, void *data, unsigned flags), \
         (s, call, data, flags)) \
    each(cudaError_t, cudaLaunchHostFunc, (cudaStream_t s, cudaHostFn_t call, void *data), (s, call, data)) \
    each(cudaError_t, cudaEventCreate, (cudaEvent_t *e), (e)) \
    each(cudaError_t, cudaEventCreateWithFlags, (cudaEvent_t *e, unsigned flags), (e, flags)) \
    each(cudaError_t, cudaEventDestroy, (cudaEvent_t e), (e)) \
    each(cudaError_t, cudaEventRecord, (cudaEvent_t e, cudaStream_t s), (e, s)) \
    each(cudaError_t, cudaEventSynchronize, (cudaEvent_t e), (e)) \
    each(cudaError_t, cudaEventQuery, (cudaEvent_t e), (e)) \
    each(cudaError_t, cudaEventElapsedTime, (float *ms, cudaEvent_t from, cudaEvent_t to), (ms, from, to)) \
    each(cudaError_t, cudaProfilerStart, (void), ()) \
    each(cudaError_t, cudaProfilerStop, (void), ())
