// CUB's operations of the whole device against plain loops.
#include <cub/cub.cuh>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

struct Even {
  __host__ __device__ bool operator()(int x) const { return x % 2 == 0; }
};
struct Half {
  __host__ __device__ float operator()(int x) const { return 0.5f * x; }
};
static bool good = true;
// Whether bits of numbers in order, as CUB turns them, are in order too, and are turned back.
template <class T> bool ordered(std::initializer_list<T> numbers) {
  typedef typename cub::Traits<T>::UnsignedBits Bits;
  Bits before = 0;
  bool ok = cub::Traits<T>::PRIMITIVE && !cub::Traits<Half>::PRIMITIVE;
  for (T number : numbers) {
    Bits bits;
    memcpy(&bits, &number, sizeof bits);
    const Bits turned = cub::Traits<T>::TwiddleIn(bits);
    ok = ok && turned > before && cub::Traits<T>::TwiddleOut(turned) == bits;
    before = turned;
  }
  return ok;
}
static void same(bool ok, const char *what) {
  if (!ok) printf("%s differs\n", what);
  good &= ok;
}
// Asks for the temporary memory first, as CUB wants it.
template <class F> void twice(F call) {
  void *room = nullptr;
  size_t bytes = 0;
  CubDebugExit(call(room, bytes));
  cudaMalloc(&room, bytes);
  CubDebugExit(call(room, bytes));
  cudaFree(room);
}
template <class T> T *device(size_t n) {
  T *p;
  cudaMallocManaged(&p, n * sizeof(T));
  return p;
}

int main() {
  const int n = 3001;
  int *in = device<int>(n), *out = device<int>(n), *count = device<int>(1), *lengths = device<int>(n);
  int *values = device<int>(n), *moved = device<int>(n);
  float *keys = device<float>(n), *sorted = device<float>(n), *total = device<float>(1);
  unsigned char *flags = device<unsigned char>(n);
  cub::KeyValuePair<int, int> *best = device<cub::KeyValuePair<int, int>>(1);
  unsigned state = 3;
  for (int i = 0; i < n; i++) {
    state = state * 1664525u + 1013904223u;
    in[i] = int(state >> 24) - 100, values[i] = i, flags[i] = state >> 13 & 1, keys[i] = float(int(state)) / 1e8f;
  }
  keys[5] = -0.0f, keys[6] = 0.0f, keys[7] = -INFINITY;
  std::vector<int> plain(in, in + n);

  same(ordered<int>({-2147483647, -1, 0, 5, 2147483647}) && ordered<unsigned char>({1, 2, 255}), "Traits of whole numbers");
  same(ordered<float>({-INFINITY, -2.5f, -1e-40f, 0, 1e-40f, 3}) && ordered<double>({-1e300, -1, 1, 2}), "Traits of floats");
  twice([&](void *r, size_t &b) { return cub::DeviceReduce::Sum(r, b, in, out, n); });
  same(out[0] == std::accumulate(in, in + n, 0), "Sum");
  twice([&](void *r, size_t &b) { return cub::DeviceReduce::ArgMin(r, b, in, best, n); });
  same(best->key == std::min_element(in, in + n) - in && best->value == in[best->key], "ArgMin");
  twice([&](void *r, size_t &b) { return cub::DeviceReduce::Max(r, b, in, out, n); });
  same(out[0] == *std::max_element(in, in + n), "Max");
  twice([&](void *r, size_t &b) { return cub::DeviceReduce::Reduce(r, b, in, out, n, cub::Min(), 1000); });
  same(out[0] == *std::min_element(in, in + n), "Reduce");
  cub::TransformInputIterator<float, Half, int *> halves(in, Half());
  twice([&](void *r, size_t &b) { return cub::DeviceReduce::Sum(r, b, halves, total, n); });
  same(total[0] == 0.5f * std::accumulate(in, in + n, 0), "a transformed sum");

  twice([&](void *r, size_t &b) { return cub::DeviceScan::InclusiveSum(r, b, in, out, n); });
  std::vector<int> wanted(n);
  std::partial_sum(in, in + n, wanted.begin());
  same(std::equal(wanted.begin(), wanted.end(), out), "InclusiveSum");
  std::copy(in, in + n, out);
  twice([&](void *r, size_t &b) { return cub::DeviceScan::ExclusiveSum(r, b, out, out, n); });
  same(out[0] == 0 && std::equal(wanted.begin(), wanted.end() - 1, out + 1), "ExclusiveSum in place");
  twice([&](void *r, size_t &b) { return cub::DeviceScan::ExclusiveScan(r, b, in, out, cub::Max(), -1000, n); });
  int most = -1000;
  for (int i = 0; i < n; i++) {
    same(out[i] == most, "ExclusiveScan");
    most = std::max(most, in[i]);
  }

  twice([&](void *r, size_t &b) { return cub::DeviceRadixSort::SortPairs(r, b, keys, sorted, values, moved, n); });
  std::vector<int> order(values, values + n);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return keys[a] < keys[b]; });
  for (int i = 0; i < n; i++) same(moved[i] == order[i] && sorted[i] == keys[order[i]], "SortPairs");
  twice([&](void *r, size_t &b) { return cub::DeviceRadixSort::SortKeysDescending(r, b, in, out, n); });
  std::sort(plain.begin(), plain.end(), std::greater<int>());
  same(std::equal(plain.begin(), plain.end(), out), "SortKeysDescending");
  cub::DoubleBuffer<int> buffer(out, lengths);
  twice([&](void *r, size_t &b) { return cub::DeviceRadixSort::SortKeys(r, b, buffer, n, 0, 4); });
  std::stable_sort(plain.begin(), plain.end(), [](int a, int b) { return (a & 15) < (b & 15); });
  same(std::equal(plain.begin(), plain.end(), buffer.Current()), "the lowest bits");

  twice([&](void *r, size_t &b) { return cub::DeviceSelect::If(r, b, in, out, count, n, Even()); });
  std::vector<int> chosen;
  std::copy_if(in, in + n, std::back_inserter(chosen), Even());
  same(*count == int(chosen.size()) && std::equal(chosen.begin(), chosen.end(), out), "If");
  twice([&](void *r, size_t &b) { return cub::DeviceSelect::Flagged(r, b, in, flags, out, count, n); });
  int at = 0;
  for (int i = 0; i < n; i++)
    if (flags[i]) same(out[at++] == in[i], "Flagged");
  same(at == *count, "the count of Flagged");
  twice([&](void *r, size_t &b) { return cub::DevicePartition::Flagged(r, b, in, flags, out, count, n); });
  for (int i = 0, first = 0, last = n; i < n; i++) same(out[flags[i] ? first++ : --last] == in[i], "Partition");

  std::sort(in, in + n);
  twice([&](void *r, size_t &b) { return cub::DeviceRunLengthEncode::Encode(r, b, in, out, lengths, count, n); });
  std::map<int, int> runs;
  for (int i = 0; i < n; i++) runs[in[i]]++;
  at = 0;
  for (auto &[key, length] : runs) same(out[at] == key && lengths[at] == length, "Encode"), at++;
  same(at == *count, "the count of Encode");
  twice([&](void *r, size_t &b) {
    return cub::DeviceReduce::ReduceByKey(r, b, in, out, cub::ConstantInputIterator<int>(2), lengths, count, cub::Sum(), n);
  });
  at = 0;
  for (auto &[key, length] : runs) same(out[at] == key && lengths[at] == 2 * length, "ReduceByKey"), at++;

  int *bins = device<int>(8), *ends = device<int>(4);
  twice([&](void *r, size_t &b) { return cub::DeviceHistogram::HistogramEven(r, b, in, bins, 9, -96, 104, n); });
  for (int bin = 0; bin < 8; bin++) {
    const int first = -96 + 25 * bin;
    same(bins[bin] == std::count_if(in, in + n, [&](int x) { return x >= first && x < first + 25; }), "HistogramEven");
  }
  ends[0] = 0, ends[1] = 100, ends[2] = 100, ends[3] = n;
  twice([&](void *r, size_t &b) { return cub::DeviceSegmentedReduce::Sum(r, b, in, out, 3, ends, ends + 1); });
  for (int s = 0; s < 3; s++) same(out[s] == std::accumulate(in + ends[s], in + ends[s + 1], 0), "a segment");
  for (int i = 0; i < n; i++) in[i] = (i * 7919) % n;
  twice([&](void *r, size_t &b) {
    return cub::DeviceSegmentedRadixSort::SortKeys(r, b, in, out, n, 3, ends, ends + 1);
  });
  for (int s = 0; s < 3; s++) std::sort(in + ends[s], in + ends[s + 1]);
  same(std::equal(in, in + n, out), "sorted segments");
  twice([&](void *r, size_t &b) { return cub::DeviceAdjacentDifference::SubtractLeftCopy(r, b, in, out, n); });
  for (int i = 0; i < n; i++) same(out[i] == (i ? in[i] - in[i - 1] : in[i]), "a difference from the left");
  twice([&](void *r, size_t &b) { return cub::DeviceAdjacentDifference::SubtractRightCopy(r, b, in, lengths, n); });
  for (int i = 0; i < n; i++) same(lengths[i] == (i + 1 < n ? in[i] - in[i + 1] : in[i]), "a difference from the right");
  const std::vector<int> kept(in, in + n);
  twice([&](void *r, size_t &b) { return cub::DeviceAdjacentDifference::SubtractLeft(r, b, in, n); });
  same(std::equal(in, in + n, out), "differences in place");
  std::copy(kept.begin(), kept.end(), in);
  twice([&](void *r, size_t &b) { return cub::DeviceAdjacentDifference::SubtractRight(r, b, in, n); });
  same(std::equal(in, in + n, lengths), "differences from the right in place");
  puts(good ? "PASSED" : "FAILED");
  return !good;
}
