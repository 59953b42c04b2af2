// What kernels need that were cut at barriers into loops over the block's threads.
#pragma once

#include "launch.h"
#include "spans.h"

// Asks for vectors in the loop over threads, where the compiler finds at run time that arrays do not overlap. It must
// not be told that threads are independent (assume_safety, ivdep), although they are: both compilers then also change
// the order of one thread's own accesses to a place that it knows under two names.
#if defined(__clang__)
#define SAPWOOD_VECTORS _Pragma("clang loop vectorize(enable) interleave(enable)")
#define SAPWOOD_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define SAPWOOD_ROLLED
#define SAPWOOD_VECTORS
#endif

namespace sapwood_cuda {

// Coordinates and sizes of the block, as plain integers for the compiler.
struct BlockView {
    int bx, by, bz, sx, sy, sz, gx, gy, gz, threads;
};

inline BlockView view() {
    const Block &b = *self->block;
    return {int(b.index.x), int(b.index.y), int(b.index.z), int(b.size.x), int(b.size.y), int(b.size.z),
            int(b.grid.x),  int(b.grid.y),  int(b.grid.z),  int(b.threads)};
}

// Whether something holds for all threads of the block.
inline bool all_are(const bool *flags) {
    for (unsigned i = 0; i < self->block->threads; i++)
        if (!flags[i]) return false;
    return true;
}

// Several blocks of a row as one larger block, for kernels that cannot tell; `whole_rows` says that
// they count the blocks of a row.
constexpr unsigned most_merged_threads = 16384;
inline BlockView merged_view(bool whole_rows) {
    Block &b = *self->block;
    unsigned n = most_merged;
    while (n > 1 && (n > b.may_merge || b.index.x % n || n * b.threads > most_merged_threads || (whole_rows && b.grid.x % n)))
        n /= 2;
    b.merged = n;
    BlockView one = view();
    one.bx /= int(n), one.gx /= int(n), one.sx *= int(n), one.threads *= int(n);
    return one;
}

// Asks for the memory that the next blocks read where this one reads `array[index + x]`.
constexpr uintptr_t asked_ahead = 4096;
template <class T, class I> inline __attribute__((always_inline)) void ask_ahead(const T *array, I index, int count) {
    const uintptr_t first = uintptr_t(array) + uintptr_t(index) * sizeof(T) + asked_ahead;
    for (uintptr_t i = 0; i < unsigned(count) * sizeof(T); i += 64) __builtin_prefetch(reinterpret_cast<const void *>(first + i));
}

// Asks for the memory that the second round from now of a grid-stride loop reads: its rounds are far apart.
template <class T, class I, class S>
inline __attribute__((always_inline)) void ask_for_round(const T *array, I index, S step, int count) {
    if constexpr (sizeof(T) <= 64) {
        const uintptr_t first = uintptr_t(array) + (uintptr_t(index) + 2 * uintptr_t(step)) * sizeof(T);
        for (uintptr_t i = 0; i < unsigned(count) * sizeof(T); i += 64) __builtin_prefetch(reinterpret_cast<const void *>(first + i));
    }
}

// For device functions that ask which thread they are in.
inline void enter_thread(int x, int y, int z, int rank) {
    self->index = uint3{unsigned(x), unsigned(y), unsigned(z)};
    self->rank = unsigned(rank);
}

// The threads that do the rounds of a grid-stride loop next: the whole block together, or each on its own.
struct Turn { int x, y, z, x_end, y_end, z_end; bool together; };
SAPWOOD_HERE Turn first_turn(const BlockView &b, bool together) {
    return together ? Turn{0, 0, 0, b.sx, b.sy, b.sz, true} : Turn{0, 0, 0, 1, 1, 1, false};
}
SAPWOOD_HERE Turn next_turn(const BlockView &b, Turn turn) {
    if (turn.together) turn.z = b.sz;
    else if (++turn.x == b.sx && (turn.x = 0, ++turn.y == b.sy)) turn.y = 0, ++turn.z;
    turn.x_end = turn.x + 1, turn.y_end = turn.y + 1, turn.z_end = turn.z + 1;
    return turn;
}

// How many of a row's threads, counted from the first, satisfy `first + x < end`, where no sum wraps.
template <class A, class B> SAPWOOD_HERE int limit(int size, A first, B end) {
    if constexpr (are_counted<A, B>) {
        using C = sum_of<A, B>;
        const C from = C(first), to = C(end);
        const uint64_t gap = from < to ? uint64_t(to) - uint64_t(from) : 0;
        return gap < uint64_t(size) ? int(gap) : size;
    } else {
        return size;
    }
}

// Warp operations of kernels that are cut: every thread has written its value to an array, of a shuffle one warp behind
// its beginning. So the neighbours that a shuffle reads are a row of memory wherever all threads shift by the same, and
// compilers load that as a whole; which lanes keep their own value is chosen behind that.
constexpr int exchange_first = warp_size;
constexpr int exchange_size = exchange_first + int(max_threads) + warp_size; // what is read beyond a warp is not used

// The lane of each thread, as a table: compilers compute it with 64 bits for each thread, as wide as an address.
struct Lanes {
    unsigned char of[max_threads];
    constexpr Lanes() : of() {
        for (unsigned rank = 0; rank < max_threads; rank++) of[rank] = (unsigned char)(rank % warp_size);
    }
};
inline constexpr Lanes lanes;

template <class T> inline T exchange_idx(const T *values, int rank, int from, int width = warp_size) {
    return values[exchange_first + ((rank & ~(width - 1)) | (from & (width - 1)))];
}
template <class T> inline T exchange_up(const T *values, int rank, int delta, int width = warp_size) {
    const int by = delta & (warp_size - 1);
    const T own = values[exchange_first + rank], other = values[exchange_first + rank - by];
    return (lanes.of[rank] & (width - 1)) >= by ? other : own;
}
template <class T> inline T exchange_down(const T *values, int rank, int delta, int width = warp_size) {
    const int by = delta & (warp_size - 1);
    const T own = values[exchange_first + rank], other = values[exchange_first + rank + by];
    return (lanes.of[rank] & (width - 1)) < width - by ? other : own;
}
inline bool is_one_lane(int mask) { return ((mask & (warp_size - 1)) & ((mask & (warp_size - 1)) - 1)) == 0; }
// `one` says that the mask is known to be one bit at most: then it is a neighbour, above or below.
template <class T> inline T exchange_xor(bool one, const T *values, int rank, int mask, int width = warp_size) {
    const int bits = mask & (warp_size - 1), lane = lanes.of[rank];
    const T own = values[exchange_first + rank];
    if (one) {
        const T below = values[exchange_first + rank - bits], above = values[exchange_first + rank + bits];
        const T other = bits < width ? above : own;
        return lane & bits ? below : other;
    }
    const T other = values[exchange_first + (rank ^ bits)];
    return (lane ^ bits) > (lane | (width - 1)) ? own : other;
}
template <class T> inline T exchange_xor(const T *values, int rank, int mask, int width = warp_size) {
    return exchange_xor(false, values, rank, mask, width);
}
inline unsigned exchange_ballot(const unsigned char *values, int rank, unsigned mask, int threads) {
    int first = rank & ~(warp_size - 1), count = threads - first < warp_size ? threads - first : warp_size;
    unsigned bits = 0;
    for (int lane = 0; lane < count; lane++) bits |= unsigned(values[first + lane]) << lane;
    return bits & mask;
}
inline int block_count(const unsigned char *said, int threads) {
    int count = 0;
    for (int i = 0; i < threads; i++) count += said[i];
    return count;
}
inline unsigned tile_lanes(unsigned rank, unsigned width) {
    return width == warp_size ? ~0u : ((1u << width) - 1) << (rank % warp_size & ~(width - 1));
}
// Whether all lanes came that an operation under a condition waits for.
inline void require_lanes(const unsigned char *came, int rank, unsigned mask, int threads,
                          const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    unsigned there = threads - (rank & ~(warp_size - 1)) >= warp_size ? ~0u : (1u << (threads % warp_size)) - 1;
    if (exchange_ballot(came, rank, mask & there, threads) != (mask & there))
        report_failure(*self->block, worded("deadlock in kernel %s: %s:%d: a thread waits for threads that will not come",
                                          self->block->kernel->c_str(), file, line));
}
inline int exchange_any(const unsigned char *values, int rank, unsigned mask, int threads) {
    return exchange_ballot(values, rank, mask, threads) != 0;
}
inline int exchange_none(const unsigned char *values, int rank, unsigned mask, int threads) {
    return exchange_ballot(values, rank, mask, threads) == 0;
}
// Of a shuffle to which all threads write: the lanes of the last warp that there are not give 0.
template <class T> inline void clear_exchange_end(T *values, int threads) {
    for (int i = 0; i < warp_size; i++) values[exchange_first + threads + i] = T();
}
inline void clear_exchange(unsigned char *values) { memset(values, 0, exchange_size); }

// Which of a warp's lanes there are, of those of a mask.
inline unsigned exchange_lanes(int rank, unsigned mask, int threads) {
    const int left = threads - (rank & ~(warp_size - 1));
    return left >= warp_size ? mask : mask & ((1u << left) - 1);
}
struct Add { template <class T> T operator()(T a, T b) const { return a + b; } };
struct Min { template <class T> T operator()(T a, T b) const { return a < b ? a : b; } };
struct Max { template <class T> T operator()(T a, T b) const { return a > b ? a : b; } };
struct And { template <class T> T operator()(T a, T b) const { return a & b; } };
struct Or { template <class T> T operator()(T a, T b) const { return a | b; } };
struct Xor { template <class T> T operator()(T a, T b) const { return a ^ b; } };
template <class T, class Fold> inline T exchange_fold(const T *values, int rank, unsigned mask, int threads, Fold fold) {
    const T *warp = values + (rank & ~(warp_size - 1));
    unsigned rest = exchange_lanes(rank, mask, threads);
    if (rest == ~0u) { // what compilers vectorise
        T total = warp[0];
        for (int lane = 1; lane < warp_size; lane++) total = fold(total, warp[lane]);
        return total;
    }
    T total = warp[__builtin_ctz(rest)];
    for (rest &= rest - 1; rest; rest &= rest - 1) total = fold(total, warp[__builtin_ctz(rest)]);
    return total;
}
template <class T> inline unsigned exchange_match(const T *values, int rank, unsigned mask, int threads) {
    const T *warp = values + (rank & ~(warp_size - 1));
    unsigned same = 0;
    if constexpr (std::is_integral_v<T>) {
        if (exchange_lanes(rank, mask, threads) == ~0u) { // what compilers vectorise
            for (int lane = 0; lane < warp_size; lane++) same |= unsigned(warp[lane] == values[rank]) << lane;
            return same;
        }
    }
    for (unsigned rest = exchange_lanes(rank, mask, threads); rest; rest &= rest - 1)
        same |= unsigned(!memcmp(warp + __builtin_ctz(rest), values + rank, sizeof(T))) << __builtin_ctz(rest);
    return same;
}
template <class T> inline unsigned exchange_match_all(const T *values, int rank, unsigned mask, int threads, int *all) {
    const unsigned lanes = exchange_lanes(rank, mask, threads);
    *all = exchange_match(values, rank, mask, threads) == lanes;
    return *all ? lanes : 0;
}

} // namespace sapwood_cuda
