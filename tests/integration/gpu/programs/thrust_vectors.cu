// Thrust's vectors, iterators and algorithms against the standard library, and beside kernels.
#include <thrust/device_ptr.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/random.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/tuple.h>
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <vector>

static bool good = true;
static void same(bool ok, const char *what) {
  if (!ok) printf("%s differs\n", what);
  good &= ok;
}
struct Square : thrust::unary_function<float, float> {
  __host__ __device__ float operator()(float x) const { return x * x; }
};
struct Add {
  template <class Tuple> __host__ __device__ void operator()(Tuple t) {
    thrust::get<2>(t) = thrust::get<0>(t) + 2 * thrust::get<1>(t);
  }
};
struct Nearest {
  typedef thrust::tuple<int, float> Pair;
  __host__ __device__ Pair operator()(const Pair &a, const Pair &b) const {
    return thrust::get<1>(b) < thrust::get<1>(a) ? b : a;
  }
};
__global__ void doubled(int *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 2;
}
__global__ void sorted_parts(int *x, int n) {
  int first = 10 * (blockIdx.x * blockDim.x + threadIdx.x);
  if (first + 10 <= n) thrust::sort(thrust::seq, x + first, x + first + 10);
}

int main() {
  using namespace thrust::placeholders;
  const int n = 1000;
  thrust::host_vector<int> h(n);
  unsigned state = 11;
  for (int i = 0; i < n; i++) h[i] = (state = state * 1664525u + 1013904223u) >> 23;
  const std::vector<int> plain(h.begin(), h.end());

  thrust::device_vector<int> d = h, keys(h.begin(), h.end()), order(n);
  doubled<<<8, 128>>>(thrust::raw_pointer_cast(d.data()), n);
  cudaDeviceSynchronize();
  for (int i = 0; i < n; i++) same(d[i] == 2 * plain[i], "a kernel");
  sorted_parts<<<1, 100>>>(thrust::raw_pointer_cast(&d[0]), n);
  cudaDeviceSynchronize();
  for (int i = 0; i < n; i += 10) same(std::is_sorted(d.begin() + i, d.begin() + i + 10), "sorting in a kernel");
  d = h;
  thrust::sort(d.begin(), d.end());
  std::vector<int> sorted = plain;
  std::sort(sorted.begin(), sorted.end());
  same(d == sorted, "sort");
  thrust::sequence(order.begin(), order.end());
  thrust::stable_sort_by_key(thrust::device, keys.begin(), keys.end(), order.begin(), thrust::greater<int>());
  std::vector<int> places(n);
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](int a, int b) { return plain[a] > plain[b]; });
  same(order == places, "stable_sort_by_key");

  same(thrust::reduce(d.begin(), d.end()) == std::accumulate(plain.begin(), plain.end(), 0), "reduce");
  same(thrust::reduce(d.begin(), d.end(), 0, thrust::maximum<int>()) == sorted.back(), "a maximum");
  thrust::device_vector<float> f(n), g(n, 1.0f), out(n);
  thrust::transform(h.begin(), h.end(), f.begin(), _1 / 4.0f);
  float length = thrust::transform_reduce(f.begin(), f.end(), Square(), 0.0f, thrust::plus<float>());
  float wanted = 0;
  for (int i = 0; i < n; i++) wanted += (plain[i] / 4.0f) * (plain[i] / 4.0f);
  same(std::abs(length - wanted) <= 1e-5f * wanted, "transform_reduce");
  thrust::for_each(thrust::make_zip_iterator(thrust::make_tuple(f.begin(), g.begin(), out.begin())),
                   thrust::make_zip_iterator(thrust::make_tuple(f.end(), g.end(), out.end())), Add());
  for (int i = 0; i < n; i++) same(out[i] == plain[i] / 4.0f + 2, "for_each of tuples");
  auto all = thrust::make_zip_iterator(thrust::make_tuple(thrust::counting_iterator<int>(0), f.begin()));
  auto nearest = thrust::reduce(all, all + n, thrust::make_tuple(-1, 1e9f), Nearest());
  same(thrust::get<0>(nearest) == std::min_element(plain.begin(), plain.end()) - plain.begin(), "a minimum of tuples");

  thrust::device_vector<int> scan(n);
  thrust::exclusive_scan(h.begin(), h.end(), scan.begin(), 7);
  for (int i = 0, before = 7; i < n; before += plain[i++]) same(scan[i] == before, "exclusive_scan");
  thrust::inclusive_scan(thrust::cuda::par.on(0), scan.begin(), scan.end(), scan.begin(), thrust::maximum<int>());
  same(std::is_sorted(scan.begin(), scan.end()), "inclusive_scan in place");

  thrust::device_vector<int> unique(n), counts(n);
  auto ends = thrust::reduce_by_key(d.begin(), d.end(), thrust::constant_iterator<int>(1), unique.begin(), counts.begin());
  const int distinct = ends.first - unique.begin();
  for (int i = 0; i < distinct; i++) same(counts[i] == std::count(plain.begin(), plain.end(), unique[i]), "reduce_by_key");
  thrust::device_vector<int> without = d;
  without.erase(thrust::unique(without.begin(), without.end()), without.end());
  same(int(without.size()) == distinct && std::equal(without.begin(), without.end(), unique.begin()), "unique");
  thrust::device_vector<int> found(n);
  auto last = thrust::copy_if(h.begin(), h.end(), found.begin(), _1 % 3 == 0);
  same(last - found.begin() == std::count_if(plain.begin(), plain.end(), [](int x) { return x % 3 == 0; }), "copy_if");
  last = thrust::remove_if(d.begin(), d.end(), [] __host__ __device__(int x) { return x > 100; });
  same(last - d.begin() == std::upper_bound(sorted.begin(), sorted.end(), 100) - sorted.begin(), "remove_if");

  thrust::device_vector<int> map(n), gathered(n), at(3), queries(3);
  thrust::sequence(map.begin(), map.end(), n - 1, -1);
  thrust::gather(map.begin(), map.end(), h.begin(), gathered.begin());
  same(std::equal(plain.rbegin(), plain.rend(), gathered.begin()), "gather");
  thrust::scatter(h.begin(), h.end(), map.begin(), gathered.begin());
  same(std::equal(plain.rbegin(), plain.rend(), gathered.begin()), "scatter");
  queries[0] = -1, queries[1] = sorted[500], queries[2] = 10000;
  thrust::lower_bound(sorted.begin(), sorted.end(), queries.begin(), queries.end(), at.begin());
  same(at[0] == 0 && at[2] == n && at[1] == std::lower_bound(sorted.begin(), sorted.end(), sorted[500]) - sorted.begin(),
       "lower_bound");
  thrust::device_ptr<int> raw = thrust::device_malloc<int>(n);
  thrust::fill(raw, raw + n, 5);
  raw[3] = 9;
  same(thrust::count(raw, raw + n, 5) == n - 1 && thrust::max_element(raw, raw + n) - raw == 3, "a device_ptr");
  thrust::device_free(raw);
  std::vector<int> back(n);
  thrust::copy(keys.begin(), keys.end(), back.begin());
  same(std::is_sorted(back.rbegin(), back.rend()), "copy");
  keys.resize(2000, -4);
  keys.push_back(8);
  same(keys.size() == 2001 && keys[1500] == -4 && keys.back() == 8 && keys[0] == back[0], "a vector that grows");
  thrust::default_random_engine engine(5);
  thrust::uniform_real_distribution<float> uniform(2, 3);
  double mean = 0;
  for (int i = 0; i < 10000; i++) {
    float x = uniform(engine);
    same(x >= 2 && x <= 3, "a random number");
    mean += x / 10000;
  }
  same(std::abs(mean - 2.5) < 0.02, "the mean of random numbers");
  puts(good ? "PASSED" : "FAILED");
  return !good;
}
