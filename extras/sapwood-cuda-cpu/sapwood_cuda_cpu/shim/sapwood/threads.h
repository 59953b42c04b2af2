// Threads, locks and the clock, straight from the system: with the standard library's, g++ took a fifth
// longer for a library of one kernel.
#pragma once

#include <cstdint>
#include <ctime>

#include <pthread.h>
#include <unistd.h>

namespace sapwood_cuda {

class Mutex {
  public:
    Mutex() = default;
    Mutex(const Mutex &) = delete;
    Mutex &operator=(const Mutex &) = delete;
    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

  private:
    friend class Condition;
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

class Lock {
  public:
    explicit Lock(Mutex &mutex) : mutex_(mutex) { mutex.lock(); }
    ~Lock() { mutex_.unlock(); }
    Lock(const Lock &) = delete;
    Lock &operator=(const Lock &) = delete;

  private:
    Mutex &mutex_;
};

class Condition {
  public:
    Condition() = default;
    Condition(const Condition &) = delete;
    Condition &operator=(const Condition &) = delete;
    // The mutex is held.
    template <class Holds> void wait(Mutex &mutex, Holds holds) {
        while (!holds()) pthread_cond_wait(&condition_, &mutex.mutex_);
    }
    void notify_one() { pthread_cond_signal(&condition_); }
    void notify_all() { pthread_cond_broadcast(&condition_); }

  private:
    pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

// A thread that runs a job with a number; both have to outlive it.
template <class Job> class SystemThread {
  public:
    // Whether there is one.
    bool start(Job &job, uint64_t number) {
        job_ = &job, number_ = number;
        return runs_ = !pthread_create(&thread_, nullptr, run, this);
    }
    void join() {
        if (runs_) pthread_join(thread_, nullptr);
        runs_ = false;
    }

  private:
    static void *run(void *given) {
        auto *self = static_cast<SystemThread *>(given);
        (*self->job_)(self->number_);
        return nullptr;
    }
    Job *job_ = nullptr;
    uint64_t number_ = 0;
    pthread_t thread_{};
    bool runs_ = false;
};

inline unsigned processors() {
    const long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : unsigned(count);
}

// Nanoseconds of a clock that is never set.
inline int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return int64_t(time.tv_sec) * 1000000000 + time.tv_nsec;
}

inline double seconds_since(int64_t begin) { return 1e-9 * double(now() - begin); }

} // namespace sapwood_cuda
