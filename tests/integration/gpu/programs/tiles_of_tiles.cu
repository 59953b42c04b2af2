// Tiles of a tile know their place in that tile; those of coalesced lanes count the lanes that came.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void places(int *out) {  // as loops
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
  int other = threadIdx.x;
  other = tile.shfl_xor(other, 1);
  out[threadIdx.x] = tile.meta_group_rank() * 10000 + tile.meta_group_size() * 1000 + other;
}

__global__ void places_of_some(int *out) {  // with stacks
  out[threadIdx.x] = -1;
  if (threadIdx.x % 3 == 0) return;
  auto group = cg::coalesced_threads();
  auto tile = cg::tiled_partition(group, 4);
  auto pair = cg::tiled_partition<2>(cg::tiled_partition<8>(cg::this_thread_block()));
  out[threadIdx.x] = tile.size() * 100 + tile.thread_rank() * 10 + pair.meta_group_rank();
}

int main() {
  const int n = 96;
  int *out;
  cudaMallocManaged(&out, n * sizeof(int));
  places<<<1, n>>>(out);
  bool good = cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < n; i++) good = good && out[i] == i % 32 / 8 * 10000 + 4000 + (i ^ 1);
  places_of_some<<<1, n>>>(out);
  good = good && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < n; i++) {
    int rank = 0, all = 0;
    for (int other = i / 32 * 32; other < i / 32 * 32 + 32; other++)
      if (other % 3) all++, rank += other < i;
    int size = all - rank / 4 * 4 < 4 ? all % 4 : 4;
    good = good && out[i] == (i % 3 ? size * 100 + rank % 4 * 10 + i % 8 / 2 : -1);
  }
  puts(good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
