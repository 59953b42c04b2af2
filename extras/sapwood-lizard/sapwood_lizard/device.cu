// Built into the library of every program: what Sapwood asks of its device.
#include <cuda_runtime.h>

/* Forgets errors of earlier calls. */
extern "C" void sapwood_lizard_begin(void) { cudaGetLastError(); }

/* Waits for the device; returns the text of an error since the begin, or null. */
extern "C" const char *sapwood_lizard_end(void) {
#ifdef __SAPWOOD_CUDA__
    sapwood_cuda::at_rest(SIZE_MAX); /* a row that Python wrote to may be any of many allocations */
#endif
    cudaError_t error = cudaDeviceSynchronize();
    cudaError_t last = cudaGetLastError();
    if (error == cudaSuccess) error = last;
    return error == cudaSuccess ? 0 : cudaGetErrorString(error);
}

/* Says whether this library was built for a GPU. */
extern "C" int sapwood_lizard_on_gpu(void) {
#ifdef __SAPWOOD_CUDA__
    return 0;
#else
    return 1;
#endif
}
