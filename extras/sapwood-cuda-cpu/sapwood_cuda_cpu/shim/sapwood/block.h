// A block of threads on one worker: fibers, barriers, warps, and the end of a deadlock.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fiber.h"
#include "place.h"
#include "text.h"
#include "types.h"

namespace sapwood_cuda {

constexpr int warp_size = 32;
constexpr unsigned max_threads = 1024;

struct Block;

struct Thread {
    uint3 index{0, 0, 0};
    unsigned rank = 0;
    Block *block = nullptr;
};

// What the lanes of a warp exchange. Lanes that wait, for whatever it is, are in `waiting`; of those
// the ones that wait for the block are in `at_barrier`, and those that wait to run in step in `stepping`.
struct Warp {
    unsigned alive = 0, arrived = 0, released = 0;
    unsigned waiting = 0, at_barrier = 0, stepping = 0;
    int place[warp_size];
    uint64_t value[warp_size], result[warp_size];
    int source[warp_size];
    unsigned mask[warp_size];
};

struct Fiber {
    Thread thread;
    Context context;
    Fiber *next = nullptr, *previous = nullptr;
    const char *wait_file = nullptr;
    int wait_line = 0;
    bool started = false;
};

// What a worker has added up and not yet written.
struct SumsBase {
    virtual ~SumsBase() = default;
    virtual void flush() = 0;
};

struct Meeting;

// A shared array between guards; of dynamic shared memory when it has no name.
struct Array {
    unsigned char *begin;
    size_t bytes;
    const char *name, *file;
    int line;
};

struct Block {
    uint3 index{0, 0, 0};
    dim3 size, grid;
    unsigned threads = 0, alive = 0, arrived = 0, generation = 0, idle = 0;
    int count = 0, last_count = 0, all = 1, last_all = 1;
    unsigned may_merge = 1, merged = 1; // blocks of the row that the worker has now, and that were done as one
    Meeting *meeting = nullptr; // where the blocks of a cooperative launch meet
    unsigned met = 0;           // the barrier of this block after which it has met the others
    size_t dynamic_bytes = 0;
    void *dynamic = nullptr;
    const std::string *kernel = nullptr;
    std::string *failure = nullptr; // shared by the workers of a launch; the first one stays
    Fiber *running = nullptr;       // none outside of fibers
    void (*invoke)(void *) = nullptr;
    void *body = nullptr;
    Context home;
    Thread outside; // what index variables say in BLOCK code
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    Stacks stacks;
    std::vector<Array> arrays; // what to look at when the block has ended
    std::unique_ptr<SumsBase> sums[5];
};

void report_failure(Block &block, const std::string &text, int error = 719);

struct KernelEnded {};

// Leaves the block for good, from any of its threads.
[[noreturn]] inline void end_block(Block &block) {
    if (block.running) {
        block.running = nullptr;
        Context abandoned;
        switch_context(&abandoned, &block.home);
    }
#if defined(__cpp_exceptions)
    throw KernelEnded();
#else
    abort();
#endif
}

// Continues with the next fiber of the ring; a whole round without progress is a deadlock.
inline void yield(Block &block) {
    Fiber *from = block.running, *to = from->next;
    if (++block.idle > 2 * block.alive + 2) {
        report_failure(block, worded("deadlock in kernel %s: %s:%d: a thread waits for threads that will not come "
                                   "(%u alive)", block.kernel->c_str(), from->wait_file ? from->wait_file : "?",
                                   int(from->wait_line), unsigned(block.alive)));
        end_block(block);
    }
    if (to == from) return;
    block.running = to;
    self = &to->thread;
    switch_context(&from->context, &to->context);
}

// Lets all threads go on that wait at a barrier of the block.
inline void open_barrier(Block &block) {
    block.arrived = 0;
    block.last_count = block.count, block.last_all = block.all;
    block.count = 0, block.all = 1;
    block.generation++;
    for (Warp &warp : block.warps) warp.waiting &= ~warp.at_barrier, warp.at_barrier = 0;
}

inline void fiber_main() {
    Block *block = self->block;
    Fiber *fiber = block->running;
    fiber->started = true;
    block->idle = 0;
    block->invoke(block->body);
    block->alive--;
    block->idle = 0;
    block->warps[fiber->thread.rank / warp_size].alive &= ~(1u << (fiber->thread.rank % warp_size));
    fiber->next->previous = fiber->previous;
    fiber->previous->next = fiber->next;
    Context abandoned;
    if (block->alive == 0) {
        block->running = nullptr;
        switch_context(&abandoned, &block->home);
    }
    if (block->arrived == block->alive) open_barrier(*block); // those that wait wait no longer for it
    block->running = fiber->next;
    self = &fiber->next->thread;
    switch_context(&abandoned, &fiber->next->context);
    __builtin_unreachable();
}

// Runs a body once for each thread of the block that the worker is in, each on its own stack.
template <class Body> void run_fibers(const Body &body) {
    Block &block = *self->block;
    unsigned n = block.threads;
    block.stacks.reserve(n);
    if (block.fibers.size() < n) block.fibers.resize(n);
    block.warps.resize((n + warp_size - 1) / warp_size);
    for (unsigned i = 0; i < n; i++) {
        Fiber &fiber = block.fibers[i];
        fiber.thread.rank = i;
        fiber.thread.block = &block;
        fiber.thread.index = uint3{i % block.size.x, i / block.size.x % block.size.y,
                                   i / (block.size.x * block.size.y)};
        fiber.next = &block.fibers[i + 1 < n ? i + 1 : 0];
        fiber.previous = &block.fibers[i ? i - 1 : n - 1];
        fiber.wait_file = nullptr;
        prepare_context(&fiber.context, block.stacks.stack(i), block.stacks.size(i), fiber_main);
    }
    for (unsigned w = 0; w < block.warps.size(); w++) {
        unsigned lanes = n - w * warp_size;
        block.warps[w].alive = lanes >= warp_size ? ~0u : (1u << lanes) - 1;
        block.warps[w].arrived = block.warps[w].released = 0;
        block.warps[w].waiting = block.warps[w].at_barrier = block.warps[w].stepping = 0;
    }
    block.alive = n;
    block.arrived = block.idle = 0;
    block.count = 0, block.all = 1;
    block.body = const_cast<void *>(static_cast<const void *>(&body));
    block.invoke = [](void *shared) {
        Body own = *static_cast<const Body *>(shared); // parameters belong to the thread
        own();
    };
    Thread *outside = self;
    block.running = &block.fibers[0];
    self = &block.fibers[0].thread;
    switch_context(&block.home, &block.fibers[0].context);
    self = outside;
}

inline void wait_at(Block &block, const char *file, int line) {
    block.running->wait_file = file;
    block.running->wait_line = line;
}

inline void barrier(int predicate, const char *file, int line) {
    Block &block = *self->block;
    block.count += predicate != 0;
    block.all &= predicate != 0;
    block.idle = 0;
    if (++block.arrived == block.alive) return open_barrier(block);
    unsigned generation = block.generation;
    wait_at(block, file, line);
    Warp &warp = block.warps[self->rank / warp_size];
    warp.waiting |= 1u << (self->rank % warp_size), warp.at_barrier |= 1u << (self->rank % warp_size);
    while (block.generation == generation) yield(block);
}

// For loops that wait for another thread: gives the others a turn.
inline void spin() {
    if (self && self->block->running) {
        Block &block = *self->block;
        Warp &warp = block.warps[self->rank / warp_size];
        const unsigned bit = 1u << (self->rank % warp_size);
        block.idle = 0;
        warp.waiting |= bit;
        yield(block);
        warp.waiting &= ~bit;
    } else {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        asm volatile("yield");
#endif
    }
}

} // namespace sapwood_cuda

#define threadIdx (::sapwood_cuda::self->index)
#define blockIdx (::sapwood_cuda::self->block->index)
#define blockDim (::sapwood_cuda::self->block->size)
#define gridDim (::sapwood_cuda::self->block->grid)
static const int warpSize = 32;

inline void __syncthreads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    ::sapwood_cuda::barrier(1, file, line);
}
inline int __syncthreads_count(int predicate, const char *file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
    ::sapwood_cuda::barrier(predicate, file, line);
    return ::sapwood_cuda::self->block->last_count;
}
inline int __syncthreads_or(int predicate, const char *file = __builtin_FILE(),
                            int line = __builtin_LINE()) {
    return __syncthreads_count(predicate, file, line) != 0;
}
inline int __syncthreads_and(int predicate, const char *file = __builtin_FILE(),
                             int line = __builtin_LINE()) {
    ::sapwood_cuda::barrier(predicate, file, line);
    return ::sapwood_cuda::self->block->last_all;
}
