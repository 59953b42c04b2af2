// Kernels, shared memory and launches behind macros; dynamic shared memory of two types.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>
#define KERNEL(name) extern "C" __global__ void __launch_bounds__(128) name
#define DEVICE __device__ __forceinline__
#define LOCAL __shared__
#define MEET() __syncthreads()
#define BINARY(name, op) \
  KERNEL(name##_kernel)(int *out, const int *in, int other) { \
    int i = blockIdx.x * blockDim.x + threadIdx.x; \
    out[i] = in[i] op other; \
  }
#define RUN(name, ...) name##_kernel<<<2, 64>>>(__VA_ARGS__)
#define ON(kernel, bytes) kernel<<<2, 64, bytes>>>
static const int N = 128;

BINARY(add, +)
BINARY(times, *)

extern __shared__ __align__(16) unsigned char memory[];
DEVICE int *whole() { return reinterpret_cast<int *>(memory); }
DEVICE double *halves() { return (double *)(whole() + blockDim.x); }

KERNEL(turned)(double *out, const int *in) {
  LOCAL int last;
  int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  whole()[t] = in[i];
  if (t == blockDim.x - 1) last = in[i];
  MEET();
  halves()[t] = whole()[blockDim.x - 1 - t] * 0.5;
  MEET();
  out[i] = halves()[(t + 1) % blockDim.x] + last;
}

static void require(bool right, const char *what) {
  if (right) return;
  printf("FAILED: %s\n", what);
  exit(1);
}

int main() {
  int *in, *out;
  double *turn;
  cudaMallocManaged(&in, N * sizeof(int));
  cudaMallocManaged(&out, N * sizeof(int));
  cudaMallocManaged(&turn, N * sizeof(double));
  for (int i = 0; i < N; i++) in[i] = 3 * i;
  RUN(add, out, in, 5);
  require(cudaDeviceSynchronize() == cudaSuccess, "the first launch");
  for (int i = 0; i < N; i++) require(out[i] == 3 * i + 5, "a sum");
  RUN(times, out, in, 5);
  cudaDeviceSynchronize();
  for (int i = 0; i < N; i++) require(out[i] == 15 * i, "a product");
  ON(turned, 64 * (sizeof(int) + sizeof(double)))(turn, in);
  require(cudaDeviceSynchronize() == cudaSuccess, "dynamic memory");
  for (int i = 0; i < N; i++) {
    int first = i / 64 * 64;
    require(turn[i] == in[first + 63 - (i + 1) % 64] * 0.5 + in[first + 63], "a turned value");
  }
  printf("PASSED\n");
  return 0;
}
