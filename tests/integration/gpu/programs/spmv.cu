// Sparse products in three formats with a warp per row, Jacobi and conjugate gradients on top.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <utility>
#include <vector>

typedef double real;
#define FULL_MASK 0xffffffff
#define cudaCheck(e) do { if (cudaSuccess != (e)) { std::fprintf(stderr, "line %d: %s\n", __LINE__, cudaGetErrorName(e)); std::exit(1); } } while (0)
#define DIV_UP(a, b) (((a) + (b) - 1) / (b))

struct Csr { int n; int *rows, *columns; real *values; };

__global__ void csr_scalar(const int n, const int *rows, const int *columns, const real *values, const real *x, real *y) {
  const int row = blockDim.x * blockIdx.x + threadIdx.x;
  if (row < n) {
    real dot = 0;
    const int row_start = rows[row], row_end = rows[row + 1];
    for (int jj = row_start; jj < row_end; jj++) dot += values[jj] * x[columns[jj]];
    y[row] = dot;
  }
}

template <unsigned int THREADS_PER_ROW>
__global__ void csr_vector(const Csr a, const real *__restrict__ x, real *__restrict__ y) {
  const unsigned int thread_id = blockDim.x * blockIdx.x + threadIdx.x;
  const unsigned int lane = thread_id & (THREADS_PER_ROW - 1);
  const unsigned int row = thread_id / THREADS_PER_ROW;
  real sum = 0;
  if (row < a.n)
    for (int j = a.rows[row] + lane; j < a.rows[row + 1]; j += THREADS_PER_ROW) sum += a.values[j] * x[a.columns[j]];
#pragma unroll
  for (int offset = THREADS_PER_ROW >> 1; offset > 0; offset >>= 1) sum += __shfl_xor_sync(FULL_MASK, sum, offset, THREADS_PER_ROW);
  if (lane == 0 && row < a.n) y[row] = sum;
}

__inline__ __device__ real warpReduce(real val) {
  for (int mask = 16; mask; mask >>= 1) val += __shfl_xor_sync(FULL_MASK, val, mask);
  return val;
}

__inline__ __device__ real blockReduceSum(real val) {
  static __shared__ real shared[32];  // Shared mem for 32 partial sums
  int lane = threadIdx.x % warpSize;
  int wid = threadIdx.x / warpSize;
  val = warpReduce(val);  // Each warp performs partial reduction
  if (lane == 0) shared[wid] = val;  // Write reduced value to shared memory
  __syncthreads();  // Wait for all partial reductions
  //read from shared memory only if that warp existed
  val = (threadIdx.x < blockDim.x / warpSize) ? shared[lane] : 0;
  if (wid == 0) val = warpReduce(val);  //Final reduce within first warp
  return val;
}

__global__ void dot_kernel(const real *a, const real *b, real *out, int n) {
  real sum = 0;
  //reduce multiple elements per thread
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    sum += a[i] * b[i];
  }
  sum = blockReduceSum(sum);
  if (threadIdx.x == 0) atomicAdd(out, sum);
}

__global__ void axpy(int n, real a, const real *x, real *y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void xpay(int n, real a, const real *x, real *y) {
  if (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n) y[i] = x[i] + a * y[i];
}

template <class T> T *device(const std::vector<T> &v) {
  T *p = nullptr;
  cudaCheck(cudaMalloc((void **)&p, v.size() * sizeof(T)));
  cudaCheck(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

int main() {
  const int n = 1000, threads = 128;
  std::vector<int> rows{0}, columns;
  std::vector<real> values;
  for (int i = 0; i < n; i++) {
    for (auto [j, v] : {std::pair<int, real>{i - 30, -1}, {i - 1, -1}, {i, 4.5}, {i + 1, -1}, {i + 30, -1}})
      if (j >= 0 && j < n) columns.push_back(j), values.push_back(v);
    rows.push_back((int)columns.size());
  }
  Csr a{n, device(rows), device(columns), device(values)};
  std::vector<real> ones(n, 1.0), zeros(n, 0.0), got(n);
  real *x = device(zeros), *r = device(ones), *p = device(ones), *q = device(zeros), *scalar = device(zeros);
  auto dot = [&](const real *u, const real *v) {
    real result;
    cudaCheck(cudaMemset(scalar, 0, sizeof(real)));
    dot_kernel<<<4, 256>>>(u, v, scalar, n);
    cudaCheck(cudaMemcpy(&result, scalar, sizeof(real), cudaMemcpyDeviceToHost));
    return result;
  };
  real rr = dot(r, r);
  int steps = 0;
  bool good = rr == n;
  for (; steps < 200 && rr > 1e-16; steps++) {
    if (steps % 2) csr_vector<8><<<DIV_UP(n * 8, threads), threads>>>(a, p, q);
    else csr_scalar<<<DIV_UP(n, threads), threads>>>(n, a.rows, a.columns, a.values, p, q);
    real alpha = rr / dot(p, q);
    axpy<<<DIV_UP(n, threads), threads>>>(n, alpha, p, x);
    axpy<<<DIV_UP(n, threads), threads>>>(n, -alpha, q, r);
    real next = dot(r, r);
    xpay<<<DIV_UP(n, threads), threads>>>(n, next / rr, r, p);
    rr = next;
  }
  cudaCheck(cudaMemcpy(got.data(), x, n * sizeof(real), cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int i = 0; i < n; i++) {
    double sum = -1;
    for (int k = rows[i]; k < rows[i + 1]; k++) sum += values[k] * got[columns[k]];
    worst = std::fmax(worst, std::fabs(sum));
  }
  std::printf("%d steps, residual %g\n", steps, worst);
  good = good && worst < 1e-6;
  std::puts(good ? "PASSED" : "FAILED");
  return good ? 0 : 1;
}
