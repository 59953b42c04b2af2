// The runtime API under the names that C knows; built into programs that have C sources.
#include <cuda_runtime.h>

#include "sapwood/c_functions.h"

// The names are those of the C++ functions: only the symbols are C's. A library keeps them to itself.
#define SAPWOOD_C(type, name, parameters, arguments)                                             \
    __attribute__((visibility("hidden"), used)) type sapwood_c_##name parameters __asm__(#name); \
    type sapwood_c_##name parameters { return name arguments; }
SAPWOOD_C_FUNCTIONS(SAPWOOD_C)

extern "C" __attribute__((visibility("hidden"), used)) cudaError_t sapwood_cuda_allocate(
    void **p, size_t n, const char *call, const char *file, int line) {
    return sapwood_cuda::allocate(p, n, call, file, line);
}
