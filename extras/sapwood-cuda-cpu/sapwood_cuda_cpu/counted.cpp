// Linked to programs that nvcc compiles: counts their copies and launches on the way to the
// runtime library (the linker's --wrap). The structure is that of shim/sapwood/counts.h.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace {
struct Counts {
    uint64_t copies_in = 0, bytes_in = 0, copies_out = 0, bytes_out = 0, launches = 0;
    double seconds_in = 0, seconds_out = 0, launch_seconds = 0;
};
struct Extents {
    unsigned x, y, z;
};
enum Kind { HOST_TO_DEVICE = 1, DEVICE_TO_HOST = 2 };

Counts counts;
std::mutex counting;

template <class Copy> int counted(size_t bytes, int kind, Copy copy) {
    auto begin = std::chrono::steady_clock::now();
    int error = copy();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::lock_guard<std::mutex> lock(counting);
    if (kind == HOST_TO_DEVICE) counts.copies_in++, counts.bytes_in += bytes, counts.seconds_in += seconds;
    if (kind == DEVICE_TO_HOST) counts.copies_out++, counts.bytes_out += bytes, counts.seconds_out += seconds;
    return error;
}
}

extern "C" {
__attribute__((visibility("default"))) Counts *sapwood_cuda_counts() { return &counts; }

int __real_cudaMemcpy(void *, const void *, size_t, int);
int __wrap_cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    return counted(bytes, kind, [&] { return __real_cudaMemcpy(to, from, bytes, kind); });
}
int __real_cudaMemcpyAsync(void *, const void *, size_t, int, void *);
int __wrap_cudaMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    return counted(bytes, kind, [&] { return __real_cudaMemcpyAsync(to, from, bytes, kind, stream); });
}
int __real_cudaMemcpy2D(void *, size_t, const void *, size_t, size_t, size_t, int);
int __wrap_cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        int kind) {
    return counted(width * height, kind,
                   [&] { return __real_cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind); });
}
int __real_cudaMemcpyToSymbol(const void *, const void *, size_t, size_t, int);
int __wrap_cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, int kind) {
    return counted(bytes, kind, [&] { return __real_cudaMemcpyToSymbol(symbol, from, bytes, offset, kind); });
}
int __real_cudaMemcpyFromSymbol(void *, const void *, size_t, size_t, int);
int __wrap_cudaMemcpyFromSymbol(void *to, const void *symbol, size_t bytes, size_t offset, int kind) {
    return counted(bytes, kind, [&] { return __real_cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind); });
}
int __real_cudaLaunchKernel(const void *, Extents, Extents, void **, size_t, void *);
int __wrap_cudaLaunchKernel(const void *kernel, Extents grid, Extents block, void **arguments, size_t shared,
                            void *stream) {
    std::lock_guard<std::mutex> lock(counting);
    counts.launches++; // when it ends is not waited for
    return __real_cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}
}
