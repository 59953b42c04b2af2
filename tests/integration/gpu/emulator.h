// CUDA for generated kernels by the simplest means: a context of its own for each thread, switched where
// threads wait. Nothing of it is shared with what the kernels are compared with.
#pragma once
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
using std::max;
using std::min;
struct uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

struct Emulated {
    ucontext_t context;
    std::vector<char> stack;
    uint3 index;
    bool done;
    int waits; // 0: runs, 1: for the block, 2: for its warp
    unsigned given;
};
inline std::vector<Emulated> threads_;
inline ucontext_t outside_;
inline unsigned current_;
inline std::function<void()> body_;
inline uint3 blockIdx;
inline dim3 blockDim, gridDim;
#define threadIdx (threads_[current_].index)

inline void enter_() {
    body_();
    threads_[current_].done = true;
    swapcontext(&threads_[current_].context, &outside_);
}
inline void wait_(int what) {
    threads_[current_].waits = what;
    swapcontext(&threads_[current_].context, &outside_);
}
inline void __syncthreads() { wait_(1); }

// Lets those of some threads go on that have come to the same place, once all that live have.
inline void release_(size_t first, size_t end, int what) {
    for (size_t i = first; i < end; i++)
        if (!threads_[i].done && threads_[i].waits != what) return;
    for (size_t i = first; i < end; i++) threads_[i].waits = 0;
}
inline void emulate(dim3 grid, dim3 block, std::function<void()> kernel) {
    gridDim = grid, blockDim = block, body_ = kernel;
    const size_t count = size_t(block.x) * block.y * block.z;
    for (unsigned b = 0; b < grid.x * grid.y; b++) {
        blockIdx = {b % grid.x, b / grid.x, 0};
        threads_.assign(count, {});
        for (size_t i = 0; i < count; i++) {
            Emulated &t = threads_[i];
            t.stack.resize(65536);
            t.index = {unsigned(i % block.x), unsigned(i / block.x % block.y), unsigned(i / block.x / block.y)};
            getcontext(&t.context);
            t.context.uc_stack.ss_sp = t.stack.data(), t.context.uc_stack.ss_size = t.stack.size();
            makecontext(&t.context, enter_, 0);
        }
        for (bool any = true; any;) {
            any = false;
            for (size_t i = 0; i < count; i++) {
                if (threads_[i].done) continue;
                any = true;
                current_ = unsigned(i);
                if (!threads_[i].waits) swapcontext(&outside_, &threads_[i].context);
            }
            release_(0, count, 1);
            for (size_t i = 0; i < count; i += 32) release_(i, std::min(count, i + 32), 2);
        }
    }
}

// Each lane gives a value, waits, and reads those of the others; and waits until all have read.
inline unsigned exchanged_(unsigned value, std::function<unsigned(unsigned, size_t)> read) {
    threads_[current_].given = value;
    wait_(2);
    const unsigned found = read(current_ % 32, current_ / 32 * 32);
    wait_(2);
    return found;
}
inline unsigned lane_(unsigned own, size_t first, unsigned source) {
    return threads_[first + (source < 32 ? source : own)].given;
}
inline unsigned __shfl_sync(unsigned, unsigned v, int from) {
    return exchanged_(v, [=](unsigned own, size_t first) { return lane_(own, first, unsigned(from) % 32); });
}
inline unsigned __shfl_xor_sync(unsigned, unsigned v, int mask) {
    return exchanged_(v, [=](unsigned own, size_t first) { return lane_(own, first, own ^ unsigned(mask)); });
}
inline unsigned __shfl_down_sync(unsigned, unsigned v, unsigned by) {
    return exchanged_(v, [=](unsigned own, size_t first) { return lane_(own, first, own + by); });
}
inline unsigned __shfl_up_sync(unsigned, unsigned v, unsigned by) {
    return exchanged_(v, [=](unsigned own, size_t first) { return lane_(own, first, own - by); });
}
inline unsigned __ballot_sync(unsigned, bool v) {
    return exchanged_(v, [](unsigned, size_t first) {
        unsigned all = 0;
        for (unsigned i = 0; i < 32; i++) all |= threads_[first + i].given << i;
        return all;
    });
}
inline bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) != 0; }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline unsigned atomicAdd(unsigned *at, unsigned v) { return std::exchange(*at, *at + v); }
inline unsigned atomicXor(unsigned *at, unsigned v) { return std::exchange(*at, *at ^ v); }
inline unsigned atomicMax(unsigned *at, unsigned v) { return std::exchange(*at, std::max(*at, v)); }
