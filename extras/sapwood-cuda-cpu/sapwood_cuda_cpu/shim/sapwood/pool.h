// The workers that share the blocks of a launch.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <sched.h>

#include "block.h"
#include "memory.h"
#include "threads.h"

namespace sapwood_cuda {

constexpr size_t usual_shared = 48 * 1024, most_shared = 227 * 1024;
constexpr size_t shared_guard_bytes = 64; // on either side of a shared array
// How long a worker looks for the next launch, and a launch for its workers, before they sleep: to
// wake a processor that has nothing to do takes as long, and more on a virtual machine.
constexpr int64_t spinning = 100 * 1000; // nanoseconds

inline unsigned wanted_workers() {
    const char *text = getenv("SAPWOOD_CUDA_WORKERS");
    long wanted = text ? strtol(text, nullptr, 10) : 1;
    return wanted < 1 ? 1 : wanted > 256 ? 256 : unsigned(wanted);
}

// Dynamic shared memory, between guards.
struct DynamicMemory {
    ~DynamicMemory() { free(memory); }
    void *reserve(size_t bytes) {
        if (bytes > size || !memory) {
            free(memory);
            size = bytes < usual_shared ? usual_shared : bytes;
            memory = static_cast<unsigned char *>(aligned_alloc(128, ((size + 127) & ~size_t(127)) + 256));
        }
        unsigned char *begin = memory + 128;
        memset(begin - shared_guard_bytes, guard_pattern, shared_guard_bytes);
        memset(begin + bytes, guard_pattern, shared_guard_bytes);
        return begin;
    }
    unsigned char *memory = nullptr;
    size_t size = 0;
};

// What a worker has of its own. Nothing of it is thread_local: a destructor that waits for the end
// of a thread would keep the library from being unloaded.
struct alignas(128) Worker {
    Block block;
    DynamicMemory dynamic;
};

// The processors that are at work for a launch. Linux wakes a thread where the one is that woke it, and
// moves it elsewhere only after some milliseconds, which is longer than most launches take.
class Processors {
  public:
    void only_this() {
        for (auto &word : taken_) word.store(0, std::memory_order_relaxed);
        take();
    }

    // Go to a processor of one's own, if there is one and this one is taken.
    void find_another() {
        if (take()) return;
        cpu_set_t allowed, free;
        if (sched_getaffinity(0, sizeof allowed, &allowed)) return; // more processors than it has room for
        CPU_ZERO(&free);
        for (unsigned i = 0; i < most; i++)
            if (CPU_ISSET(i, &allowed) && !(taken_[i / 64] >> i % 64 & 1)) CPU_SET(i, &free);
        if (!CPU_COUNT(&free) || sched_setaffinity(0, sizeof free, &free)) return;
        take();
        sched_setaffinity(0, sizeof allowed, &allowed);
    }

  private:
    static constexpr unsigned most = CPU_SETSIZE;

    // Whether nobody else was on this processor.
    bool take() {
        const int here = sched_getcpu();
        if (here < 0 || unsigned(here) >= most) return true;
        const uint64_t bit = uint64_t(1) << here % 64;
        return !(taken_[here / 64].fetch_or(bit) & bit);
    }

    std::atomic<uint64_t> taken_[most / 64] = {};
};

// Runs a job on every worker; the caller is the first of them. It does not wait for those that come
// when it is done: they take no part then.
class Pool {
  public:
    Pool() : count_(wanted_workers()), spins_(count_ <= processors()) {
        alone = count_ == 1;
        workers_.reset(new Worker[count_]);
        threads_.reset(new SystemThread<Pool>[count_]); // the first is the caller's
        for (unsigned i = 1; i < count_; i++) threads_[i].start(*this, i); // without it there are fewer
    }

    ~Pool() {
        stopping_ = true;
        wake();
        for (unsigned i = 1; i < count_; i++) threads_[i].join();
    }

    template <class Job> void run(Job &job, uint64_t blocks) {
        Lock one(launch_);
        if (count_ == 1 || blocks == 1) return job(workers_[0]);
        call_ = [](void *given, Worker &worker) { (*static_cast<Job *>(given))(worker); };
        given_ = &job;
        left_ = 0;
        processors_.only_this();
        turn_ = (turn_ & ~low_) + next_turn_; // open, and nobody has come yet
        if (sleeping_) wake();
        apart(job, workers_[0]);
        const uint64_t came = turn_.fetch_or(closed_) & came_;
        if (look([&] { return left_ == came; })) return;
        Lock lock(mutex_);
        waiting_ = true;
        done_.wait(mutex_, [&] { return left_ == came; });
        waiting_ = false;
    }

    // Runs a job on a new thread for each number below a count, all at the same time.
    template <class Job> void run_together(Job &job, uint64_t count) {
        Lock one(launch_);
        alone = count == 1;
        auto on_a_worker = [&job](uint64_t number) { job(*std::make_unique<Worker>(), number); };
        std::vector<SystemThread<decltype(on_a_worker)>> threads(count);
        for (uint64_t i = 1; i < count; i++)
            if (!threads[i].start(on_a_worker, i)) { // the others would wait for it
                fprintf(stderr, "a launch needs a thread for each of its %llu blocks, and there is none for block %llu\n",
                        (unsigned long long)count, (unsigned long long)i);
                abort();
            }
        job(workers_[0], 0);
        for (auto &thread : threads) thread.join();
        alone = count_ == 1;
    }

    unsigned count() const { return count_; }

  private:
    // A turn is the number of the launch, whether it is closed, and how many workers came.
    static constexpr uint64_t came_ = 0xffff, closed_ = 0x10000, low_ = 0x1ffff, next_turn_ = 0x20000;

    // Runs a job away from the caller's variables, which the other workers read: what is written here
    // for each block must not lie beside them in the processors' caches.
    template <class Job> __attribute__((noinline)) static void apart(Job &job, Worker &worker) {
        unsigned char distance[256];
        asm volatile("" : : "r"(distance) : "memory");
        below(job, worker);
        asm volatile("" : : "r"(distance) : "memory");
    }
    template <class Job> __attribute__((noinline)) static void below(Job &job, Worker &worker) { job(worker); }

    friend class SystemThread<Pool>;
    void operator()(uint64_t number) {
        Worker &worker = workers_[number];
        for (uint64_t seen = 0;;) {
            const auto news = [&] { return stopping_ || (turn_ & ~low_) != seen; };
            if (!look(news)) {
                Lock lock(mutex_);
                sleeping_++;
                wake_.wait(mutex_, news);
                sleeping_--;
            }
            if (stopping_) return;
            uint64_t turn = turn_;
            while (!(turn & closed_) && !turn_.compare_exchange_weak(turn, turn + 1)) {}
            seen = turn & ~low_;
            if (turn & closed_) continue;
            if (spins_) processors_.find_another();
            call_(given_, worker);
            left_++;
            if (!waiting_) continue;
            Lock lock(mutex_);
            done_.notify_one();
        }
    }

    void wake() {
        Lock lock(mutex_);
        wake_.notify_all();
    }

    // Whether something comes to hold within a short time.
    template <class Condition> bool look(Condition holds) const {
        const int64_t end = now() + spinning;
        do {
            for (int i = 0; i < 64; i++) {
                if (holds()) return true;
                if (!spins_) return false;
#if defined(__x86_64__)
                __builtin_ia32_pause();
#elif defined(__aarch64__)
                asm volatile("yield");
#endif
            }
        } while (now() < end);
        return holds();
    }

    const unsigned count_;
    const bool spins_; // not where workers would keep each other from a processor
    Processors processors_;
    std::atomic<uint64_t> turn_{closed_}, left_{0};
    std::atomic<unsigned> sleeping_{0};
    std::atomic<bool> stopping_{false}, waiting_{false};
    void (*call_)(void *, Worker &) = nullptr;
    void *given_ = nullptr;
    Mutex mutex_, launch_;
    Condition wake_, done_;
    std::unique_ptr<Worker[]> workers_;
    std::unique_ptr<SystemThread<Pool>[]> threads_;
};

// The pool, made anew when the number of workers that is asked for has changed.
inline Pool &pool() {
    static Mutex mutex;
    static std::unique_ptr<Pool> made;
    Lock lock(mutex);
    if (!made || made->count() != wanted_workers()) {
        made.reset();
        made = std::make_unique<Pool>();
    }
    return *made;
}

} // namespace sapwood_cuda
