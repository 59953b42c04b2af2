// Arrays that kernels declare, between guards: shared ones and those of device memory.
#pragma once

#include "launch.h"

namespace sapwood_cuda {

// What `__shared__ T name[n];` and `__device__ T name[n];` become; `array` is what the source means.
template <class T> struct Guarded {
    alignas(64) unsigned char before[shared_guard_bytes];
    T array;
    unsigned char behind[shared_guard_bytes];
};

// Looks at a shared array when the block leaves the function that declares it.
template <class T> class Watch {
  public:
    __attribute__((always_inline)) Watch(Guarded<T> &guarded, const char *name, SAPWOOD_PLACE)
        : guarded_(guarded), name_(name), file_(file), line_(line) {
        memset(guarded.before, guard_pattern, shared_guard_bytes);
        memset(guarded.behind, guard_pattern, shared_guard_bytes);
    }
    __attribute__((always_inline)) ~Watch() {
        asm volatile("" : : "r"(&guarded_) : "memory"); // the array may be written beyond
        if (__builtin_expect(is_changed(guarded_.before) | is_changed(guarded_.behind), 0))
            report_array({guarded_.before + shared_guard_bytes, sizeof(T), name_, file_, line_});
    }
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

  private:
    Guarded<T> &guarded_;
    const char *name_, *file_;
    int line_;
};

// Looks at an array when the block has ended; for each thread that comes to its declaration.
template <class T> void watch_shared(Guarded<T> &guarded, const char *name, SAPWOOD_PLACE) {
    auto &arrays = self->block->arrays;
    auto *array = guarded.before + shared_guard_bytes;
    for (const Array &each : arrays)
        if (each.begin == array) return;
    arrays.push_back({array, sizeof(T), name, file, line});
    memset(guarded.before, guard_pattern, shared_guard_bytes);
    memset(guarded.behind, guard_pattern, shared_guard_bytes);
}

// Has an array of device memory looked at as what cudaMalloc gives.
struct Known {
    template <class T> Known(Guarded<T> &guarded, const char *name, SAPWOOD_PLACE) {
        memory().declare(guarded.before + shared_guard_bytes, {sizeof(T), shared_guard_bytes, shared_guard_bytes, name, file, line});
    }
};

} // namespace sapwood_cuda
