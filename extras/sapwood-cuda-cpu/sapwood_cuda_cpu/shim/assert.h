// A failed assertion in a kernel ends the kernel with an error; on the host it is as ever.
#include_next <assert.h>

#if defined(__cplusplus) && defined(__SAPWOOD_CUDA__) && !defined(NDEBUG)
namespace sapwood_cuda {
[[noreturn]] void assertion_failed(const char *text, const char *file, int line, const char *function);
}
#undef assert
#define assert(condition)                                                                        \
    (static_cast<bool>(condition)                                                                \
         ? void(0)                                                                               \
         : ::sapwood_cuda::assertion_failed(#condition, __FILE__, __LINE__, __func__))
#endif
