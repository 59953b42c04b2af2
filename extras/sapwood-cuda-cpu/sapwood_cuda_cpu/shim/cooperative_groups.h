// Cooperative groups of one block: the block, tiles of a warp, coalesced threads.
#pragma once

#include "cuda_runtime.h"

namespace cooperative_groups {

class thread_block {
  public:
    static void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        sapwood_cuda::barrier(1, file, line);
    }
    static unsigned thread_rank() { return sapwood_cuda::self->rank; }
    static unsigned size() { return sapwood_cuda::self->block->threads; }
    static unsigned num_threads() { return size(); }
    static dim3 thread_index() { return sapwood_cuda::self->index; }
    static dim3 group_index() { return sapwood_cuda::self->block->index; }
    static dim3 dim_threads() { return sapwood_cuda::self->block->size; }
    static dim3 group_dim() { return sapwood_cuda::self->block->size; }
};
inline thread_block this_thread_block() { return {}; }

// All blocks of a launch; they can meet if it is cooperative.
class grid_group {
  public:
    static void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        __sapwood_grid_sync(file, line);
    }
    static unsigned long long block_rank() {
        const uint3 b = sapwood_cuda::self->block->index;
        const dim3 n = sapwood_cuda::self->block->grid;
        return b.x + static_cast<unsigned long long>(n.x) * (b.y + static_cast<unsigned long long>(n.y) * b.z);
    }
    static unsigned long long num_blocks() {
        const dim3 n = sapwood_cuda::self->block->grid;
        return static_cast<unsigned long long>(n.x) * n.y * n.z;
    }
    static unsigned long long thread_rank() { return block_rank() * thread_block::size() + thread_block::thread_rank(); }
    static unsigned long long size() { return num_blocks() * thread_block::size(); }
    static unsigned long long num_threads() { return size(); }
    static dim3 group_dim() { return sapwood_cuda::self->block->grid; }
    static dim3 dim_blocks() { return group_dim(); }
    static dim3 block_index() { return sapwood_cuda::self->block->index; }
    static bool is_valid() { return sapwood_cuda::self->block->meeting != nullptr; }
};
inline grid_group this_grid() { return {}; }

// Lanes of one warp, given by their mask.
class lane_group {
  public:
    explicit lane_group(unsigned mask = 1, unsigned parts = 1, unsigned part = 0)
        : mask_(mask), parts_(parts), part_(part) {}
    void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) const {
        __syncwarp(mask_, file, line);
    }
    unsigned thread_rank() const {
        return unsigned(__builtin_popcount(mask_ & ((1u << sapwood_cuda::lane()) - 1)));
    }
    unsigned size() const { return unsigned(__builtin_popcount(mask_)); }
    unsigned num_threads() const { return size(); }
    unsigned meta_group_size() const { return parts_; }
    unsigned meta_group_rank() const { return part_; }
    template <class T> T shfl(T value, int from) const { return pick(value, unsigned(from) % size()); }
    template <class T> T shfl_down(T value, unsigned n) const {
        return pick(value, thread_rank() + n < size() ? thread_rank() + n : thread_rank());
    }
    template <class T> T shfl_up(T value, unsigned n) const {
        return pick(value, thread_rank() >= n ? thread_rank() - n : thread_rank());
    }
    template <class T> T shfl_xor(T value, unsigned n) const {
        return pick(value, (thread_rank() ^ n) < size() ? thread_rank() ^ n : thread_rank());
    }
    int any(int predicate) const { return ballot(predicate) != 0; }
    int all(int predicate) const { return ballot(!predicate) == 0; }
    unsigned ballot(int predicate) const { return gather(__ballot_sync(mask_, predicate)); }
    template <class T> unsigned match_any(T value) const { return gather(__match_any_sync(mask_, value)); }
    unsigned mask() const { return mask_; }

  private:
    template <class T> T pick(T value, unsigned rank) const {
        unsigned rest = mask_;
        for (; rank; rank--) rest &= rest - 1;
        return __shfl_sync(mask_, value, __builtin_ctz(rest));
    }
    unsigned gather(unsigned lanes) const { // lanes of the warp to ranks of the group
        unsigned ranks = 0, rank = 0;
        for (unsigned rest = mask_; rest; rest &= rest - 1, rank++)
            ranks |= (lanes >> __builtin_ctz(rest) & 1u) << rank;
        return ranks;
    }
    unsigned mask_, parts_, part_;
};

// Any group: the whole block, or lanes of a warp.
class thread_group {
  public:
    thread_group(thread_block) : block_(true) {}
    thread_group(const lane_group &lanes) : block_(false), lanes_(lanes) {}
    void sync(const char *file = __builtin_FILE(), int line = __builtin_LINE()) const {
        block_ ? thread_block::sync(file, line) : lanes_.sync(file, line);
    }
    unsigned thread_rank() const { return block_ ? thread_block::thread_rank() : lanes_.thread_rank(); }
    unsigned size() const { return block_ ? thread_block::size() : lanes_.size(); }
    unsigned num_threads() const { return size(); }
    unsigned mask() const { return lanes_.mask(); }
    bool is_block() const { return block_; }
    const lane_group &lanes() const { return lanes_; }

  private:
    bool block_;
    lane_group lanes_;
};
class coalesced_group : public lane_group {
  public:
    using lane_group::lane_group;
};
template <unsigned N, class Parent = thread_block> class thread_block_tile : public lane_group {
  public:
    static_assert(N >= 1 && N <= 32 && (N & (N - 1)) == 0, "a tile has 1, 2, 4, 8, 16 or 32 threads");
    using lane_group::lane_group;
    template <class Other>
    thread_block_tile(const thread_block_tile<N, Other> &other) : lane_group(other) {}
    static constexpr unsigned size() { return N; }
    static constexpr unsigned num_threads() { return N; }
};

inline lane_group tile_of(const thread_block &block, unsigned n) {
    unsigned first = sapwood_cuda::lane() & ~(n - 1), all = n == 32 ? ~0u : ((1u << n) - 1) << first;
    unsigned rank = block.thread_rank(), threads = block.size(), warp = rank / 32 * 32;
    unsigned mask = threads - warp >= 32 ? all : all & ((1u << (threads - warp)) - 1);
    return lane_group(mask, (threads + n - 1) / n, rank / n);
}
inline lane_group tile_of(const lane_group &lanes, unsigned n) {
    unsigned mask = 0, part = lanes.thread_rank() / n, rank = 0;
    for (unsigned rest = lanes.mask(); rest; rest &= rest - 1, rank++)
        if (rank / n == part) mask |= rest & -rest;
    return lane_group(mask, (lanes.size() + n - 1) / n, part);
}
inline lane_group tile_of(const thread_group &group, unsigned n) {
    return group.is_block() ? tile_of(thread_block(), n) : tile_of(group.lanes(), n);
}

template <unsigned N, class Parent> thread_block_tile<N, Parent> tiled_partition(const Parent &parent) {
    const lane_group tile = tile_of(parent, N);
    return thread_block_tile<N, Parent>(tile.mask(), tile.meta_group_size(), tile.meta_group_rank());
}
template <class Parent> thread_group tiled_partition(const Parent &parent, unsigned n) { return tile_of(parent, n); }

// The lanes that come to this place.
inline coalesced_group coalesced_threads(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return coalesced_group(sapwood_cuda::converge(file, line, line));
}

// The lanes of a group that say the same.
template <class Group> coalesced_group binary_partition(const Group &group, bool part) {
    unsigned lanes = __ballot_sync(group.mask(), part);
    return coalesced_group(part ? lanes : group.mask() & ~lanes);
}
template <class Group, class T> coalesced_group labeled_partition(const Group &group, T label) {
    return coalesced_group(__match_any_sync(group.mask(), label));
}

inline unsigned thread_rank(const thread_group &group) { return group.thread_rank(); }
inline unsigned group_size(const thread_group &group) { return group.size(); }

template <class Group> void sync(const Group &group, const char *file = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    group.sync(file, line);
}

template <class T> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

template <class Group, class T, class Fold> T inclusive_scan(const Group &group, T value, Fold fold) {
    const unsigned rank = group.thread_rank(), size = group.size();
    for (unsigned d = 1; d < size; d *= 2) {
        T other = group.shfl_up(value, d);
        if (rank >= d) value = fold(other, value);
    }
    return value;
}
template <class Group, class T> T inclusive_scan(const Group &group, T value) {
    return inclusive_scan(group, value, plus<T>());
}
template <class Group, class T, class Fold> T exclusive_scan(const Group &group, T value, Fold fold) {
    T all = inclusive_scan(group, value, fold), before = group.shfl_up(all, 1);
    return group.thread_rank() ? before : T();
}
template <class Group, class T> T exclusive_scan(const Group &group, T value) {
    return exclusive_scan(group, value, plus<T>());
}

template <class Group, class T, class Fold>
T reduce(const Group &group, T value, Fold fold, const char *file = __builtin_FILE(),
         int line = __builtin_LINE()) {
    return sapwood_cuda::reduce(group.mask(), value, file, line, fold);
}

} // namespace cooperative_groups
