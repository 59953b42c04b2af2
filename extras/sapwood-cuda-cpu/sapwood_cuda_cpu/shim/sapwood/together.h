// Cooperative launches: all blocks run at the same time, each on a thread of its own, and can meet.
#pragma once

#include <tuple>
#include <utility>

#include "launch.h"

namespace sapwood_cuda {

constexpr uint64_t most_together = 256; // blocks of a cooperative launch

// Where the blocks of a launch meet.
struct Meeting {
    Mutex mutex;
    Condition met;
    uint64_t blocks = 0, arrived = 0, ended = 0, turn = 0;
    std::string place; // where one waits
    bool broken = false;

    // Those that wait would wait for ever; the lock is held.
    bool is_stuck() const { return arrived && arrived + ended == blocks; }
};

inline void break_up(Meeting &meeting, Block &block) {
    report_failure(block, worded("deadlock in kernel %s: %s: a block waits for blocks that will not come "
                               "(%llu of %llu wait)", block.kernel->c_str(), meeting.place.c_str(),
                               (unsigned long long)meeting.arrived, (unsigned long long)meeting.blocks));
    meeting.broken = true;
    meeting.met.notify_all();
}

// Brings all blocks of the launch together; for one of the threads of a block.
inline void meet_blocks(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    Block &block = *self->block;
    Meeting *meeting = block.meeting;
    if (!meeting) {
        report_failure(block, worded("kernel %s: %s:%d: a barrier of the grid in a launch that is not cooperative",
                                   block.kernel->c_str(), file, line));
        end_block(block);
    }
    bool broken;
    { // leaving the block leaves no destructor time
        Lock lock(meeting->mutex);
        const uint64_t turn = meeting->turn;
        meeting->place = worded("%s:%d", file, line);
        if (++meeting->arrived == meeting->blocks) {
            meeting->arrived = 0;
            meeting->turn++;
            meeting->met.notify_all();
        } else if (meeting->is_stuck()) {
            break_up(*meeting, block);
        }
        meeting->met.wait(meeting->mutex, [&] { return meeting->turn != turn || meeting->broken; });
        broken = meeting->broken;
    }
    if (broken) end_block(block);
}

// Runs a kernel whose blocks may meet.
template <class Kernel, class... Arguments>
cudaError_t launch_together(const char *name, const Configuration &how, Kernel kernel, Arguments... arguments) {
    if (!failure.empty()) return failure_error;
    if (fail(how.check()) != cudaSuccess) return last_error;
    const uint64_t blocks = uint64_t(how.grid.x) * how.grid.y * how.grid.z;
    if (blocks > most_together) return fail(cudaErrorCooperativeLaunchTooLarge);
    Counted counted(&counts.launches, &counts.launch_seconds);
    std::string kernel_name = name, problem;
    Meeting meeting;
    meeting.blocks = blocks;
    auto job = [&](Worker &worker, uint64_t number) {
        Block &block = worker.block;
        prepare(worker, how, kernel_name, problem);
        block.meeting = &meeting;
        run_block(block, how, number, number + 1, kernel, arguments...);
        finish(block);
        block.meeting = nullptr;
        Lock lock(meeting.mutex);
        meeting.ended++;
        if (!meeting.broken && meeting.is_stuck()) break_up(meeting, block);
    };
    pool().run_together(job, blocks);
    return end_launch(kernel_name, problem);
}

template <class... P, size_t... I>
cudaError_t launch_function(const char *name, bool together, void (*kernel)(P...), const Configuration &how, void **given,
                            std::index_sequence<I...>) {
    auto call = [kernel](auto &...values) { kernel(values...); };
    if (together) return launch_together(name, how, call, *static_cast<std::remove_cv_t<P> *>(given[I])...);
    launch(name, how, call, *static_cast<std::remove_cv_t<P> *>(given[I])...);
    return failure.empty() ? last_error : failure_error;
}

} // namespace sapwood_cuda

// Patched sources call these with the name of the kernel.
template <class... P>
cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **given, size_t shared = 0,
                             cudaStream_t = nullptr, const char *name = "launched by its address") {
    return sapwood_cuda::launch_function(name, false, kernel, {grid, block, shared}, given, std::index_sequence_for<P...>());
}
template <class... P>
cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void **given, size_t shared = 0,
                                        cudaStream_t = nullptr, const char *name = "launched by its address") {
    return sapwood_cuda::launch_function(name, true, kernel, {grid, block, shared}, given, std::index_sequence_for<P...>());
}

// A barrier of all threads of all blocks, where each thread has a stack of its own.
inline void __sapwood_grid_sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    using namespace ::sapwood_cuda;
    barrier(1, file, line);
    Block &block = *self->block;
    if (block.met == block.generation) return; // another thread did it
    block.met = block.generation;
    meet_blocks(file, line);
}
