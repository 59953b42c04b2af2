// Barriers that count, votes in conditions, tiles as wide as a template says, shuffles of old programs.
#include <stdio.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// The least of all values goes from thread to thread until nothing changes.
__global__ void settle(int *x, int *steps, int *counts, int limit) {
  __shared__ int s[128];
  s[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  bool changed;
  int rounds = 0;
  do {
    changed = false;
    int own = s[threadIdx.x], other = threadIdx.x ? s[threadIdx.x - 1] : own;
    __syncthreads();
    if (other < own) {
      s[threadIdx.x] = other;
      changed = true;
    }
    rounds++;
  } while (__syncthreads_or(changed));
  for (;;) {
    int large = __syncthreads_count(s[threadIdx.x] > limit);
    if (threadIdx.x == 0) atomicMax(&counts[blockIdx.x], large);
    if (large == 0) break;
    s[threadIdx.x] -= 3;
  }
  if (__syncthreads_and(s[threadIdx.x] <= limit)) x[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
  if (threadIdx.x == 0) steps[blockIdx.x] = rounds;
}

// Some threads return first: the others are counted without them.
__global__ void leave(int *counts, int n) {
  if (threadIdx.x >= n) return;
  int some = __syncthreads_count(threadIdx.x % 2);
  int all = __syncthreads_and(threadIdx.x < n);
  if (threadIdx.x == 0) counts[0] = some, counts[1] = all;
}

template <int WIDE> __global__ void tiles(const int *x, int *out) {
  auto block = cg::this_thread_block();
  cg::thread_block_tile<WIDE> tile = cg::tiled_partition<WIDE>(block);
  int value = x[block.thread_rank()];
  for (int step = tile.size() / 2; step > 0; step /= 2) value += tile.shfl_down(value, step);
  if (tile.thread_rank() == 0) out[tile.meta_group_rank()] = value;
}

#if CUDART_VERSION < 13000  // gone from CUDA 13
__global__ void old(const int *x, int *out) {
  int value = x[threadIdx.x];
  for (int step = warpSize / 2; step > 0; step /= 2) value += __shfl_xor(value, step);
  if (__any(value > 0)) value += __popc(__ballot(x[threadIdx.x] % 2));
  if (__all(value > 1000000)) value = 0;
  out[threadIdx.x] = __shfl(value, 3, 8);
}
#endif

int main() {
  int *x, *steps, *counts;
  cudaMallocManaged(&x, 256 * sizeof(int));
  cudaMallocManaged(&steps, 256 * sizeof(int));
  cudaMallocManaged(&counts, 256 * sizeof(int));
  for (int i = 0; i < 256; i++) x[i] = i % 128 < 40 ? 200 - i % 128 : 100 + (i * 7) % 128;
  for (int i = 0; i < 256; i++) counts[i] = 0;
  int least[2] = {1000, 1000}, want[256];
  for (int i = 0; i < 256; i++) {
    least[i / 128] = i % 128 && least[i / 128] < x[i] ? least[i / 128] : x[i];
    want[i] = least[i / 128];
  }
  settle<<<2, 128>>>(x, steps, counts, 120);
  bool ok = cudaDeviceSynchronize() == cudaSuccess && steps[0] > 20 && counts[0] > 0;
  for (int i = 0; i < 256; i++) {
    int most = 0, down = 0;
    for (int j = i / 128 * 128; j < i / 128 * 128 + 128; j++) most = want[j] > most ? want[j] : most;
    while (most - 3 * down > 120) down++;
    ok = ok && x[i] == want[i] - 3 * down;
  }

  leave<<<1, 96>>>(counts, 41);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess && counts[0] == 20 && counts[1] != 0;

  for (int i = 0; i < 64; i++) x[i] = i;
  tiles<16><<<1, 64>>>(x, steps);
  tiles<32><<<1, 64>>>(x, steps + 4);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess && steps[0] == 120 && steps[3] == 888;
  ok = ok && steps[4] == 496 && steps[5] == 1520;
#if CUDART_VERSION < 13000
  old<<<1, 64>>>(x, counts);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 64; i++) ok = ok && counts[i] == (i < 32 ? 496 : 1520) + 16;
#endif

  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
