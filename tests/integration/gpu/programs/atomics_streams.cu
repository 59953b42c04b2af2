// System-wide atomics, templates chosen by type, streams with events, and callbacks-free overlap.
#include <cuda_runtime.h>
#include <cuda_runtime_api.h>
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "common/helper.h"

#define min(a, b) (a) < (b) ? (a) : (b)
#define loop_num 5

extern __shared__ int scratch[];

__global__ void atomicKernel(int *atom_arr) {
  unsigned int tid = blockDim.x * blockIdx.x + threadIdx.x;

  for (int i = 0; i < loop_num; i++) {
    // Atomic addition
    atomicAdd_system(&atom_arr[0], 10);
    // Atomic exchange
    atomicExch_system(&atom_arr[1], tid);
    atomicMax_system(&atom_arr[2], tid);
    atomicMin_system(&atom_arr[3], tid);
    // Atomic increment (modulo 17+1)
    atomicInc_system((unsigned int *)&atom_arr[4], 17);
    // Atomic decrement
    atomicDec_system((unsigned int *)&atom_arr[5], 137);
    // Atomic compare-and-swap
    atomicCAS_system(&atom_arr[6], tid - 1, tid);
    // Bitwise atomic instructions
    atomicAnd_system(&atom_arr[7], 2 * tid + 7);
    atomicOr_system(&atom_arr[8], 1 << tid);
    atomicXor_system(&atom_arr[9], tid);
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600
#else
__device__ double atomicAdd(double *address, double val) {
  unsigned long long int *address_as_ull = (unsigned long long int *)address;
  unsigned long long int old = *address_as_ull, assumed;
  do {
    assumed = old;
    old = atomicCAS(address_as_ull, assumed, __double_as_longlong(val + __longlong_as_double(assumed)));
  } while (assumed != old);
  return __longlong_as_double(old);
}
#endif

__device__ float atomicMaxFloat(float *address, float val) {
  int *address_as_int = (int *)address;
  int old = *address_as_int, assumed;
  while (val > __int_as_float(old)) {
    assumed = old;
    old = atomicCAS(address_as_int, assumed, __float_as_int(val));
    if (old == assumed) break;
  }
  return __int_as_float(old);
}

__global__ void extremes(const float *x, float *most, double *sum, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    atomicMaxFloat(most, x[i]);
    atomicAdd(sum, (double)x[i]);
  }
}

__global__ void init_array(int *g_data, int *factor, int num_iterations) {
  int idx = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = 0; i < num_iterations; i++) {
    g_data[idx] += *factor;  // non-coalesced on purpose, to burn time
  }
}

bool correct_data(int *a, const int n, const int c) {
  for (int i = 0; i < n; i++) {
    if (a[i] != c) {
      printf("%d: %d %d\n", i, a[i], c);
      return false;
    }
  }
  return true;
}

static const char *sSyncMethod[] = {"0 (Automatic Blocking)", "1 (Spin Blocking)", NULL};
static const int sDeviceSyncMethod[] = {cudaDeviceScheduleAuto, cudaDeviceScheduleSpin, cudaDeviceScheduleYield};

int main(int argc, char **argv) {
  int nstreams = 4, nreps = 3, n = 1 << 16, nbytes = n * sizeof(int);
  dim3 threads, blocks;
  float elapsed_time, scale_factor = 1.0f;
  int cuda_device = findCudaDevice(argc, (const char **)argv);
  checkCudaErrors(cudaSetDeviceFlags(sDeviceSyncMethod[0] | cudaDeviceMapHost));
  printf("%s %f\n", sSyncMethod[0], scale_factor);
  cudaDeviceProp deviceProp;
  checkCudaErrors(cudaGetDeviceProperties(&deviceProp, cuda_device));
  if (deviceProp.canMapHostMemory == 0 || !deviceProp.managedMemory) exit(2);
#if CUDART_VERSION < 13000
  printf("clock %f\n", deviceProp.clockRate * 1e-6f);
#endif
  printf("pciBus %d SMs %d, %zu\n", deviceProp.pciBusID, deviceProp.multiProcessorCount, deviceProp.totalGlobalMem);

  int c = 5, *h_a = 0, *d_a = 0, *d_c = 0;
  checkCudaErrors(cudaMallocHost((void **)&h_a, nbytes));
  checkCudaErrors(cudaHostRegister(h_a, nbytes, cudaHostRegisterMapped));
  checkCudaErrors(cudaMalloc((void **)&d_a, nbytes));
  checkCudaErrors(cudaMemset(d_a, 0x0, nbytes));
  checkCudaErrors(cudaMalloc((void **)&d_c, sizeof(int)));
  checkCudaErrors(cudaMemcpy(d_c, &c, sizeof(int), cudaMemcpyHostToDevice));
  cudaStream_t *streams = (cudaStream_t *)malloc(nstreams * sizeof(cudaStream_t));
  for (int i = 0; i < nstreams; i++) checkCudaErrors(cudaStreamCreateWithFlags(&(streams[i]), cudaStreamNonBlocking));
  cudaEvent_t start_event, stop_event;
  checkCudaErrors(cudaEventCreateWithFlags(&start_event, cudaEventBlockingSync));
  checkCudaErrors(cudaEventCreateWithFlags(&stop_event, cudaEventDefault));
  threads = dim3(512, 1);
  blocks = dim3(n / (nstreams * threads.x), 1);
  memset(h_a, 255, nbytes);
  checkCudaErrors(cudaEventRecord(start_event, 0));
  for (int k = 0; k < nreps; k++) {
    cudaMemsetAsync(d_a, 0, nbytes, streams[0]);
    cudaStreamSynchronize(streams[0]);
    for (int i = 0; i < nstreams; i++)
      init_array<<<blocks, threads, 0, streams[i]>>>(d_a + i * n / nstreams, d_c, 3);
    for (int i = 0; i < nstreams; i++)
      checkCudaErrors(cudaMemcpyAsync(h_a + i * n / nstreams, d_a + i * n / nstreams, nbytes / nstreams,
                                      cudaMemcpyDeviceToHost, streams[i]));
  }
  checkCudaErrors(cudaEventRecord(stop_event, 0));
  checkCudaErrors(cudaEventSynchronize(stop_event));
  checkCudaErrors(cudaEventElapsedTime(&elapsed_time, start_event, stop_event));
  bool good = correct_data(h_a, n, c * 3);
  int priority_low, priority_hi;
  checkCudaErrors(cudaDeviceGetStreamPriorityRange(&priority_low, &priority_hi));
  while (cudaEventQuery(stop_event) == cudaErrorNotReady) {
  }

  int *atom_arr;
  checkCudaErrors(cudaMallocManaged(&atom_arr, 10 * sizeof(int)));
  for (int i = 0; i < 10; i++) atom_arr[i] = 0;
  atom_arr[7] = atom_arr[9] = 0xff;
  atomicKernel<<<1, 31>>>(atom_arr);
  checkCudaErrors(cudaDeviceSynchronize());
  good = good && atom_arr[0] == 31 * loop_num * 10 && atom_arr[2] == 30 && atom_arr[3] == 0;
  good = good && atom_arr[4] == 155 % 18 && atom_arr[8] == 0x7fffffff;

  float *x, *most;
  double *sum;
  cudaMallocManaged(&x, 1000 * sizeof *x);
  cudaMallocManaged(&most, sizeof(float));
  cudaMallocManaged(&sum, sizeof(double), cudaMemAttachGlobal);
  for (int i = 0; i < 1000; i++) x[i] = i * 0.5f;
  *most = -1, *sum = 0;
  extremes<<<4, 64>>>(x, most, sum, 1000);
  if (cudaDeviceSynchronize() != cudaSuccess) return 3;
  good = good && *most == 499.5f && *sum == 249750.0;

  for (int i = 0; i < nstreams; i++) checkCudaErrors(cudaStreamDestroy(streams[i]));
  checkCudaErrors(cudaEventDestroy(start_event));
  checkCudaErrors(cudaHostUnregister(h_a));
  checkCudaErrors(cudaFreeHost(h_a));
  checkCudaErrors(cudaFree(d_a));
  printf(good ? "PASSED\n" : "FAILED\n");
  exit(good ? EXIT_SUCCESS : EXIT_FAILURE);
}
