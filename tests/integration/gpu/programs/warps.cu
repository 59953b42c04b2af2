// Warp-aggregated atomics, shuffle scans, votes: after the samples about cooperative groups.
#include <stdio.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <numeric>
#include <vector>
using namespace cooperative_groups;

#define CUDA_CHECK(call)                                                            \
  do {                                                                              \
    cudaError_t err__ = (call);                                                     \
    if (err__ != cudaSuccess) {                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(err__)); \
      exit(1);                                                                      \
    }                                                                               \
  } while (0)

// warp-aggregated atomic increment
__device__ int atomicAggInc(int *counter) {
  coalesced_group active = coalesced_threads();

  // leader does the update
  int res = 0;
  if (active.thread_rank() == 0) {
    res = atomicAdd(counter, active.size());
  }
  // broadcast result
  res = active.shfl(res, 0);
  // each thread computes its own value
  return res + active.thread_rank();
}

__global__ void filter_arr(int *dst, int *nres, const int *src, int n) {
  int id = threadIdx.x + blockIdx.x * blockDim.x;
  for (int i = id; i < n; i += gridDim.x * blockDim.x) {
    if (src[i] > 0) dst[atomicAggInc(nres)] = src[i];
  }
}

__global__ void filter_by_ballot(int *dst, int *nres, const int *src, int n) {
  int i = threadIdx.x + blockIdx.x * blockDim.x;
  const unsigned lane = threadIdx.x & 31;
  bool keep = i < n && src[i] > 0;
  unsigned mask = __ballot_sync(0xffffffffu, keep);
  int base = 0;
  if (lane == 0) base = atomicAdd(nres, __popc(mask));
  base = __shfl_sync(0xffffffffu, base, 0);
  if (keep) dst[base + __popc(mask & ((1u << lane) - 1))] = src[i];
}

// Scan using shfl - takes log2(n) steps
__global__ void shfl_scan_test(int *data, int width, int *partial_sums = NULL) {
  extern __shared__ int sums[];
  int id = ((blockIdx.x * blockDim.x) + threadIdx.x);
  int lane_id = id % warpSize;
  // determine a warp_id within a block
  int warp_id = threadIdx.x / warpSize;

  // Below is the basic structure of using a shfl instruction for a scan.
  int value = data[id];

  unsigned int mask = 0xffffffff;
#pragma unroll
  for (int i = 1; i <= width; i *= 2) {
    int n = __shfl_up_sync(mask, value, i, width);

    if (lane_id >= i) value += n;
  }

  // write the sum of the warp to smem
  if (threadIdx.x % warpSize == warpSize - 1) {
    sums[warp_id] = value;
  }

  __syncthreads();

  // scan sum the warp sums
  if (warp_id == 0 && lane_id < (blockDim.x / warpSize)) {
    int warp_sum = sums[lane_id];

    int mask = (1 << (blockDim.x / warpSize)) - 1;
    for (int i = 1; i <= (blockDim.x / warpSize); i *= 2) {
      int n = __shfl_up_sync(mask, warp_sum, i, (blockDim.x / warpSize));

      if (lane_id >= i) warp_sum += n;
    }

    sums[lane_id] = warp_sum;
  }

  __syncthreads();

  // perform a uniform add across warps in the block
  int blockSum = 0;

  if (warp_id > 0) {
    blockSum = sums[warp_id - 1];
  }

  value += blockSum;

  // Now write out our result
  data[id] = value;

  // last thread has sum, write write out the block's sum
  if (partial_sums != NULL && threadIdx.x == blockDim.x - 1) {
    partial_sums[blockIdx.x] = value;
  }
}

// Uniform add: add partial sums array
__global__ void uniform_add(int *data, int *partial_sums, int len) {
  __shared__ int buf;
  int id = ((blockIdx.x * blockDim.x) + threadIdx.x);

  if (id > len) return;

  if (threadIdx.x == 0) {
    buf = partial_sums[blockIdx.x];
  }

  __syncthreads();
  data[id] += buf;
}

template <int tile_sz>
__device__ int reduce_sum_tile_shfl(thread_block_tile<tile_sz> g, int val) {
  // Each iteration halves the number of active threads
  for (int i = g.size() / 2; i > 0; i /= 2) {
    val += g.shfl_down(val, i);
  }
  return val;  // note: only thread 0 will return full sum
}

__device__ int thread_sum(int *input, int n) {
  int sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += blockDim.x * gridDim.x) {
    int4 in = ((int4 *)input)[i];
    sum += in.x + in.y + in.z + in.w;
  }
  return sum;
}

template <int tile_sz>
__global__ void sum_kernel_tile_shfl(int *sum, int *input, int n) {
  int my_sum = thread_sum(input, n);
  auto tile = tiled_partition<tile_sz>(this_thread_block());
  int tile_sum = reduce_sum_tile_shfl<tile_sz>(tile, my_sum);
  if (tile.thread_rank() == 0) atomicAdd(sum, tile_sum);
}

__device__ int reduce_sum(thread_group g, int *temp, int val) {
  int lane = g.thread_rank();
  for (int i = g.size() / 2; i > 0; i /= 2) {
    temp[lane] = val;
    g.sync();  // wait for all threads to store
    if (lane < i) val += temp[lane + i];
    g.sync();  // wait for all threads to load
  }
  return val;  // note: only thread 0 will return full sum
}

__global__ void sum_kernel_block(int *sum, int *input, int n) {
  int my_sum = thread_sum(input, n);
  extern __shared__ int temp[];
  thread_group g = this_thread_block();
  int block_sum = reduce_sum(g, temp, my_sum);
  if (g.thread_rank() == 0) atomicAdd(sum, block_sum);
}

int main(int argc, char **argv) {
  const int n = 1 << 14;
  std::vector<int> host(n), got(n);
  int positive = 0, total = 0;
  for (int i = 0; i < n; i++) host[i] = rand() % 21 - 8, positive += host[i] > 0, total += host[i];
  int *src, *dst, *count;
  CUDA_CHECK(cudaMalloc(&src, n * sizeof(int)));
  CUDA_CHECK(cudaMalloc(&dst, n * sizeof(int)));
  CUDA_CHECK(cudaMallocManaged(&count, 4 * sizeof(int)));
  CUDA_CHECK(cudaMemcpy(src, host.data(), sizeof(int) * n, cudaMemcpyHostToDevice));
  CUDA_CHECK(cudaMemset(count, 0, 4 * sizeof(int)));
  dim3 dimBlock(512, 1, 1);
  dim3 dimGrid(8);
  filter_arr<<<dimGrid, dimBlock>>>(dst, &count[0], src, n);
  CUDA_CHECK(cudaGetLastError());
  filter_by_ballot<<<n / 512, 512>>>(dst, count + 1, src, n);
  sum_kernel_tile_shfl<16><<<dimGrid, dimBlock>>>(&count[2], src, n);
  sum_kernel_block<<<dimGrid, dimBlock, 512 * sizeof(int)>>>(&count[3], src, n);
  CUDA_CHECK(cudaDeviceSynchronize());
  bool good = count[0] == positive && count[1] == positive && count[2] == total && count[3] == total;
  printf("%d %d of %d, %d %d of %d\n", count[0], count[1], positive, count[2], count[3], total);

  int *partial;
  const int blockSize = 256, gridSize = n / blockSize;
  CUDA_CHECK(cudaMalloc(&partial, gridSize * sizeof(int)));
  shfl_scan_test<<<gridSize, blockSize, blockSize / 32 * sizeof(int)>>>(src, 32, partial);
  shfl_scan_test<<<1, gridSize, gridSize / 32 * sizeof(int)>>>(partial, 32);
  uniform_add<<<gridSize - 1, blockSize>>>(src + blockSize, partial, n);
  CUDA_CHECK(cudaMemcpy(got.data(), src, n * sizeof(int), cudaMemcpyDeviceToHost));
  std::partial_sum(host.begin(), host.end(), host.begin());
  good = good && got == host;
  puts(good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
