// 256-bin histogram with per-warp counters, short scans by vectors, and a work queue with a fence.
#include <assert.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned int uint;
typedef unsigned char uchar;
typedef uint3 coord;

#define LOG2_WARP_SIZE 5U
#define WARP_SIZE (1U << LOG2_WARP_SIZE)
#define HISTOGRAM256_BIN_COUNT 256
#define WARP_COUNT 6
#define HISTOGRAM256_THREADBLOCK_SIZE (WARP_COUNT * WARP_SIZE)
#define HISTOGRAM256_THREADBLOCK_MEMORY (WARP_COUNT * HISTOGRAM256_BIN_COUNT)
#define UMUL(a, b) ((a) * (b))
#define UMAD(a, b, c) (UMUL((a), (b)) + (c))
#define TAG_MASK 0xFFFFFFFFU

inline __device__ void addByte(uint *s_WarpHist, uint data, uint threadTag) { atomicAdd(s_WarpHist + data, 1); }

inline __device__ void addWord(uint *s_WarpHist, uint data, uint tag) {
  addByte(s_WarpHist, (data >> 0) & 0xFFU, tag);
  addByte(s_WarpHist, (data >> 8) & 0xFFU, tag);
  addByte(s_WarpHist, (data >> 16) & 0xFFU, tag);
  addByte(s_WarpHist, (data >> 24) & 0xFFU, tag);
}

__global__ void histogram256Kernel(uint *d_PartialHistograms, uint *d_Data, uint dataCount) {
  // Per-warp subhistogram storage
  __shared__ uint s_Hist[HISTOGRAM256_THREADBLOCK_MEMORY];
  uint *s_WarpHist = s_Hist + (threadIdx.x >> LOG2_WARP_SIZE) * HISTOGRAM256_BIN_COUNT;

// Clear shared memory storage for current threadblock before processing
#pragma unroll

  for (uint i = 0; i < (HISTOGRAM256_THREADBLOCK_MEMORY / HISTOGRAM256_THREADBLOCK_SIZE); i++) {
    s_Hist[threadIdx.x + i * HISTOGRAM256_THREADBLOCK_SIZE] = 0;
  }

  // Cycle through the entire data set, update subhistograms for each warp
  const uint tag = threadIdx.x << (32 - LOG2_WARP_SIZE);

  __syncthreads();

  for (uint pos = UMAD(blockIdx.x, blockDim.x, threadIdx.x); pos < dataCount; pos += UMUL(blockDim.x, gridDim.x)) {
    uint data = d_Data[pos];
    addWord(s_WarpHist, data, tag);
  }

  // Merge per-warp histograms into per-block and write to global memory
  __syncthreads();

  for (uint bin = threadIdx.x; bin < HISTOGRAM256_BIN_COUNT; bin += HISTOGRAM256_THREADBLOCK_SIZE) {
    uint sum = 0;

    for (uint i = 0; i < WARP_COUNT; i++) {
      sum += s_Hist[bin + i * HISTOGRAM256_BIN_COUNT] & TAG_MASK;
    }

    d_PartialHistograms[blockIdx.x * HISTOGRAM256_BIN_COUNT + bin] = sum;
  }
}

#define MERGE_THREADBLOCK_SIZE 256

__global__ void mergeHistogram256Kernel(uint *d_Histogram, uint *d_PartialHistograms, uint histogramCount) {
  uint sum = 0;

  for (uint i = threadIdx.x; i < histogramCount; i += MERGE_THREADBLOCK_SIZE) {
    sum += d_PartialHistograms[blockIdx.x + i * HISTOGRAM256_BIN_COUNT];
  }

  __shared__ uint data[MERGE_THREADBLOCK_SIZE];
  data[threadIdx.x] = sum;

  for (uint stride = MERGE_THREADBLOCK_SIZE / 2; stride > 0; stride >>= 1) {
    __syncthreads();

    if (threadIdx.x < stride) {
      data[threadIdx.x] += data[threadIdx.x + stride];
    }
  }

  if (threadIdx.x == 0) {
    d_Histogram[blockIdx.x] = data[0];
  }
}

#define THREADBLOCK_SIZE 256

// Naive inclusive scan: O(N * log2(N)) operations
// Allocate 2 * 'size' local memory, initialize the first half with 'size' zeros
inline __device__ uint scan1Inclusive(uint idata, volatile uint *s_Data, uint size) {
  uint pos = 2 * threadIdx.x - (threadIdx.x & (size - 1));
  s_Data[pos] = 0;
  pos += size;
  s_Data[pos] = idata;

  for (uint offset = 1; offset < size; offset <<= 1) {
    __syncthreads();
    uint t = s_Data[pos] + s_Data[pos - offset];
    __syncthreads();
    s_Data[pos] = t;
  }

  return s_Data[pos];
}

inline __device__ uint scan1Exclusive(uint idata, volatile uint *s_Data, uint size) {
  return scan1Inclusive(idata, s_Data, size) - idata;
}

inline __device__ uint4 scan4Inclusive(uint4 idata4, volatile uint *s_Data, uint size) {
  // Level-0 inclusive scan
  idata4.y += idata4.x;
  idata4.z += idata4.y;
  idata4.w += idata4.z;

  // Level-1 exclusive scan
  uint oval = scan1Exclusive(idata4.w, s_Data, size / 4);

  idata4.x += oval;
  idata4.y += oval;
  idata4.z += oval;
  idata4.w += oval;

  return idata4;
}

__global__ void scanExclusiveShared(uint4 *d_Dst, uint4 *d_Src, uint size) {
  __shared__ uint s_Data[2 * THREADBLOCK_SIZE];

  uint pos = blockIdx.x * blockDim.x + threadIdx.x;

  // Load data
  uint4 idata4 = d_Src[pos];

  // Calculate exclusive scan
  uint4 odata4 = scan4Inclusive(idata4, s_Data, size);
  odata4.x -= idata4.x, odata4.y -= idata4.y, odata4.z -= idata4.z, odata4.w -= idata4.w;

  // Write back
  d_Dst[pos] = odata4;
}

__device__ unsigned int retirementCount = 0;

// The last block to finish adds up what the others found.
template <unsigned int blockSize>
__global__ void reduceSinglePass(const float *g_idata, volatile float *g_odata, unsigned int n) {
  __shared__ float sdata[blockSize];
  __shared__ bool amLast;
  const unsigned int tid = threadIdx.x;
  float mySum = 0;
  for (unsigned int i = blockIdx.x * blockSize + tid; i < n; i += blockSize * gridDim.x) mySum += g_idata[i];
  sdata[tid] = mySum;
  __syncthreads();
  for (int s = blockSize / 2; s; s >>= 1) {
    if (tid < s) sdata[tid] += sdata[tid + s];
    __syncthreads();
  }
  if (tid == 0) {
    g_odata[blockIdx.x] = sdata[0];
    // wait until all outstanding memory instructions in this thread are finished
    __threadfence();
    // Thread 0 takes a ticket
    unsigned int ticket = atomicInc(&retirementCount, gridDim.x);
    // If the ticket ID is equal to the number of blocks, we are the last block!
    amLast = (ticket == gridDim.x - 1);
  }
  __syncthreads();
  // The last block sums the results of all other blocks
  if (amLast) {
    int i = tid;
    float mySum = (float)0;
    while (i < gridDim.x) {
      mySum += g_odata[i];
      i += blockSize;
    }
    sdata[tid] = mySum;
    __syncthreads();
    for (int s = blockSize / 2; s; s >>= 1) {
      if (tid < s) sdata[tid] += sdata[tid + s];
      __syncthreads();
    }
    if (tid == 0) {
      g_odata[0] = sdata[0];
      // reset retirement count so that next run succeeds
      retirementCount = 0;
    }
  }
}

int main() {
  bool good = true;
  const uint n = 1 << 14;
  uchar *bytes;
  uint *partial, *histogram, counts[256] = {0};
  cudaMallocManaged(&bytes, n), cudaMallocManaged(&partial, 4 * 256 * sizeof(uint)), cudaMallocManaged(&histogram, 256 * sizeof(uint));
  for (uint i = 0; i < n; i++) bytes[i] = rand() % 256, counts[bytes[i]]++;
  histogram256Kernel<<<4, HISTOGRAM256_THREADBLOCK_SIZE>>>(partial, (uint *)bytes, n / sizeof(uint));
  mergeHistogram256Kernel<<<HISTOGRAM256_BIN_COUNT, MERGE_THREADBLOCK_SIZE>>>(histogram, partial, 4);
  cudaDeviceSynchronize();
  good = good && !memcmp(histogram, counts, sizeof counts);
  printf("histogram %d\n", good);

  uint *src, *dst, size = 4 * THREADBLOCK_SIZE;
  cudaMallocManaged(&src, n * sizeof(uint)), cudaMallocManaged(&dst, n * sizeof(uint));
  for (uint i = 0; i < n; i++) src[i] = rand() % 100;
  scanExclusiveShared<<<n / size, THREADBLOCK_SIZE>>>((uint4 *)dst, (uint4 *)src, size);
  cudaDeviceSynchronize();
  for (uint i = 0, sum = 0; i < n; i++) {
    if (i % size == 0) sum = 0;
    good = good && dst[i] == sum;
    sum += src[i];
  }
  printf("scan %d\n", good);

  float *x, *out;
  cudaMallocManaged(&x, n * sizeof(float)), cudaMallocManaged(&out, 64 * sizeof(float));
  for (uint i = 0; i < n; i++) x[i] = i % 10;
  double sum = 0;
  for (uint i = 0; i < n; i++) sum += x[i];
  for (int again = 0; again < 2; again++) {
    reduceSinglePass<128><<<64, 128>>>(x, out, n);
    cudaDeviceSynchronize();
    good = good && out[0] == sum;
  }
  printf("%s\n", good ? "PASSED" : "FAILED");
  return !good;
}
