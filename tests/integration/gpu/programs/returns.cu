// Blocks that take work until there is none, and leave their endless loop by return.
#include <stdio.h>
#include <cuda_runtime.h>

__global__ void takes_work(int *out, int *next, int jobs) {
  __shared__ int job;
  while (true) {
    if (threadIdx.x == 0) job = atomicAdd(next, 1);
    __syncthreads();
    if (job >= jobs) return;
    out[job * blockDim.x + threadIdx.x] += job + threadIdx.x;
    __syncthreads();
  }
}

__global__ void one_by_one(int *out, int rounds) {  // some threads go earlier than others
  __shared__ int left[64];
  int t = threadIdx.x;
  for (int round = 0;; round++) {
    for (int half = 0; half < 2; half++) {
      left[t] = round;
      __syncthreads();
      out[t] += left[t];
      __syncthreads();
    }
    if (round == t % rounds) return;
  }
}

int main() {
  const int jobs = 37, threads = 64;
  int *out, *next;
  cudaMallocManaged(&out, jobs * threads * sizeof(int));
  cudaMallocManaged(&next, sizeof(int));
  cudaMemset(out, 0, jobs * threads * sizeof(int));
  *next = 0;
  takes_work<<<5, threads>>>(out, next, jobs);
  bool good = cudaDeviceSynchronize() == cudaSuccess && *next == jobs + 5;
  for (int i = 0; i < jobs * threads; i++) good = good && out[i] == i / threads + i % threads;
  cudaMemset(out, 0, threads * sizeof(int));
  one_by_one<<<1, threads>>>(out, 3);
  good = good && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < threads; i++) good = good && out[i] == (i % 3) * (i % 3 + 1);
  puts(good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
