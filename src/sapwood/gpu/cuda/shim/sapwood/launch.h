// Launching kernels: the pool of workers, the blocks of a grid, and the state of errors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <thread>
#include <type_traits>

#include "atomics.h"
#include "block.h"
#include "counts.h"
#include "errors.h"
#include "later.h"
#include "memory.h"

typedef struct CUstream_st *cudaStream_t;

namespace sapwood_cuda {

constexpr size_t usual_shared = 48 * 1024, most_shared = 227 * 1024;

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
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    if (block.failure->empty()) {
        *block.failure = text;
        failure_error = cudaError_t(error);
        fprintf(stderr, "%s\n", text.c_str());
    }
}

[[noreturn]] inline void assertion_failed(const char *text, const char *file, int line, const char *function) {
    if (!self) __assert_fail(text, file, unsigned(line), function);
    Block &block = *self->block;
    const uint3 b = block.index, t = self->index;
    std::string place = "block: [" + std::to_string(b.x) + "," + std::to_string(b.y) + "," + std::to_string(b.z) + "]";
    if (block.running)
        place += ", thread: [" + std::to_string(t.x) + "," + std::to_string(t.y) + "," + std::to_string(t.z) + "]";
    report_failure(block, std::string(file) + ":" + std::to_string(line) + ": " + function + ": " + place +
                              " Assertion `" + text + "` failed.", cudaErrorAssert);
    end_block(block);
}

inline unsigned wanted_workers() {
    const char *text = getenv("SAPWOOD_CUDA_WORKERS");
    long wanted = text ? strtol(text, nullptr, 10) : 1;
    return wanted < 1 ? 1 : wanted > 256 ? 256 : unsigned(wanted);
}

struct DynamicMemory {
    ~DynamicMemory() { free(memory); }
    void *reserve(size_t bytes) {
        if (bytes > size || !memory) {
            free(memory);
            size = bytes < usual_shared ? usual_shared : bytes;
            memory = aligned_alloc(128, (size + 127) & ~size_t(127));
        }
        return memory;
    }
    void *memory = nullptr;
    size_t size = 0;
};

// What a worker has of its own. Nothing of it is thread_local: a destructor that waits for the end
// of a thread would keep the library from being unloaded.
struct Worker {
    Block block;
    DynamicMemory dynamic;
};

// Runs a job on every worker; the caller is the first of them.
class Pool {
  public:
    Pool() : count_(wanted_workers()) {
        alone = count_ == 1;
        for (unsigned i = 0; i < count_; i++) workers_.push_back(std::make_unique<Worker>());
        for (unsigned i = 1; i < count_; i++) threads_.emplace_back([this, i] { work(*workers_[i]); });
    }

    ~Pool() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (auto &thread : threads_) thread.join();
    }

    template <class Job> void run(Job &job, uint64_t blocks) {
        std::lock_guard<std::mutex> one(launch_);
        if (count_ == 1 || blocks == 1) return job(*workers_[0]);
        {
            std::lock_guard<std::mutex> lock(mutex_);
            call_ = [](void *given, Worker &worker) { (*static_cast<Job *>(given))(worker); };
            given_ = &job;
            busy_ = count_ - 1;
            turn_++;
        }
        wake_.notify_all();
        job(*workers_[0]);
        std::unique_lock<std::mutex> lock(mutex_);
        done_.wait(lock, [this] { return busy_ == 0; });
    }

    // Runs a job on a new thread for each number below a count, all at the same time.
    template <class Job> void run_together(Job &job, uint64_t count) {
        std::lock_guard<std::mutex> one(launch_);
        alone = count == 1;
        std::vector<std::thread> threads;
        for (uint64_t i = 1; i < count; i++)
            threads.emplace_back([&job, i] { job(*std::make_unique<Worker>(), i); });
        job(*workers_[0], 0);
        for (auto &thread : threads) thread.join();
        alone = count_ == 1;
    }

    unsigned count() const { return count_; }

  private:
    void work(Worker &worker) {
        unsigned seen = 0;
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [&] { return stopping_ || turn_ != seen; });
            if (stopping_) return;
            seen = turn_;
            lock.unlock();
            call_(given_, worker);
            lock.lock();
            if (--busy_ == 0) done_.notify_one();
        }
    }

    unsigned count_, busy_ = 0, turn_ = 0;
    bool stopping_ = false;
    void (*call_)(void *, Worker &) = nullptr;
    void *given_ = nullptr;
    std::mutex mutex_, launch_;
    std::condition_variable wake_, done_;
    std::vector<std::unique_ptr<Worker>> workers_;
    std::vector<std::thread> threads_;
};

// The pool, made anew when the number of workers that is asked for has changed.
inline Pool &pool() {
    static std::mutex mutex;
    static std::unique_ptr<Pool> made;
    std::lock_guard<std::mutex> lock(mutex);
    if (!made || made->count() != wanted_workers()) {
        made.reset();
        made = std::make_unique<Pool>();
    }
    return *made;
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
        kernel(arguments...);
    } catch (const KernelEnded &) {
    } // what happened is in the block's failure
#else
    kernel(arguments...);
#endif
    self = before;
}

inline void finish(Block &block) {
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

// Calls the kernel once for each block of the grid, on all workers, and waits for the end.
template <class Kernel, class... Arguments>
void launch(const char *name, const Configuration &how, Kernel kernel, Arguments... arguments) {
    if (!failure.empty()) return;
    if (fail(how.check()) != cudaSuccess) return;
    Counted counted(&counts.launches, &counts.launch_seconds);
    uint64_t blocks = uint64_t(how.grid.x) * how.grid.y * how.grid.z;
    Pool &workers = pool();
    uint64_t share = blocks / (workers.count() * 16ull);
    share = share < 1 ? 1 : share < 16 ? share : (share + 15) & ~uint64_t(15); // blocks may be merged
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
    return clock_t(std::chrono::steady_clock::now().time_since_epoch().count());
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
    report_failure(*self->block, "trap in kernel " + *self->block->kernel + ": " + file + ":" + std::to_string(line));
    end_block(*self->block);
}
