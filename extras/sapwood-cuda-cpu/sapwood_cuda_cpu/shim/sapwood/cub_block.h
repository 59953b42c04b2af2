// CUB's operations of a warp or block: each thread writes what it gives, all meet, and each reads what it gets.
#pragma once

#include "cub_common.h"

namespace cub {

// Which thread it is.
inline unsigned LaneId() { return sapwood_cuda::self->rank % 32; }
inline unsigned WarpId() { return sapwood_cuda::self->rank / 32; }
inline int RowMajorTid(int, int, int) { return int(sapwood_cuda::self->rank); }
inline unsigned LaneMaskLt() { return (1u << LaneId()) - 1; }
inline unsigned LaneMaskLe() { return LaneMaskLt() << 1 | 1; }
inline unsigned LaneMaskGt() { return ~LaneMaskLe(); }
inline unsigned LaneMaskGe() { return ~LaneMaskLt(); }
inline void CTA_SYNC() { __syncthreads(); }
inline void WARP_SYNC(unsigned mask) { __syncwarp(mask); }
template <int Threads = 32, class T> T ShuffleUp(T value, int by, int first, unsigned mask) {
    const T found = __shfl_up_sync(mask, value, by, Threads);
    return int(LaneId() % Threads) - by < first ? value : found;
}
template <int Threads = 32, class T> T ShuffleDown(T value, int by, int last, unsigned mask) {
    const T found = __shfl_down_sync(mask, value, by, Threads);
    return int(LaneId() % Threads) + by > last ? value : found;
}
template <int Threads = 32, class T> T ShuffleIndex(T value, int from, unsigned mask) {
    return __shfl_sync(mask, value, from, Threads);
}
template <int N, class T, class F> T ThreadReduce(T (&items)[N], F fold) {
    T total = items[0];
    for (int i = 1; i < N; i++) total = fold(total, items[i]);
    return total;
}
template <int N, class T, class F> T ThreadReduce(T (&items)[N], F fold, T first) {
    for (int i = 0; i < N; i++) first = fold(first, items[i]);
    return first;
}

// Room for a value of each thread, whatever constructors the values have.
template <class T, int N> struct Slots {
    alignas(T) unsigned char bytes[N * sizeof(T)];
    T &operator[](int i) { return reinterpret_cast<T *>(bytes)[i]; }
};
inline int this_thread() { return int(sapwood_cuda::self->rank); }
inline int block_threads() { return int(sapwood_cuda::self->block->threads); }

// Loading and storing items that a thread has in a row, or that are as many apart as there are threads.
template <class T, int N, class It> void LoadDirectBlocked(int thread, It from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[thread * N + i];
}
template <class T, int N, class It> void LoadDirectBlocked(int thread, It from, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (thread * N + i < valid) items[i] = from[thread * N + i];
}
template <class T, int N, class It, class D> void LoadDirectBlocked(int thread, It from, T (&items)[N], int valid, D other) {
    for (int i = 0; i < N; i++) items[i] = thread * N + i < valid ? T(from[thread * N + i]) : T(other);
}
template <class T, int N> void LoadDirectBlockedVectorized(int thread, T *from, T (&items)[N]) {
    LoadDirectBlocked(thread, from, items);
}
template <int Threads, class T, int N, class It> void LoadDirectStriped(int thread, It from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[thread + i * Threads];
}
template <int Threads, class T, int N, class It> void LoadDirectStriped(int thread, It from, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (thread + i * Threads < valid) items[i] = from[thread + i * Threads];
}
template <int Threads, class T, int N, class It, class D>
void LoadDirectStriped(int thread, It from, T (&items)[N], int valid, D other) {
    for (int i = 0; i < N; i++) items[i] = thread + i * Threads < valid ? T(from[thread + i * Threads]) : T(other);
}
template <class T, int N, class It> void LoadDirectWarpStriped(int thread, It from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[thread / 32 * 32 * N + thread % 32 + i * 32];
}
template <class T, int N, class It> void StoreDirectBlocked(int thread, It to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[thread * N + i] = items[i];
}
template <class T, int N, class It> void StoreDirectBlocked(int thread, It to, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (thread * N + i < valid) to[thread * N + i] = items[i];
}
template <class T, int N> void StoreDirectBlockedVectorized(int thread, T *to, T (&items)[N]) {
    StoreDirectBlocked(thread, to, items);
}
template <int Threads, class T, int N, class It> void StoreDirectStriped(int thread, It to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[thread + i * Threads] = items[i];
}
template <int Threads, class T, int N, class It> void StoreDirectStriped(int thread, It to, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (thread + i * Threads < valid) to[thread + i * Threads] = items[i];
}
template <class T, int N, class It> void StoreDirectWarpStriped(int thread, It to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[thread / 32 * 32 * N + thread % 32 + i * 32] = items[i];
}
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT, BLOCK_LOAD_STRIPED, BLOCK_LOAD_VECTORIZE, BLOCK_LOAD_TRANSPOSE, BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT, BLOCK_STORE_STRIPED, BLOCK_STORE_VECTORIZE, BLOCK_STORE_TRANSPOSE, BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED
};
// What needs no memory for its threads to meet in.
struct WithoutRoom {
    struct TempStorage : Uninitialized<int> {};
    WithoutRoom() = default;
    explicit WithoutRoom(TempStorage &) {}
};
template <class T, int X, int N, BlockLoadAlgorithm Algorithm = BLOCK_LOAD_DIRECT, int Y = 1, int Z = 1, int = 0>
class BlockLoad : public WithoutRoom {
  public:
    using WithoutRoom::WithoutRoom;
    template <class It, class... A> void Load(It from, T (&items)[N], A... a) {
        if constexpr (Algorithm == BLOCK_LOAD_STRIPED) LoadDirectStriped<X * Y * Z>(this_thread(), from, items, a...);
        else LoadDirectBlocked(this_thread(), from, items, a...);
    }
};
template <class T, int X, int N, BlockStoreAlgorithm Algorithm = BLOCK_STORE_DIRECT, int Y = 1, int Z = 1, int = 0>
class BlockStore : public WithoutRoom {
  public:
    using WithoutRoom::WithoutRoom;
    template <class It, class... A> void Store(It to, T (&items)[N], A... a) {
        if constexpr (Algorithm == BLOCK_STORE_STRIPED) StoreDirectStriped<X * Y * Z>(this_thread(), to, items, a...);
        else StoreDirectBlocked(this_thread(), to, items, a...);
    }
};

// Where threads of a group put their values; the group meets between writing and reading.
template <class T, int N> struct WarpRoom {
    static constexpr int size = N;
    Slots<T, N> slots;
};
template <int N> unsigned logical_warp() {
    return N == 32 ? ~0u : ((1u << (N & 31)) - 1) << (LaneId() / N * N);
}
// Lanes of a logical warp of any size up to 32: those that are there.
template <int N> int logical_lane() { return int(LaneId()) % N; }
template <int N> int logical_lanes() {
    const int first = this_thread() / 32 * 32 + int(LaneId()) / N * N, rest = block_threads() - first;
    return rest < N ? rest : N;
}

template <class T, int N = 32, int = 0> class WarpReduce {
  public:
    struct TempStorage : WarpRoom<T, N> {};
    explicit WarpReduce(TempStorage &room) : room_(room) {}
    template <class F> T Reduce(T value, F fold) { return Reduce(value, fold, logical_lanes<N>()); }
    template <class F> T Reduce(T value, F fold, int valid) {
        meet(value);
        T total = value; // what other lanes get is not said
        if (logical_lane<N>() == 0)
            for (int i = 1; i < valid; i++) total = fold(total, room_.slots[i]);
        __syncwarp(logical_warp<N>());
        return total;
    }
    T Sum(T value) { return Reduce(value, cub::Sum()); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    // To the first lane of each part; a flag marks a part's first or last lane.
    template <class F, class Flag> T HeadSegmentedReduce(T value, Flag head, F fold) {
        return segmented(value, __ballot_sync(logical_warp<N>(), head), fold, false);
    }
    template <class F, class Flag> T TailSegmentedReduce(T value, Flag tail, F fold) {
        return segmented(value, __ballot_sync(logical_warp<N>(), tail), fold, true);
    }
    template <class Flag> T HeadSegmentedSum(T value, Flag head) { return HeadSegmentedReduce(value, head, cub::Sum()); }
    template <class Flag> T TailSegmentedSum(T value, Flag tail) { return TailSegmentedReduce(value, tail, cub::Sum()); }

  private:
    void meet(const T &value) {
        room_.slots[logical_lane<N>()] = value;
        __syncwarp(logical_warp<N>());
    }
    template <class F> T segmented(T value, unsigned flags, F fold, bool tails) {
        meet(value);
        const int first = int(LaneId()) / N * N, own = logical_lane<N>(), lanes = logical_lanes<N>();
        const auto is = [&](int lane) { return flags >> (first + lane) & 1; };
        T total = value;
        for (int i = own + 1; i < lanes && !(tails ? is(i - 1) : is(i)); i++) total = fold(total, room_.slots[i]);
        __syncwarp(logical_warp<N>());
        return total;
    }
    TempStorage &room_;
};

template <class T, int N = 32, int = 0> class WarpScan {
  public:
    struct TempStorage : WarpRoom<T, N> {};
    explicit WarpScan(TempStorage &room) : room_(room) {}
    template <class F> void InclusiveScan(T in, T &out, F fold) {
        T total;
        InclusiveScan(in, out, fold, total);
    }
    template <class F> void InclusiveScan(T in, T &out, F fold, T &total) {
        meet(in);
        const int own = logical_lane<N>();
        T sum = room_.slots[0];
        if (own == 0) out = sum;
        for (int i = 1; i < logical_lanes<N>(); i++) {
            sum = fold(sum, room_.slots[i]);
            if (i == own) out = sum;
        }
        total = sum;
        __syncwarp(logical_warp<N>());
    }
    template <class F> void ExclusiveScan(T in, T &out, F fold) { exclusive(in, out, nullptr, fold, nullptr); }
    template <class F> void ExclusiveScan(T in, T &out, T first, F fold) { exclusive(in, out, &first, fold, nullptr); }
    template <class F> void ExclusiveScan(T in, T &out, F fold, T &total) { exclusive(in, out, nullptr, fold, &total); }
    template <class F> void ExclusiveScan(T in, T &out, T first, F fold, T &total) { exclusive(in, out, &first, fold, &total); }
    template <class F> void Scan(T in, T &inclusive, T &exclusive, F fold) {
        InclusiveScan(in, inclusive, fold);
        ExclusiveScan(in, exclusive, fold);
    }
    template <class F> void Scan(T in, T &inclusive, T &exclusive, T first, F fold) {
        ExclusiveScan(in, exclusive, first, fold);
        inclusive = fold(exclusive, in);
    }
    void InclusiveSum(T in, T &out) { InclusiveScan(in, out, cub::Sum()); }
    void InclusiveSum(T in, T &out, T &total) { InclusiveScan(in, out, cub::Sum(), total); }
    void ExclusiveSum(T in, T &out) { ExclusiveScan(in, out, T(), cub::Sum()); }
    void ExclusiveSum(T in, T &out, T &total) { ExclusiveScan(in, out, T(), cub::Sum(), total); }
    T Broadcast(T value, unsigned from) {
        meet(value);
        const T found = room_.slots[int(from)];
        __syncwarp(logical_warp<N>());
        return found;
    }

  private:
    void meet(const T &value) {
        room_.slots[logical_lane<N>()] = value;
        __syncwarp(logical_warp<N>());
    }
    template <class F> void exclusive(T in, T &out, const T *first, F fold, T *total) {
        meet(in);
        const int own = logical_lane<N>(), lanes = logical_lanes<N>();
        T sum = room_.slots[0]; // without the first value, which the total has not
        T before = first ? *first : sum;
        if (own == 0 && first) out = before;
        if (first) before = fold(before, room_.slots[0]);
        for (int i = 1; i < lanes; i++) {
            if (i == own) out = before;
            before = fold(before, room_.slots[i]);
            sum = fold(sum, room_.slots[i]);
        }
        if (total) *total = sum;
        __syncwarp(logical_warp<N>());
    }
    TempStorage &room_;
};

enum BlockReduceAlgorithm { BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY, BLOCK_REDUCE_RAKING, BLOCK_REDUCE_WARP_REDUCTIONS };
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

template <class T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1, int Z = 1, int = 0>
class BlockReduce {
  public:
    struct TempStorage { Slots<T, X * Y * Z> slots; };
    explicit BlockReduce(TempStorage &room) : room_(room) {}
    BlockReduce() : room_(shared()) {}
    template <class F> T Reduce(T value, F fold) { return Reduce(value, fold, block_threads()); }
    template <class F> T Reduce(T value, F fold, int valid) {
        room_.slots[this_thread()] = value;
        __syncthreads();
        if (this_thread() != 0) return value; // what other threads get is not said
        for (int i = 1; i < valid; i++) value = fold(value, room_.slots[i]);
        return value;
    }
    template <int N, class F> T Reduce(T (&items)[N], F fold) { return Reduce(ThreadReduce(items, fold), fold); }
    T Sum(T value) { return Reduce(value, cub::Sum()); }
    T Sum(T value, int valid) { return Reduce(value, cub::Sum(), valid); }
    template <int N> T Sum(T (&items)[N]) { return Reduce(items, cub::Sum()); }

  private:
    static TempStorage &shared() {
        static thread_local TempStorage room;
        return room;
    }
    TempStorage &room_;
};

template <class T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0> class BlockScan {
  public:
    struct TempStorage {
        Slots<T, X * Y * Z> in, out;
        Slots<T, 2> ends;
    };
    explicit BlockScan(TempStorage &room) : room_(room) {}
    BlockScan() : room_(shared()) {}

    template <class F> void InclusiveScan(T in, T &out, F fold) {
        T total;
        InclusiveScan(in, out, fold, total);
    }
    template <class F> void InclusiveScan(T in, T &out, F fold, T &total) {
        out = scanned(in, nullptr, fold, total, true);
    }
    template <class F, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void InclusiveScan(T in, T &out, F fold, Prefix &prefix) {
        T total;
        const T own = scanned(in, nullptr, fold, total, true);
        out = fold(broadcast(prefix, total), own);
    }
    template <class F> void ExclusiveScan(T in, T &out, F fold) {
        T total;
        ExclusiveScan(in, out, fold, total);
    }
    template <class F> void ExclusiveScan(T in, T &out, F fold, T &total) { out = scanned(in, nullptr, fold, total, false); }
    template <class F> void ExclusiveScan(T in, T &out, T first, F fold) {
        T total;
        out = scanned(in, &first, fold, total, false);
    }
    template <class F> void ExclusiveScan(T in, T &out, T first, F fold, T &total) {
        out = scanned(in, &first, fold, total, false);
    }
    template <class F, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void ExclusiveScan(T in, T &out, F fold, Prefix &prefix) {
        T total;
        const T own = scanned(in, nullptr, fold, total, false), before = broadcast(prefix, total);
        out = this_thread() ? fold(before, own) : before;
    }
    template <int N, class F> void InclusiveScan(T (&in)[N], T (&out)[N], F fold) {
        T total;
        InclusiveScan(in, out, fold, total);
    }
    template <int N, class F> void InclusiveScan(T (&in)[N], T (&out)[N], F fold, T &total) {
        T before;
        ExclusiveScan(ThreadReduce(in, fold), before, fold, total);
        for (int i = 0; i < N; i++) {
            before = i == 0 && this_thread() == 0 ? in[i] : fold(before, in[i]);
            out[i] = before;
        }
    }
    template <int N, class F> void ExclusiveScan(T (&in)[N], T (&out)[N], T first, F fold) {
        T total;
        ExclusiveScan(in, out, first, fold, total);
    }
    template <int N, class F> void ExclusiveScan(T (&in)[N], T (&out)[N], T first, F fold, T &total) {
        T before;
        ExclusiveScan(ThreadReduce(in, fold), before, first, fold, total);
        items(in, out, before, fold);
    }
    template <int N, class F, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void ExclusiveScan(T (&in)[N], T (&out)[N], F fold, Prefix &prefix) {
        T before;
        ExclusiveScan(ThreadReduce(in, fold), before, fold, prefix);
        items(in, out, before, fold);
    }
    template <int N, class F, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void InclusiveScan(T (&in)[N], T (&out)[N], F fold, Prefix &prefix) {
        T before;
        ExclusiveScan(ThreadReduce(in, fold), before, fold, prefix);
        for (int i = 0; i < N; i++) out[i] = before = fold(before, in[i]);
    }
    void InclusiveSum(T in, T &out) { InclusiveScan(in, out, cub::Sum()); }
    void InclusiveSum(T in, T &out, T &total) { InclusiveScan(in, out, cub::Sum(), total); }
    void ExclusiveSum(T in, T &out) { ExclusiveScan(in, out, T(), cub::Sum()); }
    void ExclusiveSum(T in, T &out, T &total) { ExclusiveScan(in, out, T(), cub::Sum(), total); }
    template <class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void ExclusiveSum(T in, T &out, Prefix &prefix) { ExclusiveScan(in, out, cub::Sum(), prefix); }
    template <class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void InclusiveSum(T in, T &out, Prefix &prefix) { InclusiveScan(in, out, cub::Sum(), prefix); }
    template <int N> void InclusiveSum(T (&in)[N], T (&out)[N]) { InclusiveScan(in, out, cub::Sum()); }
    template <int N> void InclusiveSum(T (&in)[N], T (&out)[N], T &total) { InclusiveScan(in, out, cub::Sum(), total); }
    template <int N, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void InclusiveSum(T (&in)[N], T (&out)[N], Prefix &prefix) { InclusiveScan(in, out, cub::Sum(), prefix); }
    template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N]) { ExclusiveScan(in, out, T(), cub::Sum()); }
    template <int N> void ExclusiveSum(T (&in)[N], T (&out)[N], T &total) { ExclusiveScan(in, out, T(), cub::Sum(), total); }
    template <int N, class Prefix, class = decltype(std::declval<Prefix &>()(std::declval<T>()))>
    void ExclusiveSum(T (&in)[N], T (&out)[N], Prefix &prefix) { ExclusiveScan(in, out, cub::Sum(), prefix); }

  private:
    static TempStorage &shared() {
        static thread_local TempStorage room;
        return room;
    }
    // The thread that comes last to the first barrier might be any: the first one does the work.
    template <class F> T scanned(T in, const T *first, F fold, T &total, bool inclusive) {
        room_.in[this_thread()] = in;
        __syncthreads();
        if (this_thread() == 0) {
            const int n = block_threads();
            T sum = in, before = first ? *first : in;
            for (int i = 0; i < n; i++) {
                if (i > 0) sum = fold(sum, room_.in[i]);
                if (inclusive) room_.out[i] = sum;
                else if (i > 0 || first) room_.out[i] = before;
                if (i > 0 || first) before = fold(before, room_.in[i]);
            }
            room_.ends[0] = sum;
        }
        __syncthreads();
        total = room_.ends[0];
        return inclusive || first || this_thread() ? room_.out[this_thread()] : in;
    }
    // What a function of the first warp says that comes before the block.
    template <class Prefix> T broadcast(Prefix &prefix, const T &total) {
        if (this_thread() < 32) {
            const T before = prefix(total);
            if (this_thread() == 0) room_.ends[1] = before;
        }
        __syncthreads();
        return room_.ends[1];
    }
    template <int N, class F> static void items(T (&in)[N], T (&out)[N], T before, F fold) {
        for (int i = 0; i < N; i++) {
            const T next = fold(before, in[i]);
            out[i] = before;
            before = next;
        }
    }
    TempStorage &room_;
};

// The order of keys by some of their bits, as numbers.
template <class K> auto ordered_bits(K key) {
    const auto bits = sapwood_cuda::same_bits<typename Traits<K>::UnsignedBits>(key);
    if (!std::is_integral_v<K> && bits == Traits<K>::HIGH_BIT) return bits; // -0 is the same as 0
    return Traits<K>::TwiddleIn(bits);
}
template <class K> struct ByBits {
    int first, count;
    bool descending;
    ByBits(int begin, int end, bool descending) : first(begin), count(end - begin), descending(descending) {}
    auto of(const K &key) const {
        auto bits = ordered_bits(key);
        typedef decltype(bits) Bits;
        bits = Bits(bits >> first);
        return count >= int(8 * sizeof(K)) ? bits : Bits(bits & ((Bits(1) << count) - 1));
    }
    bool operator()(const K &a, const K &b) const { return descending ? of(b) < of(a) : of(a) < of(b); }
};

// Where the threads of a block put what they hold, and one of them sorts it.
template <class K, class V, int Items> struct SortRoom {
    static_assert(Items <= 65536, "a block has at most 65536 items");
    Slots<K, Items> keys;
    Slots<V, Items> values;
    unsigned short order[Items];
    // Each thread gets items that follow each other, or those at `step` from each other.
    template <int N, class Less> void sort(K (&own)[N], V (&others)[N], Less less, int step = 1) {
        for (int i = 0; i < N; i++) {
            const int at = this_thread() * N + i;
            keys[at] = own[i], values[at] = others[i], order[at] = (unsigned short)at;
        }
        __syncthreads();
        if (this_thread() == 0) std::stable_sort(order, order + Items, [&](int a, int b) { return less(keys[a], keys[b]); });
        __syncthreads();
        for (int i = 0; i < N; i++) {
            const int from = order[(step == 1 ? this_thread() * N : this_thread()) + i * step];
            own[i] = keys[from], others[i] = values[from];
        }
    }
};
// Sorts what the threads of a block hold.
template <class K, int X, int N, class V = NullType, int = 4, bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS,
          int = 0, int Y = 1, int Z = 1, int = 0>
class BlockRadixSort {
    static constexpr int threads = X * Y * Z, items = threads * N;

  public:
    typedef SortRoom<K, V, items> TempStorage;
    explicit BlockRadixSort(TempStorage &room) : room_(room) {}
    BlockRadixSort() : room_(shared()) {}
    void Sort(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) { sort(keys, nothing(), begin, end, false, false); }
    void Sort(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) { sort(keys, values, begin, end, false, false); }
    void SortDescending(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) { sort(keys, nothing(), begin, end, true, false); }
    void SortDescending(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) {
        sort(keys, values, begin, end, true, false);
    }
    void SortBlockedToStriped(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) { sort(keys, nothing(), begin, end, false, true); }
    void SortBlockedToStriped(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) {
        sort(keys, values, begin, end, false, true);
    }
    void SortDescendingBlockedToStriped(K (&keys)[N], int begin = 0, int end = sizeof(K) * 8) {
        sort(keys, nothing(), begin, end, true, true);
    }
    void SortDescendingBlockedToStriped(K (&keys)[N], V (&values)[N], int begin = 0, int end = sizeof(K) * 8) {
        sort(keys, values, begin, end, true, true);
    }

  private:
    static TempStorage &shared() {
        static thread_local TempStorage room;
        return room;
    }
    static V (&nothing())[N] {
        static thread_local V none[N];
        return none;
    }
    void sort(K (&keys)[N], V (&values)[N], int begin, int end, bool descending, bool striped) {
        room_.sort(keys, values, ByBits<K>(begin, end, descending), striped ? threads : 1);
    }
    TempStorage &room_;
};

// Sorts by a function.
template <class K, int X, int N, class V = NullType, int Y = 1, int Z = 1> class BlockMergeSort {
    static constexpr int threads = X * Y * Z, items = threads * N;

  public:
    typedef SortRoom<K, V, items> TempStorage;
    explicit BlockMergeSort(TempStorage &room) : room_(room) {}
    template <class Less> void Sort(K (&keys)[N], Less less) {
        V none[N];
        Sort(keys, none, less);
    }
    template <class Less> void Sort(K (&keys)[N], V (&values)[N], Less less) { room_.sort(keys, values, less); }
    template <class Less> void StableSort(K (&keys)[N], Less less) { Sort(keys, less); }
    template <class Less> void StableSort(K (&keys)[N], V (&values)[N], Less less) { Sort(keys, values, less); }

  private:
    TempStorage &room_;
};

template <class T, int X, int N, bool = false, int Y = 1, int Z = 1, int = 0> class BlockExchange {
    static constexpr int threads = X * Y * Z;

  public:
    struct TempStorage { Slots<T, threads * N> slots; };
    explicit BlockExchange(TempStorage &room) : room_(room) {}
    void BlockedToStriped(T (&in)[N], T (&out)[N]) { exchange(in, out, blocked, striped); }
    void BlockedToStriped(T (&items)[N]) { BlockedToStriped(items, items); }
    void StripedToBlocked(T (&in)[N], T (&out)[N]) { exchange(in, out, striped, blocked); }
    void StripedToBlocked(T (&items)[N]) { StripedToBlocked(items, items); }
    void BlockedToWarpStriped(T (&in)[N], T (&out)[N]) { exchange(in, out, blocked, warp_striped); }
    void WarpStripedToBlocked(T (&in)[N], T (&out)[N]) { exchange(in, out, warp_striped, blocked); }
    template <class R> void ScatterToBlocked(T (&in)[N], T (&out)[N], R (&ranks)[N]) {
        exchange(in, out, [&](int i) { return int(ranks[i]); }, blocked);
    }
    template <class R> void ScatterToStriped(T (&in)[N], T (&out)[N], R (&ranks)[N]) {
        exchange(in, out, [&](int i) { return int(ranks[i]); }, striped);
    }

  private:
    static int blocked(int i) { return this_thread() * N + i; }
    static int striped(int i) { return this_thread() + i * threads; }
    static int warp_striped(int i) { return this_thread() / 32 * 32 * N + this_thread() % 32 + i * 32; }
    template <class From, class To> void exchange(T (&in)[N], T (&out)[N], From from, To to) {
        for (int i = 0; i < N; i++) room_.slots[from(i)] = in[i];
        __syncthreads();
        for (int i = 0; i < N; i++) out[i] = room_.slots[to(i)];
    }
    TempStorage &room_;
};

// Where neighbouring items differ.
template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockDiscontinuity {
  public:
    struct TempStorage { Slots<T, X * Y * Z> first, last; };
    explicit BlockDiscontinuity(TempStorage &room) : room_(room) {}
    template <int N, class Flag, class F> void FlagHeads(Flag (&heads)[N], T (&items)[N], F differ) {
        meet(items);
        for (int i = N - 1; i > 0; i--) heads[i] = differ(items[i - 1], items[i]);
        heads[0] = this_thread() ? Flag(differ(room_.last[this_thread() - 1], items[0])) : Flag(1);
    }
    template <int N, class Flag, class F> void FlagHeads(Flag (&heads)[N], T (&items)[N], F differ, T before) {
        FlagHeads(heads, items, differ);
        if (this_thread() == 0) heads[0] = differ(before, items[0]);
    }
    template <int N, class Flag, class F> void FlagTails(Flag (&tails)[N], T (&items)[N], F differ) {
        meet(items);
        for (int i = 0; i < N - 1; i++) tails[i] = differ(items[i], items[i + 1]);
        const int next = this_thread() + 1;
        tails[N - 1] = next < block_threads() ? Flag(differ(items[N - 1], room_.first[next])) : Flag(1);
    }
    template <int N, class Flag, class F>
    void FlagHeadsAndTails(Flag (&heads)[N], Flag (&tails)[N], T (&items)[N], F differ) {
        FlagHeads(heads, items, differ);
        __syncthreads();
        FlagTails(tails, items, differ);
    }

  private:
    template <int N> void meet(T (&items)[N]) {
        room_.first[this_thread()] = items[0], room_.last[this_thread()] = items[N - 1];
        __syncthreads();
    }
    TempStorage &room_;
};

// What each item differs from its neighbour by; an item without one is kept.
template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockAdjacentDifference {
  public:
    struct TempStorage { Slots<T, X * Y * Z> slots; };
    explicit BlockAdjacentDifference(TempStorage &room) : room_(room) {}
    template <int N, class Out, class F> void SubtractLeft(T (&in)[N], Out (&out)[N], F differ) {
        left(in, out, differ, block_threads() * N, nullptr);
    }
    template <int N, class Out, class F> void SubtractLeft(T (&in)[N], Out (&out)[N], F differ, T before) {
        left(in, out, differ, block_threads() * N, &before);
    }
    template <int N, class Out, class F> void SubtractLeftPartialTile(T (&in)[N], Out (&out)[N], F differ, int valid) {
        left(in, out, differ, valid, nullptr);
    }
    template <int N, class Out, class F>
    void SubtractLeftPartialTile(T (&in)[N], Out (&out)[N], F differ, int valid, T before) {
        left(in, out, differ, valid, &before);
    }
    template <int N, class Out, class F> void SubtractRight(T (&in)[N], Out (&out)[N], F differ) {
        right(in, out, differ, block_threads() * N, nullptr);
    }
    template <int N, class Out, class F> void SubtractRight(T (&in)[N], Out (&out)[N], F differ, T behind) {
        right(in, out, differ, block_threads() * N, &behind);
    }
    template <int N, class Out, class F> void SubtractRightPartialTile(T (&in)[N], Out (&out)[N], F differ, int valid) {
        right(in, out, differ, valid, nullptr);
    }

  private:
    template <int N, class Out, class F> void left(T (&in)[N], Out (&out)[N], F differ, int valid, T *before) {
        const int first = this_thread() * N;
        room_.slots[this_thread()] = in[N - 1];
        __syncthreads();
        for (int i = N - 1; i >= 0; i--) { // the two arrays may be one
            T *neighbour = i ? &in[i - 1] : first ? &room_.slots[this_thread() - 1] : before;
            out[i] = neighbour && first + i < valid ? Out(differ(in[i], *neighbour)) : Out(in[i]);
        }
    }
    template <int N, class Out, class F> void right(T (&in)[N], Out (&out)[N], F differ, int valid, T *behind) {
        const int first = this_thread() * N, all = block_threads() * N;
        room_.slots[this_thread()] = in[0];
        __syncthreads();
        for (int i = 0; i < N; i++) {
            T *neighbour = i < N - 1 ? &in[i + 1] : first + N < all ? &room_.slots[this_thread() + 1] : behind;
            const bool has_one = neighbour && (first + i + 1 < valid || (behind && first + i + 1 == all));
            out[i] = has_one ? Out(differ(in[i], *neighbour)) : Out(in[i]);
        }
    }
    TempStorage &room_;
};

template <class T, int X, int Y = 1, int Z = 1, int = 0> class BlockShuffle {
  public:
    struct TempStorage { Slots<T, X * Y * Z> slots; };
    explicit BlockShuffle(TempStorage &room) : room_(room) {}
    void Offset(T in, T &out, int by = 1) {
        meet(in);
        const int from = this_thread() + by;
        if (from >= 0 && from < block_threads()) out = room_.slots[from];
    }
    void Rotate(T in, T &out, unsigned by = 1) {
        meet(in);
        out = room_.slots[int((unsigned(this_thread()) + by) % unsigned(block_threads()))];
    }

  private:
    void meet(const T &value) {
        room_.slots[this_thread()] = value;
        __syncthreads();
    }
    TempStorage &room_;
};

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
template <class T, int X, int N, int Bins, BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int Y = 1, int Z = 1, int = 0>
class BlockHistogram : public WithoutRoom {
  public:
    using WithoutRoom::WithoutRoom;
    template <class C> void InitHistogram(C (&bins)[Bins]) {
        for (int i = this_thread(); i < Bins; i += block_threads()) bins[i] = 0;
    }
    template <class C> void Composite(T (&items)[N], C (&bins)[Bins]) {
        for (int i = 0; i < N; i++) sapwood_cuda::own::atomicAdd(&bins[items[i]], C(1));
        __syncthreads();
    }
    template <class C> void Histogram(T (&items)[N], C (&bins)[Bins]) {
        InitHistogram(bins);
        __syncthreads();
        Composite(items, bins);
    }
};

} // namespace cub
