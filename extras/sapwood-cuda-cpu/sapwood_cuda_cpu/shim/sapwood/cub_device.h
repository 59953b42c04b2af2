// CUB's operations of the whole device, done by the thread that asks for them.
#pragma once

#include <numeric>
#include <vector>

#include "cub_common.h"

namespace cub {

#define SAPWOOD_ROOM void *room, size_t &bytes
// The first call asks how much temporary memory is needed; none is.
#define SAPWOOD_ASKED                                                                            \
    if (!room) return bytes = 1, cudaSuccess;                                                    \
    if (sapwood_cuda::state()) return sapwood_cuda::state()
#define SAPWOOD_STREAM cudaStream_t = 0, bool = false

template <class It> std::vector<sapwood_cuda::ValueOf<It>> copied(It from, size_t n) {
    std::vector<sapwood_cuda::ValueOf<It>> found;
    found.reserve(n);
    for (size_t i = 0; i < n; i++) found.push_back(from[std::ptrdiff_t(i)]);
    return found;
}
// What a reduction to an array adds up: the values that it reads, unless it says another type.
template <class T, class In, class F, class N> T folded(In in, N n, F fold, T value) {
    for (N i = 0; i < n; i++) value = T(fold(value, in[i]));
    return value;
}

struct DeviceReduce {
    template <class In, class Out, class N, class F, class T>
    static cudaError_t Reduce(SAPWOOD_ROOM, In in, Out out, N n, F fold, T first, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        *out = folded(in, n, fold, first);
        return cudaSuccess;
    }
    template <class In, class Out, class N, class F, class U, class T>
    static cudaError_t TransformReduce(SAPWOOD_ROOM, In in, Out out, N n, F fold, U function, T first, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        for (N i = 0; i < n; i++) first = fold(first, function(in[i]));
        *out = first;
        return cudaSuccess;
    }
    template <class In, class Out, class N> static cudaError_t Sum(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        typedef sapwood_cuda::ValueOf<Out> To;
        return Reduce(room, bytes, in, out, n, cub::Sum(), std::conditional_t<std::is_void_v<To>, sapwood_cuda::ValueOf<In>, To>(0));
    }
    template <class In, class Out, class N> static cudaError_t Min(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        typedef sapwood_cuda::ValueOf<In> T;
        return Reduce(room, bytes, in, out, n, cub::Min(), std::numeric_limits<T>::max());
    }
    template <class In, class Out, class N> static cudaError_t Max(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        typedef sapwood_cuda::ValueOf<In> T;
        return Reduce(room, bytes, in, out, n, cub::Max(), std::numeric_limits<T>::lowest());
    }
    template <class In, class Out, class N> static cudaError_t ArgMin(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        return best(room, bytes, in, out, n, [](const auto &a, const auto &b) { return a < b; });
    }
    template <class In, class Out, class N> static cudaError_t ArgMax(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        return best(room, bytes, in, out, n, [](const auto &a, const auto &b) { return b < a; });
    }
    template <class Keys, class OutKeys, class In, class Out, class Count, class F, class N>
    static cudaError_t ReduceByKey(SAPWOOD_ROOM, Keys keys, OutKeys unique, In in, Out out, Count count, F fold, N n,
                                   SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N runs = 0;
        for (N i = 0; i < n; runs++) {
            const sapwood_cuda::ValueOf<Keys> key = keys[i];
            sapwood_cuda::ValueOf<In> value = in[i];
            for (i++; i < n && key == keys[i]; i++) value = fold(value, in[i]);
            unique[runs] = key, out[runs] = value;
        }
        *count = runs;
        return cudaSuccess;
    }

  private:
    template <class In, class Out, class N, class Better>
    static cudaError_t best(SAPWOOD_ROOM, In in, Out out, N n, Better better) {
        SAPWOOD_ASKED;
        N found = 0;
        for (N i = 1; i < n; i++)
            if (better(in[i], in[found])) found = i;
        if (n > 0) *out = {int(found), in[found]};
        return cudaSuccess;
    }
};

struct DeviceScan {
    template <class In, class Out, class F, class T, class N>
    static cudaError_t ExclusiveScan(SAPWOOD_ROOM, In in, Out out, F fold, T first, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        T value = first;
        for (N i = 0; i < n; i++) {
            const T next = fold(value, in[i]); // it may be done in place
            out[i] = value;
            value = next;
        }
        return cudaSuccess;
    }
    template <class In, class Out, class F, class N>
    static cudaError_t InclusiveScan(SAPWOOD_ROOM, In in, Out out, F fold, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        if (n <= 0) return cudaSuccess;
        sapwood_cuda::ValueOf<In> value = in[0];
        out[0] = value;
        for (N i = 1; i < n; i++) out[i] = value = fold(value, in[i]);
        return cudaSuccess;
    }
    template <class In, class Out, class N, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t ExclusiveSum(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        return ExclusiveScan(room, bytes, in, out, cub::Sum(), sapwood_cuda::ValueOf<In>(0), n);
    }
    template <class In, class Out, class N, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t InclusiveSum(SAPWOOD_ROOM, In in, Out out, N n, SAPWOOD_STREAM) {
        return InclusiveScan(room, bytes, in, out, cub::Sum(), n);
    }
    template <class In, class N, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t ExclusiveSum(SAPWOOD_ROOM, In in, N n, SAPWOOD_STREAM) { return ExclusiveSum(room, bytes, in, in, n); }
    template <class In, class N, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t InclusiveSum(SAPWOOD_ROOM, In in, N n, SAPWOOD_STREAM) { return InclusiveSum(room, bytes, in, in, n); }
    template <class Keys, class In, class Out, class F, class T, class N, class Same = Equality>
    static cudaError_t ExclusiveScanByKey(SAPWOOD_ROOM, Keys keys, In in, Out out, F fold, T first, N n, Same same = Same(),
                                          SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        T value = first;
        for (N i = 0; i < n; i++) {
            if (i && !same(keys[i - 1], keys[i])) value = first;
            const T next = fold(value, in[i]);
            out[i] = value;
            value = next;
        }
        return cudaSuccess;
    }
    template <class Keys, class In, class Out, class F, class N, class Same = Equality>
    static cudaError_t InclusiveScanByKey(SAPWOOD_ROOM, Keys keys, In in, Out out, F fold, N n, Same same = Same(), SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        sapwood_cuda::ValueOf<In> value{};
        for (N i = 0; i < n; i++) {
            value = i && same(keys[i - 1], keys[i]) ? sapwood_cuda::ValueOf<In>(fold(value, in[i])) : in[i];
            out[i] = value;
        }
        return cudaSuccess;
    }
    template <class Keys, class In, class Out, class N>
    static cudaError_t ExclusiveSumByKey(SAPWOOD_ROOM, Keys keys, In in, Out out, N n, SAPWOOD_STREAM) {
        return ExclusiveScanByKey(room, bytes, keys, in, out, cub::Sum(), sapwood_cuda::ValueOf<In>(0), n);
    }
    template <class Keys, class In, class Out, class N>
    static cudaError_t InclusiveSumByKey(SAPWOOD_ROOM, Keys keys, In in, Out out, N n, SAPWOOD_STREAM) {
        return InclusiveScanByKey(room, bytes, keys, in, out, cub::Sum(), n);
    }
};

// Sorts parts of some keys, with the values that belong to them.
template <class K, class V, class N, class Less>
void sort_part(const K *keys, K *out_keys, const V *values, V *out_values, N begin, N end, Less less) {
    const size_t n = size_t(end - begin);
    const std::vector<K> old(keys + begin, keys + end);
    if constexpr (std::is_same_v<V, NullType>) {
        std::vector<K> sorted = old;
        std::stable_sort(sorted.begin(), sorted.end(), less);
        std::copy(sorted.begin(), sorted.end(), out_keys + begin);
        return;
    } else {
        const std::vector<V> moved(values + begin, values + end);
        std::vector<size_t> order(n);
        std::iota(order.begin(), order.end(), size_t(0));
        std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return less(old[a], old[b]); });
        for (size_t i = 0; i < n; i++) out_keys[begin + N(i)] = old[order[i]], out_values[begin + N(i)] = moved[order[i]];
    }
}

struct DeviceRadixSort {
#define SAPWOOD_SORT(suffix, descending)                                                         \
    template <class K, class V, class N>                                                         \
    static cudaError_t SortPairs##suffix(SAPWOOD_ROOM, const K *keys, K *out_keys, const V *values, V *out_values, N n, \
                                         int begin = 0, int end = sizeof(K) * 8, SAPWOOD_STREAM) { \
        SAPWOOD_ASKED;                                                                           \
        sort_part(keys, out_keys, values, out_values, N(0), n, ByBits<K>(begin, end, descending)); \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class K, class V, class N>                                                         \
    static cudaError_t SortPairs##suffix(SAPWOOD_ROOM, DoubleBuffer<K> &keys, DoubleBuffer<V> &values, N n, int begin = 0, \
                                         int end = sizeof(K) * 8, SAPWOOD_STREAM) {              \
        SAPWOOD_ASKED;                                                                           \
        sort_part(keys.Current(), keys.Alternate(), values.Current(), values.Alternate(), N(0), n, \
                  ByBits<K>(begin, end, descending));                                            \
        keys.selector ^= 1, values.selector ^= 1;                                                \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class K, class N>                                                                  \
    static cudaError_t SortKeys##suffix(SAPWOOD_ROOM, const K *keys, K *out_keys, N n, int begin = 0, \
                                        int end = sizeof(K) * 8, SAPWOOD_STREAM) {               \
        SAPWOOD_ASKED;                                                                           \
        sort_part(keys, out_keys, (const NullType *)nullptr, (NullType *)nullptr, N(0), n,       \
                  ByBits<K>(begin, end, descending));                                            \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class K, class N>                                                                  \
    static cudaError_t SortKeys##suffix(SAPWOOD_ROOM, DoubleBuffer<K> &keys, N n, int begin = 0, int end = sizeof(K) * 8, \
                                        SAPWOOD_STREAM) {                                        \
        SAPWOOD_ASKED;                                                                           \
        sort_part(keys.Current(), keys.Alternate(), (const NullType *)nullptr, (NullType *)nullptr, N(0), n, \
                  ByBits<K>(begin, end, descending));                                            \
        keys.selector ^= 1;                                                                      \
        return cudaSuccess;                                                                      \
    }
    SAPWOOD_SORT(, false)
    SAPWOOD_SORT(Descending, true)
#undef SAPWOOD_SORT
};

// Sorts each of some segments.
#define SAPWOOD_SEGMENTS                                                                         \
    for (int s = 0; s < int(segments); s++)
template <bool BitRange> struct SegmentedSort {
#define SAPWOOD_SORT(name, pairs, descending)                                                    \
    template <class K, class N, class S, class B, class E>                                       \
    static cudaError_t name(SAPWOOD_ROOM, const K *keys, K *out_keys, N, S segments, B begins, E ends, int begin = 0, \
                            int end = sizeof(K) * 8, SAPWOOD_STREAM) {                           \
        SAPWOOD_ASKED;                                                                           \
        SAPWOOD_SEGMENTS sort_part(keys, out_keys, (const NullType *)nullptr, (NullType *)nullptr, size_t(begins[s]), \
                                   size_t(ends[s]), ByBits<K>(begin, end, descending));          \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class K, class N, class S, class B, class E>                                       \
    static cudaError_t name(SAPWOOD_ROOM, DoubleBuffer<K> &keys, N n, S segments, B begins, E ends, int begin = 0, \
                            int end = sizeof(K) * 8, SAPWOOD_STREAM) {                           \
        SAPWOOD_ASKED;                                                                           \
        std::copy(keys.Current(), keys.Current() + n, keys.Alternate());                         \
        keys.selector ^= 1;                                                                      \
        return name(room, bytes, keys.Current(), keys.Current(), n, segments, begins, ends, begin, end); \
    }                                                                                            \
    template <class K, class V, class N, class S, class B, class E>                              \
    static cudaError_t pairs(SAPWOOD_ROOM, const K *keys, K *out_keys, const V *values, V *out_values, N, S segments, \
                             B begins, E ends, int begin = 0, int end = sizeof(K) * 8, SAPWOOD_STREAM) { \
        SAPWOOD_ASKED;                                                                           \
        SAPWOOD_SEGMENTS sort_part(keys, out_keys, values, out_values, size_t(begins[s]), size_t(ends[s]), \
                                   ByBits<K>(begin, end, descending));                           \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class K, class V, class N, class S, class B, class E>                              \
    static cudaError_t pairs(SAPWOOD_ROOM, DoubleBuffer<K> &keys, DoubleBuffer<V> &values, N n, S segments, B begins, \
                             E ends, int begin = 0, int end = sizeof(K) * 8, SAPWOOD_STREAM) {   \
        SAPWOOD_ASKED;                                                                           \
        std::copy(keys.Current(), keys.Current() + n, keys.Alternate());                         \
        std::copy(values.Current(), values.Current() + n, values.Alternate());                   \
        keys.selector ^= 1, values.selector ^= 1;                                                \
        return pairs(room, bytes, keys.Current(), keys.Current(), values.Current(), values.Current(), n, segments, \
                     begins, ends, begin, end);                                                  \
    }
    SAPWOOD_SORT(SortKeys, SortPairs, false)
    SAPWOOD_SORT(SortKeysDescending, SortPairsDescending, true)
    SAPWOOD_SORT(StableSortKeys, StableSortPairs, false)
    SAPWOOD_SORT(StableSortKeysDescending, StableSortPairsDescending, true)
#undef SAPWOOD_SORT
};
typedef SegmentedSort<true> DeviceSegmentedRadixSort;
typedef SegmentedSort<false> DeviceSegmentedSort;

struct DeviceMergeSort {
#define SAPWOOD_SORT(name, pairs)                                                                \
    template <class Keys, class N, class Less> static cudaError_t name(SAPWOOD_ROOM, Keys keys, N n, Less less, SAPWOOD_STREAM) { \
        SAPWOOD_ASKED;                                                                           \
        auto sorted = copied(keys, size_t(n));                                                   \
        std::stable_sort(sorted.begin(), sorted.end(), less);                                    \
        std::copy(sorted.begin(), sorted.end(), keys);                                           \
        return cudaSuccess;                                                                      \
    }                                                                                            \
    template <class Keys, class Values, class N, class Less>                                     \
    static cudaError_t pairs(SAPWOOD_ROOM, Keys keys, Values values, N n, Less less, SAPWOOD_STREAM) { \
        SAPWOOD_ASKED;                                                                           \
        sort_part(&*keys, &*keys, &*values, &*values, N(0), n, less);                            \
        return cudaSuccess;                                                                      \
    }
    SAPWOOD_SORT(SortKeys, SortPairs)
    SAPWOOD_SORT(StableSortKeys, StableSortPairs)
#undef SAPWOOD_SORT
    template <class In, class Out, class N, class Less>
    static cudaError_t SortKeysCopy(SAPWOOD_ROOM, In in, Out out, N n, Less less, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        auto sorted = copied(in, size_t(n));
        std::stable_sort(sorted.begin(), sorted.end(), less);
        std::copy(sorted.begin(), sorted.end(), out);
        return cudaSuccess;
    }
};

struct DeviceSegmentedReduce {
    template <class In, class Out, class S, class B, class E, class F, class T>
    static cudaError_t Reduce(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, F fold, T first, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        SAPWOOD_SEGMENTS {
            T value = first;
            for (auto i = begins[s]; i < ends[s]; i++) value = fold(value, in[i]);
            out[s] = value;
        }
        return cudaSuccess;
    }
    template <class In, class Out, class S, class B, class E>
    static cudaError_t Sum(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, SAPWOOD_STREAM) {
        return Reduce(room, bytes, in, out, segments, begins, ends, cub::Sum(), sapwood_cuda::ValueOf<In>(0));
    }
    template <class In, class Out, class S, class B, class E>
    static cudaError_t Min(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, SAPWOOD_STREAM) {
        typedef sapwood_cuda::ValueOf<In> T;
        return Reduce(room, bytes, in, out, segments, begins, ends, cub::Min(), std::numeric_limits<T>::max());
    }
    template <class In, class Out, class S, class B, class E>
    static cudaError_t Max(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, SAPWOOD_STREAM) {
        typedef sapwood_cuda::ValueOf<In> T;
        return Reduce(room, bytes, in, out, segments, begins, ends, cub::Max(), std::numeric_limits<T>::lowest());
    }
    template <class In, class Out, class S, class B, class E>
    static cudaError_t ArgMin(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, SAPWOOD_STREAM) {
        return best(room, bytes, in, out, segments, begins, ends, [](const auto &a, const auto &b) { return a < b; });
    }
    template <class In, class Out, class S, class B, class E>
    static cudaError_t ArgMax(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, SAPWOOD_STREAM) {
        return best(room, bytes, in, out, segments, begins, ends, [](const auto &a, const auto &b) { return b < a; });
    }

  private:
    template <class In, class Out, class S, class B, class E, class Better>
    static cudaError_t best(SAPWOOD_ROOM, In in, Out out, S segments, B begins, E ends, Better better) {
        SAPWOOD_ASKED;
        SAPWOOD_SEGMENTS {
            if (begins[s] >= ends[s]) continue;
            auto found = begins[s];
            for (auto i = begins[s]; i < ends[s]; i++)
                if (better(in[i], in[found])) found = i;
            out[s] = {int(found - begins[s]), in[found]};
        }
        return cudaSuccess;
    }
};

// Choosing and dividing elements.
struct DeviceSelect {
    template <class In, class Flags, class Out, class Count, class N, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t Flagged(SAPWOOD_ROOM, In in, Flags flags, Out out, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0;
        for (N i = 0; i < n; i++)
            if (flags[i]) out[found++] = in[i];
        *count = found;
        return cudaSuccess;
    }
    template <class In, class Flags, class Count, class N>
    static cudaError_t Flagged(SAPWOOD_ROOM, In in, Flags flags, Count count, N n, SAPWOOD_STREAM) {
        return Flagged(room, bytes, in, flags, in, count, n);
    }
    template <class In, class Out, class Count, class N, class F>
    static cudaError_t If(SAPWOOD_ROOM, In in, Out out, Count count, N n, F condition, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0;
        for (N i = 0; i < n; i++)
            if (condition(in[i])) out[found++] = in[i];
        *count = found;
        return cudaSuccess;
    }
    template <class In, class Count, class N, class F, class = std::enable_if_t<std::is_integral_v<N>>>
    static cudaError_t If(SAPWOOD_ROOM, In in, Count count, N n, F condition, SAPWOOD_STREAM) {
        return If(room, bytes, in, in, count, n, condition);
    }
    template <class In, class Out, class Count, class N>
    static cudaError_t Unique(SAPWOOD_ROOM, In in, Out out, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0;
        for (N i = 0; i < n; i++) {
            const sapwood_cuda::ValueOf<In> value = in[i];
            if (i == 0 || !(value == in[i - 1])) out[found++] = value;
        }
        *count = found;
        return cudaSuccess;
    }
    template <class Keys, class In, class OutKeys, class Out, class Count, class N>
    static cudaError_t UniqueByKey(SAPWOOD_ROOM, Keys keys, In in, OutKeys out_keys, Out out, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0;
        for (N i = 0; i < n; i++)
            if (i == 0 || !(keys[i] == keys[i - 1])) out_keys[found] = keys[i], out[found] = in[i], found++;
        *count = found;
        return cudaSuccess;
    }
};
// The chosen ones first, the others behind them, backwards.
struct DevicePartition {
    template <class In, class Flags, class Out, class Count, class N>
    static cudaError_t Flagged(SAPWOOD_ROOM, In in, Flags flags, Out out, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0, rest = n;
        for (N i = 0; i < n; i++) {
            if (flags[i]) out[found++] = in[i];
            else out[--rest] = in[i];
        }
        *count = found;
        return cudaSuccess;
    }
    template <class In, class Out, class Count, class N, class F>
    static cudaError_t If(SAPWOOD_ROOM, In in, Out out, Count count, N n, F condition, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N found = 0, rest = n;
        for (N i = 0; i < n; i++) {
            if (condition(in[i])) out[found++] = in[i];
            else out[--rest] = in[i];
        }
        *count = found;
        return cudaSuccess;
    }
};
struct DeviceRunLengthEncode {
    template <class In, class Unique, class Lengths, class Count, class N>
    static cudaError_t Encode(SAPWOOD_ROOM, In in, Unique unique, Lengths lengths, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N runs = 0;
        for (N i = 0; i < n; runs++) {
            const sapwood_cuda::ValueOf<In> value = in[i];
            N length = 1;
            for (i++; i < n && value == in[i]; i++) length++;
            unique[runs] = value, lengths[runs] = length;
        }
        *count = runs;
        return cudaSuccess;
    }
    template <class In, class Offsets, class Lengths, class Count, class N>
    static cudaError_t NonTrivialRuns(SAPWOOD_ROOM, In in, Offsets offsets, Lengths lengths, Count count, N n, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        N runs = 0;
        for (N i = 0; i < n;) {
            const N begin = i;
            for (i++; i < n && in[begin] == in[i]; i++) {}
            if (i - begin > 1) offsets[runs] = begin, lengths[runs] = i - begin, runs++;
        }
        *count = runs;
        return cudaSuccess;
    }
};

struct DeviceHistogram {
    template <class In, class C, class L, class N>
    static cudaError_t HistogramEven(SAPWOOD_ROOM, In in, C *bins, int levels, L lower, L upper, N n, SAPWOOD_STREAM) {
        return rows(room, bytes, in, &bins, 1, 1, n, 1, n, even(&levels, &lower, &upper), &levels);
    }
    template <class In, class C, class L, class N>
    static cudaError_t HistogramEven(SAPWOOD_ROOM, In in, C *bins, int levels, L lower, L upper, N columns, N height,
                                     size_t row_bytes, SAPWOOD_STREAM) {
        return rows(room, bytes, in, &bins, 1, 1, columns, height, N(row_bytes / sizeof(sapwood_cuda::ValueOf<In>)),
                    even(&levels, &lower, &upper), &levels);
    }
    template <int Channels, int Active, class In, class C, class L, class N>
    static cudaError_t MultiHistogramEven(SAPWOOD_ROOM, In in, C *bins[Active], const int levels[Active], const L lower[Active],
                                          const L upper[Active], N pixels, SAPWOOD_STREAM) {
        return rows(room, bytes, in, bins, Channels, Active, pixels, 1, pixels * Channels, even(levels, lower, upper), levels);
    }
    template <class In, class C, class L, class N>
    static cudaError_t HistogramRange(SAPWOOD_ROOM, In in, C *bins, int levels, const L *limits, N n, SAPWOOD_STREAM) {
        return rows(room, bytes, in, &bins, 1, 1, n, 1, n, range(&levels, &limits), &levels);
    }
    template <int Channels, int Active, class In, class C, class L, class N>
    static cudaError_t MultiHistogramRange(SAPWOOD_ROOM, In in, C *bins[Active], const int levels[Active],
                                           const L *const limits[Active], N pixels, SAPWOOD_STREAM) {
        return rows(room, bytes, in, bins, Channels, Active, pixels, 1, pixels * Channels, range(levels, limits), levels);
    }

  private:
    template <class L> static auto even(const int *levels, const L *lower, const L *upper) {
        return [=](int channel, L value) {
            if (!(value >= lower[channel] && value < upper[channel])) return -1;
            const int bins = levels[channel] - 1;
            if constexpr (std::is_integral_v<L>) {
                const auto width = (unsigned long long)(upper[channel]) - (unsigned long long)(lower[channel]);
                const auto at = (unsigned long long)(value) - (unsigned long long)(lower[channel]);
                return int((unsigned __int128)at * unsigned(bins) / width);
            } else {
                const int bin = int((value - lower[channel]) * (L(bins) / (upper[channel] - lower[channel])));
                return bin < bins ? bin : bins - 1;
            }
        };
    }
    template <class L> static auto range(const int *levels, const L *const *limits) {
        return [=](int channel, L value) {
            const L *end = limits[channel] + levels[channel];
            return int(std::upper_bound(limits[channel], end, value) - limits[channel]) - 1;
        };
    }
    template <class In, class C, class N, class Bin>
    static cudaError_t rows(SAPWOOD_ROOM, In in, C *const *bins, int channels, int active, N columns, N height, N stride,
                            Bin bin, const int *levels) {
        SAPWOOD_ASKED;
        for (int c = 0; c < active; c++) std::fill(bins[c], bins[c] + levels[c] - 1, C(0));
        for (N y = 0; y < height; y++)
            for (N x = 0; x < columns; x++)
                for (int c = 0; c < active; c++) {
                    const int at = bin(c, in[y * stride + x * channels + c]);
                    if (at >= 0 && at < levels[c] - 1) bins[c][at]++;
                }
        return cudaSuccess;
    }
};

struct DeviceSpmv {
    template <class T>
    static cudaError_t CsrMV(SAPWOOD_ROOM, const T *values, const int *offsets, const int *columns, const T *x, T *y,
                             int rows, int, int, SAPWOOD_STREAM) {
        SAPWOOD_ASKED;
        for (int r = 0; r < rows; r++) {
            T sum = 0;
            for (int i = offsets[r]; i < offsets[r + 1]; i++) sum += values[i] * x[columns[i]];
            y[r] = sum;
        }
        return cudaSuccess;
    }
};

// What each item differs from its neighbour by; the one without a neighbour is kept.
struct DeviceAdjacentDifference {
    template <class In, class Out, class N, class F = Difference>
    static cudaError_t SubtractLeftCopy(SAPWOOD_ROOM, In in, Out out, N n, F differ = F(), cudaStream_t = 0) {
        SAPWOOD_ASKED;
        for (N i = 0; i < n; i++) out[i] = i ? differ(in[i], in[i - 1]) : in[i];
        return cudaSuccess;
    }
    template <class In, class Out, class N, class F = Difference>
    static cudaError_t SubtractRightCopy(SAPWOOD_ROOM, In in, Out out, N n, F differ = F(), cudaStream_t = 0) {
        SAPWOOD_ASKED;
        for (N i = 0; i < n; i++) out[i] = i + 1 < n ? differ(in[i], in[i + 1]) : in[i];
        return cudaSuccess;
    }
    template <class It, class N, class F = Difference>
    static cudaError_t SubtractLeft(SAPWOOD_ROOM, It items, N n, F differ = F(), cudaStream_t = 0) {
        SAPWOOD_ASKED;
        for (N i = n; i-- > 1;) items[i] = differ(items[i], items[i - 1]);
        return cudaSuccess;
    }
    template <class It, class N, class F = Difference>
    static cudaError_t SubtractRight(SAPWOOD_ROOM, It items, N n, F differ = F(), cudaStream_t = 0) {
        SAPWOOD_ASKED;
        for (N i = 0; i + 1 < n; i++) items[i] = differ(items[i], items[i + 1]);
        return cudaSuccess;
    }
};

struct DeviceFor {
    template <class N, class F> static cudaError_t Bulk(N n, F function, cudaStream_t = 0) {
        for (N i = 0; i < n; i++) function(i);
        return sapwood_cuda::state();
    }
    template <class It, class F> static cudaError_t ForEach(It first, It last, F function, cudaStream_t = 0) {
        for (; first != last; ++first) function(*first);
        return sapwood_cuda::state();
    }
    template <class It, class N, class F> static cudaError_t ForEachN(It first, N n, F function, cudaStream_t = 0) {
        return ForEach(first, first + n, function);
    }
};

#undef SAPWOOD_ROOM
#undef SAPWOOD_ASKED
#undef SAPWOOD_STREAM
#undef SAPWOOD_SEGMENTS

} // namespace cub
