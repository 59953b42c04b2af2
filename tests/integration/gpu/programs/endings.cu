// Assertions and traps end a kernel with an error; callbacks, peers, clocks, complex numbers.
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <cuComplex.h>
#include <cuda_runtime.h>

// A program's own templates by the names of CUDA's functions.
template <class T> __device__ __host__ T min(const T &a, const T &b) { return a < b ? a : b; }
template <class T> __device__ __host__ T max(const T &a, const T &b) { return a < b ? b : a; }

__global__ void small(const int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) assert(x[i] < 100);
}
__global__ void together(const int *x) {
  unsigned same = __match_any_sync(0xffffffffu, x[threadIdx.x]);
  assert(same != 1 && "alone");
}
__global__ void stops(int *x) {
  x[threadIdx.x] = 1;
  __syncthreads();
  if (x[0] == 1) __trap();
}
__global__ void waits(long long *took, int ticks) {
  clock_t start = clock();
  while (clock() - start < ticks) {
  }
  *took = clock() - start;
}
__global__ void numbers(unsigned *out, cuDoubleComplex *z) {
  unsigned i = threadIdx.x;
  out[i] = umin(i, 7u) + max(i, 3u) + min(2, 5) + (unsigned)max(1.5f, 0.5f);
  z[i] = cuCdiv(cuCmul(z[i], make_cuDoubleComplex(0, 2)), make_cuDoubleComplex(0, 2));
}

static int called = 0;
static void CUDART_CB after(cudaStream_t, cudaError_t error, void *what) { called += error == cudaSuccess && what; }
static void CUDART_CB host(void *what) { called += *(int *)what; }

int main() {
  int *x;
  long long *took;
  cudaMallocManaged(&x, 64 * sizeof(int));
  cudaMallocManaged(&took, sizeof *took);
  for (int i = 0; i < 64; i++) x[i] = i;
  bool ok = true;

  small<<<2, 32>>>(x, 64);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  int rate;
  cudaDeviceGetAttribute(&rate, cudaDevAttrClockRate, 0);
  waits<<<1, 1>>>(took, rate); // a millisecond
  ok = ok && cudaDeviceSynchronize() == cudaSuccess && *took >= rate && *took < 1000ll * rate;

  unsigned *out;
  cuDoubleComplex *z;
  cudaMallocManaged(&out, 32 * sizeof *out);
  cudaMallocManaged(&z, 32 * sizeof *z);
  for (int i = 0; i < 32; i++) z[i] = make_cuDoubleComplex(i, -i);
  numbers<<<1, 32>>>(out, z);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (unsigned i = 0; i < 32; i++)
    ok = ok && out[i] == (i < 7 ? i : 7) + (i > 3 ? i : 3) + 3 && z[i].x == i && cuCimag(z[i]) == -double(i);

  int five = 5, can = 1;
  cudaStreamAddCallback(0, after, x, 0);
  cudaLaunchHostFunc(0, host, &five);
  ok = ok && called == 6;
  ok = ok && cudaDeviceCanAccessPeer(&can, 0, 0) == cudaSuccess && can == 0;
  ok = ok && cudaDeviceEnablePeerAccess(1, 0) == cudaErrorInvalidDevice;
  ok = ok && cudaMemcpyPeer(x + 32, 0, x, 0, 4) == cudaSuccess && x[32] == 0;
  cudaGetLastError();

  x[40] = 100;
  small<<<2, 32>>>(x, 64);
  ok = ok && cudaDeviceSynchronize() == cudaErrorAssert;
  ok = ok && !strcmp(cudaGetErrorString(cudaGetLastError()), "device-side assert triggered");
  cudaDeviceReset();

  together<<<1, 32>>>(x);
  ok = ok && cudaDeviceSynchronize() == cudaErrorAssert;
  cudaDeviceReset();

  stops<<<4, 32>>>(x);
  ok = ok && cudaDeviceSynchronize() == cudaErrorLaunchFailure;
  ok = ok && strstr(cudaGetErrorString(cudaGetLastError()), "trap in kernel stops");
  cudaDeviceReset();
  for (int i = 0; i < 64; i++) x[i] = i / 2;
  together<<<1, 32>>>(x);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;

  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
