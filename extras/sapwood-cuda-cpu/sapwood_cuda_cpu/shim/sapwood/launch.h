// Launching kernels: the blocks of a grid, what is looked at when they have ended, and the state of errors.
#pragma once

#include <ctime>
#include <type_traits>

#include "atomics.h"
#include "block.h"
#include "counts.h"
#include "errors.h"
#include "later.h"
#include "memory.h"
#include "pool.h"

typedef struct CUstream_st *cudaStream_t;

namespace sapwood_cuda {

// Errors of the calling host thread, and the one that no later call can repair.
inline thread_local cudaError_t last_error = cudaSuccess;
inline std::string failure;
inline cudaError_t failure_error = cudaErrorLaunchFailure;
inline size_t allowed_shared = usual_shared;

inline cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

inline std::string last_kernel;

// Says that something wrote where nothing is allocated: the next calls fail, as on a GPU.
inline void report_stray(const std::string &problem) {
    if (problem.empty() || !failure.empty()) return;
    failure = problem + (last_kernel.empty() ? "" : "; the last kernel was " + last_kernel);
    failure_error = cudaErrorIllegalAddress;
    fprintf(stderr, "%s\n", failure.c_str());
}

inline void report_failure(Block &block, const std::string &text, int error) {
    static Mutex mutex;
    Lock lock(mutex);
    if (block.failure->empty()) {
        *block.failure = text;
        failure_error = cudaError_t(error);
        fprintf(stderr, "%s\n", text.c_str());
    }
}

// Whether bytes of a guard are other ones than the pattern.
template <size_t n> inline __attribute__((always_inline)) bool is_changed(const unsigned char (&guard)[n]) {
    constexpr uint64_t wanted = guard_pattern * 0x0101010101010101u;
    uint64_t words[n / 8], other = 0;
    memcpy(words, guard, n);
    for (uint64_t word : words) other |= word ^ wanted;
    return other != 0;
}

// Says where beside a shared array its kernel wrote.
__attribute__((noinline, cold)) inline void report_array(const Array &array) {
    long byte = 0;
    for (long i = long(shared_guard_bytes); i >= 1; i--)
        if (*(array.begin - i) != guard_pattern) byte = -i;
    for (long i = long(shared_guard_bytes) - 1; i >= 0; i--)
        if (array.begin[array.bytes + i] != guard_pattern) byte = long(array.bytes) + i;
    Block &block = *self->block;
    const std::string what = array.name ? worded("the shared array %s at %s:%d", array.name, array.file, array.line)
                                        : worded("dynamic shared memory that its launch asked for");
    report_failure(block, worded("kernel %s wrote to byte %ld of the %zu bytes of %s", block.kernel->c_str(), byte,
                               size_t(array.bytes), what.c_str()), cudaErrorIllegalAddress);
}

inline void check_array(const Array &array) {
    using Guard = const unsigned char[shared_guard_bytes];
    if (is_changed(*reinterpret_cast<Guard *>(array.begin - shared_guard_bytes)) ||
        is_changed(*reinterpret_cast<Guard *>(array.begin + array.bytes)))
        report_array(array);
}

inline void check_dynamic(const Block &block) {
    check_array({static_cast<unsigned char *>(block.dynamic), block.dynamic_bytes, nullptr, nullptr, 0});
}

[[noreturn]] inline void assertion_failed(const char *condition, const char *file, int line, const char *function) {
    if (!self) __assert_fail(condition, file, unsigned(line), function);
    Block &block = *self->block;
    const uint3 b = block.index, t = self->index;
    const std::string thread = block.running ? worded(", thread: [%u,%u,%u]", t.x, t.y, t.z) : "";
    report_failure(block, worded("%s:%d: %s: block: [%u,%u,%u]%s Assertion `%s` failed.", file, line, function, b.x, b.y,
                                 b.z, thread.c_str(), condition), cudaErrorAssert);
    end_block(block);
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    Configuration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr)
        : grid(grid), block(block), shared(shared) {}

    cudaError_t check() const {
        uint64_t threads = uint64_t(block.x) * block.y * block.z;
        if (!threads || threads > max_threads || block.z > 64) return cudaErrorInvalidConfiguration;
        if (!grid.x || !grid.y || !grid.z) return cudaErrorInvalidConfiguration;
        if (grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) return cudaErrorInvalidConfiguration;
        return shared > allowed_shared ? cudaErrorInvalidValue : cudaSuccess;
    }
};

// Gets a worker ready for the blocks of a launch.
inline void prepare(Worker &worker, const Configuration &how, const std::string &name, std::string &problem) {
    Block &block = worker.block;
    block.kernel = &name;
    block.failure = &problem;
    block.size = how.block;
    block.grid = how.grid;
    block.threads = how.block.x * how.block.y * how.block.z;
    block.dynamic_bytes = how.shared;
    block.dynamic = worker.dynamic.reserve(how.shared);
    block.outside.block = &block;
}

// An argument that the kernel takes by reference: the host's own, not a copy.
template <class T> struct ByReference { T &object; };
template <class T> ByReference(T &) -> ByReference<T>;
template <class T> T &given(T &argument) { return argument; }
template <class T> T &given(ByReference<T> &argument) { return argument.object; }

// Runs a block, and maybe the next ones of its row with it, those before `end`.
template <class Kernel, class... Arguments>
void run_block(Block &block, const Configuration &how, uint64_t b, uint64_t end, Kernel &kernel, Arguments &...arguments) {
    block.index = uint3{unsigned(b % how.grid.x), unsigned(b / how.grid.x % how.grid.y),
                        unsigned(b / how.grid.x / how.grid.y)};
    const uint64_t left = end - b, row = how.grid.x - block.index.x;
    block.may_merge = unsigned(left < row ? left : row), block.merged = 1;
    Thread *before = self;
    self = &block.outside;
#if defined(__cpp_exceptions)
    try {
        kernel(given(arguments)...);
    } catch (const KernelEnded &) {
    } // what happened is in the block's failure
#else
    kernel(given(arguments)...);
#endif
    if (!block.arrays.empty()) {
        for (const Array &array : block.arrays) check_array(array);
        block.arrays.clear();
    }
    if (block.dynamic_bytes) check_dynamic(block); // now: the next block may write what was there before
    self = before;
}

inline void finish(Block &block) {
    Thread *before = self;
    self = &block.outside;
    check_dynamic(block);
    self = before;
    for (auto &sums : block.sums)
        if (sums) sums->flush();
}

inline cudaError_t end_launch(const std::string &name, const std::string &problem) {
    last_kernel = name;
    if (problem.empty()) {
        report_stray(memory().check());
        return failure.empty() ? last_error : failure_error;
    }
    failure = problem;
    return fail(failure_error);
}

// Blocks of a row that may be run as one larger block.
constexpr unsigned most_merged = 64;

// Calls the kernel once for each block of the grid, on all workers, and waits for the end.
template <class Kernel, class... Arguments>
void launch(const char *name, const Configuration &how, Kernel kernel, Arguments... arguments) {
    if (!failure.empty()) return;
    if (fail(how.check()) != cudaSuccess) return;
    Counted counted(&counts.launches, &counts.launch_seconds);
    uint64_t blocks = uint64_t(how.grid.x) * how.grid.y * how.grid.z;
    Pool &workers = pool();
    uint64_t share = blocks / (workers.count() * 16ull);
    // What a worker takes at once ends where merged blocks do.
    const uint64_t piece = share < most_merged ? 16 : most_merged;
    share = share < 1 ? 1 : share < 16 ? share : (share + piece - 1) / piece * piece;
    std::atomic<uint64_t> next{0};
    std::string kernel_name = name, problem;
    auto job = [&](Worker &worker) {
        Block &block = worker.block;
        prepare(worker, how, kernel_name, problem);
        for (uint64_t first; (first = next.fetch_add(share)) < blocks;) {
            uint64_t end = first + share < blocks ? first + share : blocks;
            for (uint64_t b = first; b < end && problem.empty(); b += block.merged)
                run_block(block, how, b, end, kernel, arguments...);
        }
        finish(block);
    };
    workers.run(job, blocks);
    end_launch(kernel_name, problem);
}

// The clock of kernels, at the rate that the device says it has.
inline clock_t device_clock() {
    return clock_t(now());
}

template <class T> T *dynamic_shared() { return static_cast<T *>(self->block->dynamic); }

// `extern __shared__ T name[];` outside of functions.
template <class T> struct DynamicShared {
    operator T *() const { return dynamic_shared<T>(); }
};

} // namespace sapwood_cuda

inline void __trap(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    using namespace ::sapwood_cuda;
    if (!self) abort();
    report_failure(*self->block, worded("trap in kernel %s: %s:%d", self->block->kernel->c_str(), file, line));
    end_block(*self->block);
}
