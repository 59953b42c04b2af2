// cuda::std, atomic objects and function objects of libcu++, each beside what the host computes.
#include <cuda/atomic>
#include <cuda/functional>
#include <cuda/std/array>
#include <cuda/std/complex>
#include <cuda/std/limits>
#include <cuda/std/tuple>
#include <cub/cub.cuh>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <cstdio>
#include <vector>

template <class T> using Device = cuda::atomic_ref<T, cuda::thread_scope_device>;

__global__ void count(const int *x, int n, unsigned *bins) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) Device<unsigned>(bins[x[i] % 16]).fetch_add(1, cuda::memory_order_relaxed);
}

// The last block that arrives adds up what all have written; objects live in memory of zeros.
__global__ void sum_of_blocks(const int *x, int n, long *parts, cuda::atomic<unsigned, cuda::thread_scope_device> *arrived, long *total) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> sum;
  __shared__ bool is_last;
  if (threadIdx.x == 0) sum.store(0, cuda::std::memory_order_relaxed);
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum += x[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
    is_last = arrived->fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0)
    for (unsigned b = 0; b < gridDim.x; b++) *total += parts[b];
}

// A lock around a plain number, and the largest and smallest by two kinds of operations.
__global__ void guarded(int *lock, long *plain, float *most, int *least, double *all, unsigned long long *bits) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  Device<int> held(*lock);
  while (held.exchange(1, cuda::memory_order_acquire)) {}
  *plain += i;
  held.store(0, cuda::memory_order_release);
  Device<float> largest(*most);
  const float mine = float((i * 37) % 101);
  for (float seen = largest.load(); seen < mine && !largest.compare_exchange_weak(seen, mine);) {}
  Device<int>(*least).fetch_min(500 - i);
  Device<double>(*all).fetch_add(0.5);
  Device<unsigned long long>(*bits) |= 1ull << (i % 40);
}

struct Pair {
  cuda::std::tuple<int, float> both;
  cuda::std::array<int, 3> three;
};
__global__ void values(Pair *to, cuda::std::complex<float> *turned) {
  const int i = threadIdx.x;
  cuda::std::get<0>(to[i].both) = cuda::std::numeric_limits<short>::max() - i;
  cuda::std::get<1>(to[i].both) = cuda::std::max(0.5f, float(i));
  to[i].three = {i, i + 1, i + 2};
  turned[i] = cuda::std::complex<float>(0, 1) * cuda::std::complex<float>(float(i), 2);
}
__global__ void largest_of_blocks(const int *x, int *out) {
  typedef cub::BlockReduce<int, 64> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  const int found = Reduce(storage).Reduce(x[blockIdx.x * 64 + threadIdx.x], cuda::maximum<>{});
  if (threadIdx.x == 0) out[blockIdx.x] = found;
}

template <class T> T *zeros(int n) {
  T *at;
  cudaMallocManaged(&at, n * sizeof(T));
  cudaMemset(at, 0, n * sizeof(T));
  return at;
}
#define CHECK(condition)                                                                         \
  if (!(condition)) return printf("line %d: %s\n", __LINE__, #condition), 1

int main() {
  const int n = 1000, blocks = 16;
  int *x = zeros<int>(1024);
  std::vector<unsigned> bins(16);
  long wanted = 0;
  for (int i = 0; i < n; i++) x[i] = i * 7919 % 1009, bins[x[i] % 16]++, wanted += x[i];

  unsigned *counted = zeros<unsigned>(16);
  count<<<blocks, 64>>>(x, n, counted);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < 16; i++) CHECK(counted[i] == bins[i]);

  static_assert(sizeof(cuda::atomic<unsigned, cuda::thread_scope_device>) == 4, "");
  auto *arrived = zeros<cuda::atomic<unsigned, cuda::thread_scope_device>>(1);
  long *parts = zeros<long>(blocks), *total = zeros<long>(1);
  sum_of_blocks<<<blocks, 64>>>(x, n, parts, arrived, total);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(*total == wanted && *arrived == unsigned(blocks));

  int *lock = zeros<int>(1), *least = zeros<int>(1);
  long *plain = zeros<long>(1);
  float *most = zeros<float>(1);
  double *all = zeros<double>(1);
  unsigned long long *bits = zeros<unsigned long long>(1);
  *least = 1000;
  guarded<<<4, 64>>>(lock, plain, most, least, all, bits);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(*plain == 255 * 256 / 2 && *most == 100 && *least == 245 && *all == 128 && *bits == (1ull << 40) - 1 && *lock == 0);

  Pair *pairs = zeros<Pair>(8);
  auto *turned = zeros<cuda::std::complex<float>>(8);
  values<<<1, 8>>>(pairs, turned);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < 8; i++) {
    CHECK(std::get<0>(pairs[i].both) == 32767 - i && std::get<1>(pairs[i].both) == (i ? float(i) : 0.5f));
    CHECK(pairs[i].three[2] == i + 2 && turned[i].real() == -2 && turned[i].imag() == float(i));
  }

  int *largest = zeros<int>(blocks);
  largest_of_blocks<<<blocks, 64>>>(x, largest);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  for (int b = 0; b < blocks; b++) {
    int found = 0;
    for (int i = b * 64; i < (b + 1) * 64; i++) found = x[i] > found ? x[i] : found;
    CHECK(largest[b] == found);
  }
  thrust::device_vector<int> copy(x, x + n);
  CHECK(thrust::reduce(copy.begin(), copy.end(), 5000, cuda::minimum<int>()) == 0);
  auto doubled = cuda::proclaim_return_type<long>([](int value) { return value * 2; });
  CHECK((std::is_same_v<decltype(doubled(3)), long>) && doubled(3) == 6 && cuda::ceil_div(7, 3) == 3);
  cuda::atomic<long> counter(5);
  CHECK(counter++ == 5 && --counter == 5 && counter.fetch_max(9) == 5 && counter.load() == 9);
  long expected = 8;
  CHECK(!counter.compare_exchange_strong(expected, 1) && expected == 9 && counter.compare_exchange_strong(expected, 1) && counter == 1);
  printf("PASSED\n");
}
