// What kernels/forms.cuh uses of CUDA beyond generated kernels, by the same simplest means.
#pragma once
#include "../emulator.h"
#include <cstdlib>
#include <type_traits>
inline void __syncwarp(unsigned = ~0u) { __ballot_sync(~0u, true); }
namespace cooperative_groups {
struct thread_block {
  void sync() const { __syncthreads(); }
  unsigned thread_rank() const { return threadIdx.x; }
  unsigned size() const { return blockDim.x; }
  unsigned num_threads() const { return blockDim.x; }
  dim3 group_index() const { return dim3(blockIdx.x); }
  dim3 thread_index() const { return dim3(threadIdx.x); }
};
inline thread_block this_thread_block() { return {}; }
template <class G> void sync(const G &g) { g.sync(); }
template <unsigned N, class P = thread_block> struct thread_block_tile {
  unsigned thread_rank() const { return threadIdx.x % N; }
  static constexpr unsigned up() { return 0; }
  unsigned meta_group_rank() const { return (std::is_same_v<P, thread_block> ? threadIdx.x : threadIdx.x % 32) / N; }
  unsigned meta_group_size() const { return blockDim.x / N; }
  unsigned size() const { return N; }
  unsigned num_threads() const { return N; }
  void sync() const { __syncwarp(); }
  unsigned shfl(unsigned v, int l) const { return __shfl_sync(~0u, v, l, N); }
  unsigned shfl_down(unsigned v, unsigned l) const { return __shfl_down_sync(~0u, v, l, N); }
  unsigned shfl_up(unsigned v, unsigned l) const { return __shfl_up_sync(~0u, v, l, N); }
  unsigned shfl_xor(unsigned v, unsigned l) const { return __shfl_xor_sync(~0u, v, l, N); }
  unsigned ballot(bool p) const { unsigned b = __ballot_sync(~0u, p); return N == 32 ? b : (b >> (threadIdx.x % 32 / N * N)) & ((1ull << N) - 1); }
  bool any(bool p) const { return ballot(p) != 0; }
  bool all(bool p) const { return ballot(!p) == 0; }
};
template <unsigned N, class G> thread_block_tile<N, G> tiled_partition(const G &) { return {}; }
}
template <class T, class M> T atomicCAS_(T *at, T a, T b) { T o = *at; if (o == a) *at = b; return o; }
inline unsigned atomicCAS(unsigned *at, unsigned a, unsigned b) { return atomicCAS_<unsigned, int>(at, a, b); }
inline unsigned atomicExch(unsigned *at, unsigned b) { return std::exchange(*at, b); }
inline int atomicAdd(int *at, int v) { return std::exchange(*at, *at + v); }
template <class T> T shfl_any(T v, int from, int w, int how) {
  unsigned words[(sizeof(T) + 3) / 4] = {}; memcpy(words, &v, sizeof v);
  for (unsigned &x : words) x = how == 0 ? __shfl_sync(~0u, x, from, w) : how == 1 ? __shfl_up_sync(~0u, x, from, w) : how == 2 ? __shfl_down_sync(~0u, x, from, w) : __shfl_xor_sync(~0u, x, from, w);
  memcpy(&v, words, sizeof v); return v;
}
#define ANY(T) inline T __shfl_sync(unsigned, T v, int f, int w = 32) { return shfl_any(v, f, w, 0); } \
 inline T __shfl_up_sync(unsigned, T v, int f, int w = 32) { return shfl_any(v, f, w, 1); } \
 inline T __shfl_down_sync(unsigned, T v, int f, int w = 32) { return shfl_any(v, f, w, 2); } \
 inline T __shfl_xor_sync(unsigned, T v, int f, int w = 32) { return shfl_any(v, f, w, 3); }
inline unsigned __shfl_up_sync(unsigned m, unsigned v, int f, int w = 32) { return __shfl_up_sync(m, v, unsigned(f), w); }
inline unsigned __shfl_down_sync(unsigned m, unsigned v, int f, int w = 32) { return __shfl_down_sync(m, v, unsigned(f), w); }
inline unsigned __shfl_sync(unsigned m, unsigned v, unsigned f, int w = 32) { return __shfl_sync(m, v, int(f), w); }
inline unsigned __shfl_xor_sync(unsigned m, unsigned v, unsigned f, int w = 32) { return __shfl_xor_sync(m, v, int(f), w); }
ANY(int) ANY(float) ANY(double) ANY(long long) ANY(unsigned long long)
struct float4 { float x, y, z, w; }; struct uint4 { unsigned x, y, z, w; }; struct int2 { int x, y; };
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
#define __launch_bounds__(x)
#define __restrict__
inline void __threadfence() {}
inline void __threadfence_block() {}
inline int __ffs(int v) { return __builtin_ffs(v); }
inline int __clz(int v) { return v ? __builtin_clz(v) : 32; }
inline unsigned __brev(unsigned v) { unsigned r = 0; for (int i = 0; i < 32; i++) r |= (v >> i & 1) << (31 - i); return r; }
inline unsigned __activemask() { return ~0u; }
