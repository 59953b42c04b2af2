// Where code runs: functions for host and device ask it. C++ sources beside CUDA get it too.
#pragma once

namespace sapwood_cuda {

struct Thread;

inline thread_local Thread *self = nullptr; // none on the host

inline bool on_device() { return self != nullptr; }

} // namespace sapwood_cuda
