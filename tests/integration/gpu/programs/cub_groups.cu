// CUB's operations of warps and blocks against plain loops.
#include <cub/block/block_radix_sort.cuh>
#include <cub/cub.cuh>
#include <algorithm>
#include <cstdio>
#include <vector>

struct Product {
  __host__ __device__ long long operator()(long long a, long long b) const { return a * b % 1000003; }
};
// CUDA 13's CUB has no Max, Min and Sum of its own.
struct Greater { __host__ __device__ int operator()(int a, int b) const { return a < b ? b : a; } };
struct Less { __host__ __device__ int operator()(int a, int b) const { return b < a ? b : a; } };
struct Plus { template <class T> __host__ __device__ T operator()(const T &a, const T &b) const { return a + b; } };
struct Running { // what comes before the next tile
  long long total;
  __device__ Running(long long start) : total(start) {}
  __device__ long long operator()(long long tile) {
    long long before = total;
    total += tile;
    return before;
  }
};
struct Wide { // more than eight bytes, with a constructor
  double a, b, c;
  __host__ __device__ Wide() : a(0), b(0), c(0) {}
  __host__ __device__ Wide(double x) : a(x), b(2 * x), c(-x) {}
  __host__ __device__ Wide operator+(const Wide &o) const {
    Wide w;
    w.a = a + o.a, w.b = b + o.b, w.c = c + o.c;
    return w;
  }
};

template <int THREADS> __global__ void reductions(const int *in, long long *sums, int *greatest, double *wide, int n) {
  typedef cub::BlockReduce<long long, THREADS> Reduce;
  typedef cub::BlockReduce<int, THREADS, cub::BLOCK_REDUCE_RAKING> Most;
  typedef cub::BlockReduce<Wide, THREADS> Wides;
  __shared__ union {
    typename Reduce::TempStorage sum;
    typename Most::TempStorage most;
  } room;
  __shared__ typename Wides::TempStorage wides;
  int i = blockIdx.x * THREADS + threadIdx.x;
  long long value = i < n ? in[i] : 0;
  long long sum = Reduce(room.sum).Sum(value);
  __syncthreads();
  int most = Most(room.most).Reduce(int(value), Greater(), min(THREADS, n - int(blockIdx.x) * THREADS));
  Wide total = Wides(wides).Reduce(Wide(value), Plus());
  if (threadIdx.x == 0) sums[blockIdx.x] = sum, greatest[blockIdx.x] = most, wide[blockIdx.x] = total.a + total.b + total.c;
}

template <int THREADS, int ITEMS> __global__ void tiles(const int *in, int *out, long long *scan, int *sorted, int n) {
  typedef cub::BlockLoad<int, THREADS, ITEMS, cub::BLOCK_LOAD_TRANSPOSE> Load;
  typedef cub::BlockStore<int, THREADS, ITEMS, cub::BLOCK_STORE_WARP_TRANSPOSE> Store;
  typedef cub::BlockScan<long long, THREADS, cub::BLOCK_SCAN_WARP_SCANS> Scan;
  typedef cub::BlockRadixSort<int, THREADS, ITEMS, int> Sort;
  typedef cub::BlockExchange<int, THREADS, ITEMS> Exchange;
  __shared__ typename Load::TempStorage load;
  __shared__ typename Store::TempStorage store;
  __shared__ typename Scan::TempStorage room;
  __shared__ typename Sort::TempStorage sort;
  __shared__ typename Exchange::TempStorage exchange;
  Running running(5);
  const int tile = THREADS * ITEMS;
  for (int first = 0; first < n; first += tile) {
    int items[ITEMS], places[ITEMS];
    long long wide[ITEMS];
    const int valid = min(tile, n - first);
    Load(load).Load(in + first, items, valid, 1 << 30);
    for (int i = 0; i < ITEMS; i++) wide[i] = threadIdx.x * ITEMS + i < valid ? items[i] : 0, places[i] = threadIdx.x * ITEMS + i;
    Scan(room).ExclusiveSum(wide, wide, running);
    for (int i = 0; i < ITEMS; i++)
      if (threadIdx.x * ITEMS + i < valid) scan[first + threadIdx.x * ITEMS + i] = wide[i];
    __syncthreads();
    Sort(sort).SortBlockedToStriped(items, places, 0, 31);
    Exchange(exchange).StripedToBlocked(places);
    __syncthreads();
    cub::StoreDirectStriped<THREADS>(threadIdx.x, sorted + first, items, valid);
    Store(store).Store(out + first, places, valid);
    __syncthreads();
  }
}

__global__ void warps(const int *in, int *sums, int *scans, int *parts, long long *products, int n) {
  typedef cub::WarpReduce<int> Reduce;
  typedef cub::WarpReduce<int, 8> Eight;
  typedef cub::WarpScan<int> Scan;
  __shared__ Reduce::TempStorage reduce[4];
  __shared__ Eight::TempStorage eight[16];
  __shared__ Scan::TempStorage scan[4];
  typedef cub::BlockScan<long long, 128> Whole;
  __shared__ Whole::TempStorage whole;
  const int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
  const int value = in[i];
  int sum = Reduce(reduce[warp]).Sum(value);
  if (threadIdx.x % 32 == 0) sums[i / 32] = sum;
  int before, total;
  Scan(scan[warp]).ExclusiveSum(value, before, total);
  scans[i] = before + 1000 * total;
  int part = Eight(eight[threadIdx.x / 8]).Reduce(value, Less());
  if (threadIdx.x % 8 == 0) parts[i / 8] = part;
  long long product, all;
  Whole(whole).InclusiveScan((long long)value, product, Product(), all);
  products[i] = product + (threadIdx.x == 0 ? 2000006 * all : 0);
}

// What each item differs from its neighbours by: whole tiles, with an item before or behind, and a tile that is not full.
struct Less5 { __host__ __device__ int operator()(const int &a, const int &b) const { return 5 * a - b; } };
__global__ void differences(const int *in, int *out, int valid) {
  typedef cub::BlockAdjacentDifference<int, 64> Difference;
  __shared__ Difference::TempStorage room;
  const int first = threadIdx.x * 3;
  int items[3], made[3];
  for (int i = 0; i < 3; i++) items[i] = made[i] = in[first + i];
  Difference(room).SubtractLeft(made, made, Less5());
  for (int i = 0; i < 3; i++) out[first + i] = made[i];
  __syncthreads();
  Difference(room).SubtractLeft(items, made, Less5(), 77);
  for (int i = 0; i < 3; i++) out[192 + first + i] = made[i];
  __syncthreads();
  Difference(room).SubtractRight(items, made, Less5());
  for (int i = 0; i < 3; i++) out[384 + first + i] = made[i];
  __syncthreads();
  Difference(room).SubtractRight(items, made, Less5(), 77);
  for (int i = 0; i < 3; i++) out[576 + first + i] = made[i];
  __syncthreads();
  Difference(room).SubtractLeftPartialTile(items, made, Less5(), valid);
  for (int i = 0; i < 3; i++) out[768 + first + i] = made[i];
  __syncthreads();
  Difference(room).SubtractRightPartialTile(items, made, Less5(), valid);
  for (int i = 0; i < 3; i++) out[960 + first + i] = made[i];
}

static bool same(bool ok, const char *what) {
  if (!ok) printf("%s differs\n", what);
  return ok;
}
int main() {
  const int n = 1000, threads = 128, blocks = (n + threads - 1) / threads;
  int *in, *most, *out, *sorted, *sums, *scans, *parts;
  long long *totals, *scan, *products;
  double *wide;
  cudaMallocManaged(&in, 1024 * 4), cudaMallocManaged(&most, blocks * 4), cudaMallocManaged(&out, n * 4);
  cudaMallocManaged(&sorted, n * 4), cudaMallocManaged(&totals, blocks * 8), cudaMallocManaged(&scan, n * 8);
  cudaMallocManaged(&sums, 32 * 4), cudaMallocManaged(&scans, 1024 * 4), cudaMallocManaged(&parts, 128 * 4);
  cudaMallocManaged(&products, 1024 * 8), cudaMallocManaged(&wide, blocks * 8);
  unsigned state = 7;
  for (int i = 0; i < 1024; i++) in[i] = (state = state * 1664525u + 1013904223u) >> 20;
  bool ok = true;
  reductions<threads><<<blocks, threads>>>(in, totals, most, wide, n);
  tiles<64, 3><<<1, 64>>>(in, out, scan, sorted, n);
  warps<<<8, 128>>>(in, sums, scans, parts, products, 1024);
  ok = same(cudaDeviceSynchronize() == cudaSuccess, "the state of the device");
  for (int b = 0; b < blocks; b++) {
    const int first = b * threads, last = std::min(n, first + threads);
    long long sum = 0;
    for (int i = first; i < last; i++) sum += in[i];
    ok &= same(totals[b] == sum && wide[b] == 2.0 * sum, "a sum");
    ok &= same(most[b] == *std::max_element(in + first, in + last), "a maximum");
  }
  long long before = 5;
  for (int i = 0; i < n; i++) {
    ok &= same(scan[i] == before, "a scan with a prefix");
    before += in[i];
  }
  for (int first = 0; first < n; first += 192) {
    const int last = std::min(n, first + 192);
    std::vector<int> order;
    for (int i = first; i < last; i++) order.push_back(i - first);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return in[first + a] < in[first + b]; });
    for (int i = first; i < last; i++)
      ok &= same(out[i] == order[i - first] && sorted[i] == in[first + order[i - first]], "an order");
  }
  for (int w = 0; w < 32; w++) {
    int sum = 0, total = 0;
    for (int i = 0; i < 32; i++) total += in[32 * w + i];
    for (int i = 0; i < 32; i++) {
      ok &= same(scans[32 * w + i] == sum + 1000 * total, "a scan of a warp");
      sum += in[32 * w + i];
    }
    ok &= same(sums[w] == total, "a sum of a warp");
  }
  for (int p = 0; p < 128; p++) ok &= same(parts[p] == *std::min_element(in + 8 * p, in + 8 * p + 8), "a part of a warp");
  for (int b = 0; b < 8; b++) {
    long long product = in[128 * b], first = product;
    for (int i = 0; i < 128; i++) {
      if (i) product = Product()(product, in[128 * b + i]);
      if (i) ok &= same(products[128 * b + i] == product, "a scan of products");
    }
    ok &= same(products[128 * b] == first + 2000006 * product, "a product");
  }
  int *differ;
  cudaMallocManaged(&differ, 6 * 192 * 4);
  const int valid = 100;
  differences<<<1, 64>>>(in, differ, valid);
  ok &= same(cudaDeviceSynchronize() == cudaSuccess, "the state after differences");
  for (int i = 0; i < 192; i++) {
    const int left = i ? 5 * in[i] - in[i - 1] : in[i], right = i < 191 ? 5 * in[i] - in[i + 1] : in[i];
    ok &= same(differ[i] == left && differ[384 + i] == right, "a difference");
    ok &= same(differ[192 + i] == (i ? left : 5 * in[0] - 77), "a difference from what is before");
    ok &= same(differ[576 + i] == (i < 191 ? right : 5 * in[191] - 77), "a difference from what is behind");
    ok &= same(differ[768 + i] == (i < valid ? left : in[i]), "a difference of a part from the left");
    ok &= same(differ[960 + i] == (i + 1 < valid ? right : in[i]), "a difference of a part from the right");
  }
  puts(ok ? "PASSED" : "FAILED");
  return !ok;
}
