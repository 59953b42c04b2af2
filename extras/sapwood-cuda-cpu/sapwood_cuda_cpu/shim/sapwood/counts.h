// What a program copied and launched; the runner reads it for the statistics of runs. The same
// structure is in counted.cpp, which counts for programs that nvcc compiles, and in counts.py.
#pragma once

#include <cstdint>

#include "threads.h"

namespace sapwood_cuda {
struct Counts {
    uint64_t copies_in = 0, bytes_in = 0, copies_out = 0, bytes_out = 0, launches = 0;
    double seconds_in = 0, seconds_out = 0, launch_seconds = 0;
};
inline Counts counts;
inline Mutex counting;

// Adds one to a count, bytes to another, and the time until its own end to a third.
class Counted {
  public:
    Counted(uint64_t *times, double *seconds, uint64_t *bytes = nullptr, uint64_t size = 0)
        : times_(times), bytes_(bytes), size_(size), seconds_(seconds), begin_(now()) {}
    ~Counted() {
        if (!times_) return;
        Lock lock(counting);
        ++*times_;
        if (bytes_) *bytes_ += size_;
        *seconds_ += seconds_since(begin_);
    }
    Counted(const Counted &) = delete;
    Counted &operator=(const Counted &) = delete;

  private:
    uint64_t *times_, *bytes_, size_;
    double *seconds_;
    int64_t begin_;
};
}

extern "C" __attribute__((used, visibility("default"))) inline sapwood_cuda::Counts *sapwood_cuda_counts() {
    return &sapwood_cuda::counts;
}
