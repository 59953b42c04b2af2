// A leader takes a place for its warp, and hands it on: the others never set their own variable.
#include <cooperative_groups.h>
#include <cstdio>

namespace cg = cooperative_groups;
#define N 3000
#define CHECK(what) if (!(what)) { printf("%s:%d: %s\n", __FILE__, __LINE__, #what); bad++; }

__device__ int place_of_group(int *count) {
    auto group = cg::coalesced_threads();
    int place;
    if (group.thread_rank() == 0) place = atomicAdd(count, group.size());
    return group.shfl(place, 0) + group.thread_rank();
}
__global__ void by_groups(const int *x, int *y, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (x[i] > 50) y[place_of_group(count)] = x[i];
}
__device__ int place_by_mask(int *count) {
    unsigned mask = __activemask(), lane = threadIdx.x % 32;
    int leader = __ffs(mask) - 1, place, rank;
    if (lane == leader) place = atomicAdd(count, __popc(mask));
    place = __shfl_sync(mask, place, leader);
    rank = __popc(mask & ((1u << lane) - 1));
    return place + rank;
}
__global__ void by_mask(const int *x, int *y, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 50) y[place_by_mask(count)] = x[i];
}
// All lanes come: this one is cut into loops.
__global__ void by_warps(const int *x, int *y, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    bool keep = i < n && x[i] > 50;
    unsigned mask = __ballot_sync(0xffffffff, keep);
    int place;
    if (lane == 0) place = atomicAdd(count, __popc(mask));
    place = __shfl_sync(0xffffffff, place, 0);
    if (keep) y[place + __popc(mask & ((1u << lane) - 1))] = x[i];
}

int main() {
    int bad = 0, *x, *y, *count;
    cudaMallocManaged(&x, N * sizeof(int));
    cudaMallocManaged(&y, N * sizeof(int));
    cudaMallocManaged(&count, sizeof(int));
    int wanted = 0, sum = 0;
    for (int i = 0; i < N; i++) x[i] = i * 37 % 100;
    for (int i = 0; i < N; i++) if (x[i] > 50) wanted++, sum += x[i];
    for (int which = 0; which < 3; which++) {
        *count = 0;
        for (int i = 0; i < N; i++) y[i] = 0;
        const int blocks = (N + 127) / 128;
        if (which == 0) by_groups<<<blocks, 128>>>(x, y, count, N);
        if (which == 1) by_mask<<<blocks, 128>>>(x, y, count, N);
        if (which == 2) by_warps<<<blocks, 128>>>(x, y, count, N);
        CHECK(cudaDeviceSynchronize() == cudaSuccess);
        CHECK(*count == wanted);
        int found = 0, total = 0;
        for (int i = 0; i < *count && i < N; i++) found += y[i] > 50, total += y[i];
        CHECK(found == wanted);
        CHECK(total == sum);
    }
    printf(bad ? "FAILED\n" : "PASSED\n");
    return bad;
}
