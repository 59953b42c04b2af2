// CUDA for generated kernels by the simplest means: a context of its own for each thread, switched where
// threads wait. Nothing of it is shared with what the kernels are compared with.
#pragma once
#include <algorithm>
#include <cassert>
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
#define __constant__ static
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

alignas(16) inline char dynamic_[512]; // memory whose size comes with a launch
struct Emulated {
    ucontext_t context;
    std::vector<char> stack;
    uint3 index;
    bool done;
    int waits; // 0: runs, 1: for the block, 2: for its warp, 3: for the block and an answer
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
inline unsigned asked_, agreed_; // threads that vote and have not returned, and those that agree
inline unsigned voted_(bool v) {
    asked_++, agreed_ += v;
    wait_(3);
    const unsigned all = asked_, those = agreed_;
    wait_(1);
    asked_ = agreed_ = 0;
    wait_(1);
    return all << 16 | those;
}
inline int __syncthreads_count(bool v) { return int(voted_(v) & 0xffff); }
inline int __syncthreads_or(bool v) { return (voted_(v) & 0xffff) != 0; }
inline int __syncthreads_and(bool v) { const unsigned all = voted_(v); return all >> 16 == (all & 0xffff); }

// Lets those of some threads go on that have come to the same place, once all that live have.
inline void release_(size_t first, size_t end, int what) {
    for (size_t i = first; i < end; i++)
        if (!threads_[i].done && threads_[i].waits != what) return;
    for (size_t i = first; i < end; i++) threads_[i].waits = 0;
}
inline void emulate(dim3 grid, dim3 block, std::function<void()> kernel);
inline void emulate(dim3 grid, dim3 block, size_t, std::function<void()> kernel) { emulate(grid, block, kernel); }
inline void emulate(dim3 grid, dim3 block, std::function<void()> kernel) {
    gridDim = grid, blockDim = block, body_ = kernel;
    const size_t count = size_t(block.x) * block.y * block.z;
    for (unsigned b = 0; b < grid.x * grid.y * grid.z; b++) {
        blockIdx = {b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y};
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
            release_(0, count, 3);
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
// The value of a lane of the own section of a warp; the own value where that lane is in another one.
inline unsigned lane_(unsigned v, int width, std::function<int(int, int)> source) {
    return exchanged_(v, [=](unsigned own, size_t first) {
        const int section = int(own) / width * width, from = source(int(own), section);
        return threads_[first + size_t(from >= section && from < section + width ? from : int(own))].given;
    });
}
inline unsigned __shfl_sync(unsigned, unsigned v, int from, int width = 32) {
    return lane_(v, width, [=](int, int section) { return section + from % width; });
}
inline unsigned __shfl_xor_sync(unsigned, unsigned v, int mask, int width = 32) {
    return exchanged_(v, [=](unsigned own, size_t first) {
        const unsigned from = own ^ unsigned(mask); // lanes of sections before the own one count
        return threads_[first + (from < (own / unsigned(width) + 1) * unsigned(width) ? from : own)].given;
    });
}
inline unsigned __shfl_down_sync(unsigned, unsigned v, unsigned by, int width = 32) {
    return lane_(v, width, [=](int own, int) { return own + int(by); });
}
inline unsigned __shfl_up_sync(unsigned, unsigned v, unsigned by, int width = 32) {
    return lane_(v, width, [=](int own, int) { return own - int(by); });
}
inline unsigned __ballot_sync(unsigned, bool v) {
    return exchanged_(v, [](unsigned, size_t first) {
        unsigned all = 0;
        for (unsigned i = 0; i < 32; i++) all |= threads_[first + i].given << i;
        return all;
    });
}
inline unsigned __match_any_sync(unsigned, unsigned v) {
    return exchanged_(v, [=](unsigned, size_t first) {
        unsigned all = 0;
        for (unsigned i = 0; i < 32; i++) all |= unsigned(threads_[first + i].given == v) << i;
        return all;
    });
}
inline unsigned __reduce_add_sync(unsigned, unsigned v) {
    return exchanged_(v, [](unsigned, size_t first) {
        unsigned all = 0;
        for (unsigned i = 0; i < 32; i++) all += threads_[first + i].given;
        return all;
    });
}
inline bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) != 0; }
inline bool __all_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) == ~0u; }
inline unsigned __popc(unsigned v) { return unsigned(__builtin_popcount(v)); }
inline unsigned atomicAdd(unsigned *at, unsigned v) { return std::exchange(*at, *at + v); }
inline unsigned atomicSub(unsigned *at, unsigned v) { return std::exchange(*at, *at - v); }
inline unsigned atomicXor(unsigned *at, unsigned v) { return std::exchange(*at, *at ^ v); }
inline unsigned atomicOr(unsigned *at, unsigned v) { return std::exchange(*at, *at | v); }
inline unsigned atomicAnd(unsigned *at, unsigned v) { return std::exchange(*at, *at & v); }
inline unsigned atomicMax(unsigned *at, unsigned v) { return std::exchange(*at, std::max(*at, v)); }
inline unsigned atomicMin(unsigned *at, unsigned v) { return std::exchange(*at, std::min(*at, v)); }
