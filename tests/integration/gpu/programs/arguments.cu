// Arguments of kernels: objects of managed memory by reference, and an owner by value.
#include <stdio.h>
#include <cuda_runtime.h>
#include <new>

struct Counter {
  int hits, most;
};

struct Owner {  // as a lock of textbooks: every copy would free its memory
  int *place;
  Owner() {
    cudaMalloc(&place, sizeof(int));
    cudaMemset(place, 0, sizeof(int));
  }
  ~Owner() { cudaFree(place); }
  __device__ int add(int n) { return atomicAdd(place, n); }
};

__global__ void count(Counter &counter, const int &step) {  // as loops
  atomicAdd(&counter.hits, step);
}

__global__ void maximum(Counter &counter, int n) {  // with stacks
  if (threadIdx.x >= n) goto end;
  atomicMax(&counter.most, int(threadIdx.x));
end:
  __syncthreads();
}

template <typename T> __global__ void exchange(T &one, T &other) {
  T kept = one;
  one = other;
  other = kept;
}

__global__ void add_up(Owner owner, int *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = owner.add(1); }

int main() {
  Counter *counter;
  int *out;
  const int n = 64 * 32;
  cudaMallocManaged(&counter, 2 * sizeof(Counter));
  cudaMallocManaged(&out, n * sizeof(int));
  counter[0] = {0, -1}, counter[1] = {7, 8};
  count<<<5, 20>>>(*counter, 3);
  maximum<<<2, 64>>>(counter[0], 50);
  bool good = cudaDeviceSynchronize() == cudaSuccess && counter->hits == 300 && counter->most == 49;
  exchange<<<1, 1>>>(counter[0], counter[1]);
  good = good && cudaDeviceSynchronize() == cudaSuccess && counter[0].most == 8 && counter[1].most == 49;
  Owner *owner = new Owner;
  add_up<<<64, 32>>>(*owner, out);
  good = good && cudaDeviceSynchronize() == cudaSuccess;
  long sum = 0;
  for (int i = 0; i < n; i++) sum += out[i];
  good = good && sum == long(n) * (n - 1) / 2;
  puts(good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
