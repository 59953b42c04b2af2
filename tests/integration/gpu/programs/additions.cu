// Atomic operations of every kind that the patch may make less of: shared, added only, read again.
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime.h>

struct Cell { int count; float weight; };

// Nothing but additions: to few places, to the whole memory, to a row each, in three types.
__global__ void scatter(const int *x, int *few, unsigned long long *many, double *rows, int n, int places) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&few[x[i] % 7], 1);
  atomicAdd(many + (x[i] * 31ull + i * 977ull) % places, 2ull);
  for (int j = 0; j < 20; j++) atomicAdd(&rows[(x[i] % 5) * 20 + j], 0.5 * j);
}

// The old value is used, or the array is read again, or a part of a structure is added to.
__global__ void tickets(int *next, int *taken, int *last, Cell *cells, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int own = atomicAdd(next, 1);
    taken[own] = 1;
    atomicAdd(&last[i % 3], 1);
    if (last[i % 3] <= 0) last[0] = -1000000;
    atomicAdd(&cells[i % 9].count, 1);
    atomicAdd(&cells[i % 9].weight, 0.25f);
  }
}

// One array under two names: what a thread has added is there when it reads it.
__global__ void twice(int *sums, volatile const int *same, int *seen, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&sums[i], 3);
  seen[i] = same[i];
}

// Shared memory: all operations, static and dynamic, by subscript and by sum.
__global__ void shared(const int *x, int *out, int n) {
  __shared__ int bins[16];
  __shared__ unsigned most, least, flags, ring;
  extern __shared__ float weights[];
  if (threadIdx.x < 16) bins[threadIdx.x] = 0, weights[threadIdx.x] = 0;
  if (threadIdx.x == 0) most = 0, least = 1000, flags = 0, ring = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    atomicAdd(&bins[x[i] % 16], 1);
    atomicAdd(weights + x[i] % 16, 0.5f);
    atomicMax(&most, x[i]);
    atomicMin(&least, x[i]);
    atomicOr(&flags, 1u << x[i] % 16);
    atomicInc(&ring, 9);
  }
  __syncthreads();
  if (threadIdx.x < 16) {
    atomicAdd(&out[threadIdx.x], bins[threadIdx.x]);
    atomicAdd(&out[16 + threadIdx.x], (int)(2 * weights[threadIdx.x]));
  }
  if (threadIdx.x == 0) {
    atomicAdd(&out[32], (int)most);
    atomicAdd(&out[33], (int)least);
    atomicAdd(&out[34], (int)flags);
    atomicAdd(&out[35], (int)ring);
  }
}

int main() {
  const int n = 20000, places = 1 << 16;
  int *x, *few, *out, *next, *taken, *last;
  unsigned long long *many;
  double *rows;
  Cell *cells;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&few, 7 * sizeof(int));
  cudaMallocManaged(&many, places * sizeof *many);
  cudaMallocManaged(&rows, 100 * sizeof(double));
  cudaMallocManaged(&out, 36 * sizeof(int));
  cudaMallocManaged(&next, sizeof(int));
  cudaMallocManaged(&taken, n * sizeof(int));
  cudaMallocManaged(&last, 3 * sizeof(int));
  cudaMallocManaged(&cells, 9 * sizeof(Cell));
  for (int i = 0; i < n; i++) x[i] = rand() % 500 + 1, taken[i] = 0;
  cudaMemset(few, 0, 7 * sizeof(int));
  cudaMemset(many, 0, places * sizeof *many);
  cudaMemset(rows, 0, 100 * sizeof(double));
  cudaMemset(out, 0, 36 * sizeof(int));
  cudaMemset(next, 0, sizeof(int));
  cudaMemset(last, 0, 3 * sizeof(int));
  cudaMemset(cells, 0, 9 * sizeof(Cell));

  scatter<<<(n + 127) / 128, 128>>>(x, few, many, rows, n, places);
  tickets<<<(n + 127) / 128, 128>>>(next, taken, last, cells, n);
  shared<<<3, 64, 16 * sizeof(float)>>>(x, out, n);
  bool ok = cudaDeviceSynchronize() == cudaSuccess;
  int *sums, *seen;
  cudaMallocManaged(&sums, n * sizeof(int));
  cudaMallocManaged(&seen, n * sizeof(int));
  cudaMemset(sums, 0, n * sizeof(int));
  twice<<<(n + 127) / 128, 128>>>(sums, sums, seen, n);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < n; i++) ok = ok && seen[i] == 3 && sums[i] == 3;

  int counts[7] = {}, fives[5] = {}, bins[16] = {}, most = 0, least = 1000, flags = 0;
  unsigned long long *wanted = (unsigned long long *)calloc(places, sizeof *wanted);
  for (int i = 0; i < n; i++) {
    counts[x[i] % 7]++, fives[x[i] % 5]++, bins[x[i] % 16]++;
    wanted[(x[i] * 31ull + i * 977ull) % places] += 2;
    most = x[i] > most ? x[i] : most, least = x[i] < least ? x[i] : least, flags |= 1 << x[i] % 16;
  }
  for (int i = 0; i < 7; i++) ok = ok && few[i] == counts[i];
  for (int i = 0; i < places; i++) ok = ok && many[i] == wanted[i];
  for (int i = 0; i < 100; i++) ok = ok && rows[i] == fives[i / 20] * 0.5 * (i % 20);
  for (int i = 0; i < n; i++) ok = ok && taken[i] == 1;
  for (int i = 0; i < 9; i++) {
    int count = n / 9 + (i < n % 9);
    ok = ok && cells[i].count == count && cells[i].weight == 0.25f * count;
  }
  ok = ok && *next == n && last[0] + last[1] + last[2] == n;
  for (int i = 0; i < 16; i++) ok = ok && out[i] == 3 * bins[i] && out[16 + i] == 3 * bins[i];
  ok = ok && out[32] == 3 * most && out[33] == 3 * least && out[34] == 3 * flags && out[35] == 3 * (n % 10);
  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
