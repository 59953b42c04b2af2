// Warps whose lanes rely on running in step, as programs of before CUDA 9 are written.
#include <cuda_runtime.h>
#include <cooperative_groups.h>
#include <cstdio>
#include <vector>

namespace cg = cooperative_groups;
#define N 4096
#define BLOCK 128
#define CHECK(what) if (!(what)) { printf("%s:%d: %s\n", __FILE__, __LINE__, #what); bad++; }

template <unsigned size> __device__ void last_warp(volatile int *s, unsigned tid) {
    if (size >= 64) s[tid] += s[tid + 32];
    if (size >= 32) s[tid] += s[tid + 16];
    if (size >= 16) s[tid] += s[tid + 8];
    if (size >= 8) s[tid] += s[tid + 4];
    if (size >= 4) s[tid] += s[tid + 2];
    if (size >= 2) s[tid] += s[tid + 1];
}
template <unsigned size> __global__ void sum_template(const int *x, int *out) {
    __shared__ int s[size];
    unsigned tid = threadIdx.x;
    s[tid] = x[blockIdx.x * size + tid];
    __syncthreads();
    if (size >= 128) {
        if (tid < 64) s[tid] += s[tid + 64];
        __syncthreads();
    }
    if (tid < 32) last_warp<size>(s, tid);
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void sum_volatile(const int *x, int *out) {
    extern __shared__ int s[];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    int mine = x[i];
    s[tid] = mine;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 32; d >>= 1) {
        if (tid < d) s[tid] = mine = mine + s[tid + d];
        __syncthreads();
    }
    if (tid < 32) {
        volatile int *v = s;
        v[tid] = mine = mine + v[tid + 32];
        v[tid] = mine = mine + v[tid + 16];
        v[tid] = mine = mine + v[tid + 8];
        v[tid] = mine = mine + v[tid + 4];
        v[tid] = mine = mine + v[tid + 2];
        v[tid] = mine = mine + v[tid + 1];
    }
    if (tid == 0) out[blockIdx.x] = s[0];
}
__global__ void butterfly(const int *x, int *out) {
    __shared__ int s[BLOCK];
    const int tid = threadIdx.x;
    s[tid] = x[blockIdx.x * BLOCK + tid];
    __syncthreads();
    for (int d = 1; d < 32; d *= 2) s[tid] += s[tid ^ d];
    out[blockIdx.x * BLOCK + tid] = s[tid];
}
__global__ void warp_scan(const int *x, int *out) {
    __shared__ volatile int s[BLOCK];
    const int tid = threadIdx.x, lane = tid & 31;
    s[tid] = x[blockIdx.x * BLOCK + tid];
    if (lane >= 1) s[tid] += s[tid - 1];
    if (lane >= 2) s[tid] += s[tid - 2];
    if (lane >= 4) s[tid] += s[tid - 4];
    if (lane >= 8) s[tid] += s[tid - 8];
    if (lane >= 16) s[tid] += s[tid - 16];
    out[blockIdx.x * BLOCK + tid] = s[tid];
}
__global__ void rotate(int *out) { // reads what the lane before is about to change
    __shared__ int s[32];
    int tid = threadIdx.x;
    s[tid] = tid * tid;
    __syncthreads();
    for (int turn = 0; turn < 5; turn++) {
        int before = s[tid ^ 1];
        s[tid] = before + 1;
    }
    out[tid] = s[tid];
}
__global__ void some_lanes(int *out) { // groups of the lanes that come
    int tid = threadIdx.x;
    if (tid % 3 == 1) {
        cg::coalesced_group here = cg::coalesced_threads();
        out[tid] = int(here.size()) * 100 + here.thread_rank();
        out[64 + tid] = here.shfl(tid, 0);
    } else {
        unsigned here = __activemask();
        out[tid] = __popc(here);
        out[64 + tid] = __shfl_sync(here, tid, __ffs(here) - 1);
    }
}

int main() {
    int bad = 0, *x, *out;
    cudaMallocManaged(&x, N * sizeof(int));
    cudaMallocManaged(&out, N * sizeof(int));
    for (int i = 0; i < N; i++) x[i] = i * 7 % 1013;
    auto sum = [&](int from, int count) { int s = 0; for (int i = 0; i < count; i++) s += x[from + i]; return s; };

    sum_template<BLOCK><<<N / BLOCK, BLOCK>>>(x, out);
    cudaDeviceSynchronize();
    for (int b = 0; b < N / BLOCK; b++) CHECK(out[b] == sum(b * BLOCK, BLOCK));
    sum_template<64><<<N / 64, 64>>>(x, out);
    cudaDeviceSynchronize();
    for (int b = 0; b < N / 64; b++) CHECK(out[b] == sum(b * 64, 64));
    sum_volatile<<<N / BLOCK, BLOCK, BLOCK * sizeof(int)>>>(x, out);
    cudaDeviceSynchronize();
    for (int b = 0; b < N / BLOCK; b++) CHECK(out[b] == sum(b * BLOCK, BLOCK));
    butterfly<<<N / BLOCK, BLOCK>>>(x, out);
    cudaDeviceSynchronize();
    for (int i = 0; i < N; i++) CHECK(out[i] == sum(i / 32 * 32, 32));
    warp_scan<<<N / BLOCK, BLOCK>>>(x, out);
    cudaDeviceSynchronize();
    for (int i = 0; i < N; i++) CHECK(out[i] == sum(i / 32 * 32, i % 32 + 1));
    rotate<<<1, 32>>>(out);
    cudaDeviceSynchronize();
    for (int i = 0; i < 32; i++) CHECK(out[i] == (i ^ 1) * (i ^ 1) + 5);
    some_lanes<<<1, 64>>>(out);
    cudaDeviceSynchronize();
    for (int i = 0; i < 64; i++) {
        int count = 0, rank = 0, first = -1;
        for (int j = i / 32 * 32; j < i / 32 * 32 + 32; j++)
            if ((j % 3 == 1) == (i % 3 == 1)) {
                count++, rank += j < i;
                if (first < 0) first = j;
            }
        CHECK(out[i] == (i % 3 == 1 ? count * 100 + rank : count));
        CHECK(out[64 + i] == first);
    }
    CHECK(cudaGetLastError() == cudaSuccess);
    printf(bad ? "FAILED\n" : "PASSED\n");
    return bad != 0;
}
