// What code says under __CUDA_ARCH__: kernels one thing, the host another one, functions for both both.
#include <cuda_runtime.h>
#include <cstdio>

#include "common/arch.h"

#define CHECK(what) if (!(what)) { printf("%s:%d: %s\n", __FILE__, __LINE__, #what); bad++; }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 600
#define PLACE 2
#else
#define PLACE 1
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 600
__device__ double atomicAdd(double *address, double value) {
    *address = -1000.0;
    return value;
}
#endif

#if __CUDA_ARCH__ >= 700
__device__ int newer(int x) { return x + 7; }
#endif

#ifndef __CUDA_ARCH__
static int only_on_host() { return 11; }
#endif

__host__ __device__ inline int where() {
#ifdef __CUDA_ARCH__
    return 100 * PLACE; // "__CUDA_ARCH__" in a text
#else
    return PLACE;
#endif
}

HOST_DEVICE float half_of(float x) {
#if !defined(__CUDA_ARCH__)
#pragma GCC diagnostic push
    if (x < 0) return -1;
#endif
    return x * 0.5f;
}

struct Pair {
    int a;
    __host__ __device__ Pair() {
#if __CUDA_ARCH__ >= 500
        a = 5;
#else
        a = 6;
#endif
    }
};

__global__ void whole(int *out) {
#if __CUDA_ARCH__ >= 600
    int i = threadIdx.x;
    out[i] = i + PLACE;
#else
    out[threadIdx.x] = -1;
#endif
}

__global__ void parts(int *out, double *sum, float *halves) {
    __shared__ int s[64];
    int i = threadIdx.x;
#ifdef __CUDA_ARCH__
    s[i] = newer(i);
#endif
    __syncthreads();
#ifdef SHARED_FAST
    out[i] = s[63 - i] + where() + SHARED_FAST;
#else
    out[i] = -2;
#endif
#ifdef __CUDA_ARCH__
    if (i == 0) out[64] = __CUDA_ARCH__, out[65] = Pair().a, out[66] = WHERE_FROM;
    if (__CUDA_ARCH__ >= 600) atomicAdd(sum, 0.5);
#endif
    halves[i] = half_of(float(-i));
}

int main() {
    int bad = 0;
    int *out;
    double *sum;
    float *halves;
    cudaMallocManaged(&out, 128 * sizeof(int));
    cudaMallocManaged(&sum, sizeof(double));
    cudaMallocManaged(&halves, 64 * sizeof(float));
    whole<<<1, 64>>>(out);
    cudaDeviceSynchronize();
    for (int i = 0; i < 64; i++) CHECK(out[i] == i + 2);
    parts<<<1, 64>>>(out, sum, halves);
    cudaDeviceSynchronize();
    for (int i = 0; i < 64; i++) CHECK(out[i] == 63 - i + 7 + 200 + 3);
    for (int i = 0; i < 64; i++) CHECK(halves[i] == -i * 0.5f);
    CHECK(out[64] >= 700 && out[65] == 5 && out[66] == 8);
    CHECK(*sum == 32.0);
    CHECK(where() == 1 && Pair().a == 6 && WHERE_FROM == 9);
#ifndef __CUDA_ARCH__
    CHECK(only_on_host() == 11);
#else
    CHECK(!"the host has no architecture");
#endif
    CHECK(half_of(-4) == -1 && half_of(4) == 2);
#ifdef SHARED_FAST
    CHECK(!"the host has no SHARED_FAST");
#endif
    CHECK(cudaGetLastError() == cudaSuccess);
    printf(bad ? "FAILED\n" : "PASSED\n");
    return bad != 0;
}
