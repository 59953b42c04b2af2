// Kernels whose lanes work together, and cooperative groups.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <assert.h>
#include "device.cuh"
namespace cg = cooperative_groups;
#define API extern "C"
#define BLOCKS(n, b) (((n) + (b) - 1) / (b))

__global__ void shuffle_kernel(const float *x, float *out, int n) {
    __shared__ float partial[32];
    float v = 0;
    for (int i = global_index(); i < n; i += blockDim.x * gridDim.x) v += x[i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        v = warp_sum(v);
        if (threadIdx.x == 0) atomicAdd(out, v);
    }
}
API int shuffle_run(const float *x, float *out, int n) { shuffle_kernel<<<4, 128>>>(x, out, n); return cudaGetLastError(); }

__global__ void warp_scan_kernel(const int *x, int *y) {
    int i = global_index(), lane = threadIdx.x & 31, v = x[i];
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += other;
    }
    y[i] = v + 1000 * __shfl_sync(0xffffffff, v, 31) + __shfl_xor_sync(0xffffffff, lane, 1, 16);
}
API int warp_scan_run(const int *x, int *y, int warps) { warp_scan_kernel<<<warps, 32>>>(x, y); return cudaGetLastError(); }

__global__ void votes_kernel(const int *x, unsigned *y) {
    int i = global_index(), v = x[i];
    unsigned odd = __ballot_sync(0xffffffff, v & 1);
    unsigned same = __match_any_sync(0xffffffff, v % 4);
    unsigned half = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
    unsigned in_half = __popc(__ballot_sync(half, v & 1));
    unsigned some = __any_sync(0xffffffff, v == 3), all = __all_sync(0xffffffff, v >= 0);
    y[4 * i] = odd, y[4 * i + 1] = same, y[4 * i + 2] = in_half, y[4 * i + 3] = some * 2 + all;
}
API int votes_run(const int *x, unsigned *y, int warps) { votes_kernel<<<warps / 2, 64>>>(x, y); return cudaGetLastError(); }

__global__ void counts_kernel(const int *x, int *y, int n) {
    int i = global_index();
    if (i >= n) return;
    int c = __syncthreads_count(x[i] > 0), o = __syncthreads_or(x[i] > 98), a = __syncthreads_and(x[i] >= 0);
    y[i] = c * 100 + o * 10 + a;
}
API int counts_run(const int *x, int *y, int n) { counts_kernel<<<BLOCKS(n, 64), 64>>>(x, y, n); return cudaGetLastError(); }

__device__ void reverse_in_block(int *s) {
    int v = s[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    s[threadIdx.x] = v;
    __syncthreads();
}
__global__ void device_barrier_kernel(int *x) {
    __shared__ int s[128];
    s[threadIdx.x] = x[global_index()];
    __syncthreads();
    reverse_in_block(s);
    x[global_index()] = s[threadIdx.x];
}
API int device_barrier_run(int *x, int blocks) { device_barrier_kernel<<<blocks, 128>>>(x); return cudaGetLastError(); }

__global__ void groups_kernel(const int *x, int *y) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(block);
    int v = x[global_index()];
    for (int d = tile.size() / 2; d > 0; d /= 2) v += tile.shfl_down(v, d);
    v = tile.shfl(v, 0);
    block.sync();
    cg::coalesced_group alone = cg::coalesced_threads();
    y[global_index()] = v * 10 + (int)tile.ballot(tile.thread_rank() == 3) / 8 + (alone.size() > 0) - 1;
}
API int groups_run(const int *x, int *y, int blocks) { groups_kernel<<<blocks, 64>>>(x, y); return cudaGetLastError(); }

__global__ void stuck_kernel(int *x) {
    if (threadIdx.x < 5) x[0] = __shfl_sync(0xffffffff, 1, 0);
    __syncthreads();
}
API const char *stuck_run(int *x) {
    stuck_kernel<<<1, 64>>>(x);
    const char *text = cudaGetErrorString(cudaGetLastError());
    return text;
}
API int reset_run() { return cudaDeviceReset(); }

API float events_run() {
    cudaStream_t stream;
    cudaEvent_t from, to;
    cudaStreamCreate(&stream);
    cudaEventCreate(&from), cudaEventCreate(&to);
    cudaEventRecord(from, stream);
    int *x;
    cudaMalloc(&x, 64 * sizeof(int));
    cudaMemsetAsync(x, 0, 64 * sizeof(int), stream);
    groups_kernel<<<1, 64, 0, stream>>>(x, x);
    cudaEventRecord(to, stream);
    cudaEventSynchronize(to);
    float ms = -1;
    cudaEventElapsedTime(&ms, from, to);
    cudaFree(x);
    cudaEventDestroy(from), cudaEventDestroy(to), cudaStreamDestroy(stream);
    return cudaGetLastError() == cudaSuccess ? ms : -2;
}

// Lanes of which some do not come: what they would have given is nothing here, undefined on a GPU.
__device__ int sum_of_warp(int v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    return v;
}
__global__ void some_warps_kernel(const int *x, int *y, int lanes) {
    int v = x[threadIdx.x], warp = threadIdx.x / 32;
    int total = 0;
    if (warp == 1 && threadIdx.x % 32 < lanes) {
        total = sum_of_warp(v);
        total += 1000;
    }
    y[threadIdx.x] = total;
}
__global__ void half_warp_kernel(const int *x, int *y) {
    int v = x[threadIdx.x], total = 0;
    if (threadIdx.x < 16)
        total = sum_of_warp(v);
    __syncthreads();
    y[threadIdx.x] = total;
}
API const char *half_warp_run(const int *x, int *y) { half_warp_kernel<<<1, 32>>>(x, y); return cudaGetErrorString(cudaGetLastError()); }
API int some_warps_run(const int *x, int *y, int lanes) { some_warps_kernel<<<1, 96>>>(x, y, lanes); return cudaGetLastError(); }

template <class T> __device__ T block_total(T v, T *partial) {
    v += __shfl_xor_sync(0xffffffff, v, 16);
    v += __shfl_xor_sync(0xffffffff, v, 8);
    v += __shfl_xor_sync(0xffffffff, v, 4);
    v += __shfl_xor_sync(0xffffffff, v, 2);
    v += __shfl_xor_sync(0xffffffff, v, 1);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    T all = 0;
    for (int i = 0; i < blockDim.x / 32; i++) all += partial[i];
    return all;
}
__global__ void totals_kernel(const int *x, int *y) {
    __shared__ int partial[32];
    int v = x[blockIdx.x * blockDim.x + threadIdx.x];
    int total = block_total(v, partial);
    unsigned odd = __ballot_sync(0xffffffffu, v & 1);
    y[blockIdx.x * blockDim.x + threadIdx.x] = total * 100 + __popc(odd);
}
API int totals_run(const int *x, int *y, int blocks) { totals_kernel<<<blocks, 96>>>(x, y); return cudaGetLastError(); }
