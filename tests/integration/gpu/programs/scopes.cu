// Names that come again in other scopes, heads of loops with commas, groups handed to functions.
#include <stdio.h>
#include <stdlib.h>
#include <vector>
#include <cuda_runtime.h>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// A tile of both matrices for each round; two counters run side by side.
template <int TILE> __global__ void product(float *c, const float *a, const float *b, int width) {
  int column = blockIdx.x * TILE + threadIdx.x, row = blockIdx.y * TILE + threadIdx.y;
  float sum = 0;
  for (int from_a = 0, from_b = 0; from_a < width; from_a += TILE, from_b += TILE * width) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    left[threadIdx.y][threadIdx.x] = a[row * width + from_a + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[from_b + threadIdx.y * width + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < TILE; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
    __syncthreads();
  }
  c[row * width + column] = sum;
}

// A shared array that no function holds.
__shared__ int of_the_file[64];
__global__ void by_the_file(const int *in, int *out) {
  of_the_file[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = of_the_file[63 - threadIdx.x];
}

// The same name three times: per thread, for the block, and inside of a condition.
__global__ void totals(const int *in, int *out, int n) {
  __shared__ int part[64];
  int own = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) own += in[i];
  part[threadIdx.x] = own;
  __syncthreads();
  for (int i = blockDim.x / 2; i > 0; i /= 2) {
    if (threadIdx.x < i) {
      int own = part[threadIdx.x + i];
      part[threadIdx.x] += own;
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    int i = blockIdx.x;
    out[i] = part[0] + own * 0;
  }
}

// A block handed from function to function, under another name each time.
__device__ int scan_in(int *place, int value, cg::thread_block group) {
  unsigned int at = group.thread_rank();
  place[at] = value;
  cg::sync(group);
  for (unsigned int step = 1; step < group.size(); step *= 2) {
    int other = at >= step ? place[at - step] : 0;
    cg::sync(group);
    place[at] += other;
    cg::sync(group);
  }
  return place[at];
}
__device__ int twice(int *place, int value, cg::thread_block cta) {
  int first = scan_in(place, value, cta);
  cg::sync(cta);
  int second = scan_in(place, first, cta);
  return second;
}
__global__ void scans(const int *in, int *out) {
  cg::thread_block block = cg::this_thread_block();
  __shared__ int place[128];
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  int result = twice(place, in[at], block);
  out[at] = result;
}

// Pointers that all threads move on alike.
__global__ void rows(const float *in, float *out, int width) {
  __shared__ float row[256];
  const unsigned int first = blockIdx.x * width;
  in += first;
  out += first;
  row[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row[width - 1 - threadIdx.x];
}

// A grid-stride loop that counts in a type of several words.
__global__ void doubled(const int *in, int *out, unsigned int n) {
  for (unsigned int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i] = 2 * in[i];
  for (unsigned long long i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) out[i]++;
}

// Alignment written before and behind the type.
template <class T> struct Pair { T first, second; };
__global__ void aligned(int *x) {
  extern __shared__ __align__(16) unsigned char raw[];
  __shared__ Pair<int> __align__(32) pairs[64];
  __align__(64) __shared__ char bytes[3];
  __shared__ alignas(16) float four[4];
  int *values = (int *)raw;
  values[threadIdx.x] = x[threadIdx.x];
  if (threadIdx.x == 0) four[0] = ((size_t)pairs % 32 == 0) + ((size_t)bytes % 64 == 0) + ((size_t)four % 16 == 0);
  __syncthreads();
  pairs[threadIdx.x].second = values[blockDim.x - 1 - threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = pairs[threadIdx.x].second + (int)four[0];
}

// Shared arrays that lambdas use by value, and that jumps pass.
__global__ void reversed(const int *in, int *out) {
  __shared__ int kept[64];
  const int t = threadIdx.x;
  auto get = [=](int i) { return kept[i]; };
  auto put = [=](int i, int value) { kept[i] = value; };
  put(t, in[t]);
  __syncthreads();
  out[t] = get(63 - t);
}
__global__ void past(const int *in, int *out, int n) {
  const int t = threadIdx.x;
  if (n < 0) goto end;
  extern __shared__ int every[];
  __shared__ int some[64];
  every[t] = in[t];
  some[t] = t;
  __syncthreads();
  switch (n) {
  case 64:
    __shared__ int more[64];
    more[t] = some[63 - t];
    __syncthreads();
    out[t] = every[63 - t] + more[t] - 63 + t;
    break;
  default:
    out[t] = -1;
  }
end:
  return;
}

int main() {
  bool ok = true;
  const int n = 64;
  float *a, *b, *c;
  int *in, *out;
  cudaMallocManaged(&a, n * n * sizeof(float));
  cudaMallocManaged(&b, n * n * sizeof(float));
  cudaMallocManaged(&c, n * n * sizeof(float));
  cudaMallocManaged(&in, 1024 * sizeof(int));
  cudaMallocManaged(&out, 1024 * sizeof(int));
  for (int i = 0; i < n * n; i++) a[i] = i % 7, b[i] = i % 5;
  for (int i = 0; i < 1024; i++) in[i] = i % 11;

  dim3 blockDim(16, 16), gridDim(n / blockDim.x, n / blockDim.y);
  product<16><<<gridDim, blockDim>>>(c, a, b, n);
  cudaDeviceSynchronize();
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
      ok = ok && sum == c[i * n + j];
    }

  totals<<<3, 64>>>(in, out, 1000);
  cudaDeviceSynchronize();
  int total = 0;
  for (int i = 0; i < 1000; i++) total += in[i];
  for (int i = 0; i < 3; i++) ok = ok && out[i] == total;

  scans<<<4, 128>>>(in, out);
  cudaDeviceSynchronize();
  for (int block = 0; block < 4; block++) {
    int once = 0, again = 0;
    for (int i = 0; i < 128; i++) {
      once += in[block * 128 + i];
      again += once;
      ok = ok && out[block * 128 + i] == again;
    }
  }

  rows<<<n, n>>>(a, c, n);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++) ok = ok && c[i * n + j] == a[i * n + n - 1 - j];

  doubled<<<3, 64>>>(in, out, 1000);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 1000; i++) ok = ok && out[i] == 2 * in[i] + 1;

  for (int i = 0; i < 64; i++) in[i] = i;
  aligned<<<1, 64, 64 * sizeof(int)>>>(in);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 64; i++) ok = ok && in[i] == 63 - i + 3;

  for (int round = 0; round < 3; round++) {
    cudaMemset(out, 0, 64 * sizeof(int));
    for (int i = 0; i < 64; i++) in[i] = i * i;
    if (round == 2) by_the_file<<<1, 64>>>(in, out);
    else if (round) past<<<1, 64, 64 * sizeof(int)>>>(in, out, 64);
    else reversed<<<2, 64>>>(in, out);
    ok = ok && cudaDeviceSynchronize() == cudaSuccess;
    for (int i = 0; i < 64; i++) ok = ok && out[i] == (63 - i) * (63 - i);
  }

  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
