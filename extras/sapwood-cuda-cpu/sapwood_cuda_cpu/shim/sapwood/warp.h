// What the lanes of a warp do together: shuffles, votes, match, reductions, __syncwarp.
#pragma once

#include <type_traits>

#include "block.h"
#include "memory.h"

namespace sapwood_cuda {

inline unsigned lane() { return self->rank % warp_size; }

// Brings the live lanes of `mask` together; the last one runs `finish` for all of them.
template <class Finish>
uint64_t collective(unsigned mask, uint64_t value, int source, const char *file, int line,
                    Finish finish) {
    Block &block = *self->block;
    Warp &warp = block.warps[self->rank / warp_size];
    unsigned own = self->rank % warp_size, bit = 1u << own;
    mask |= bit;
    warp.value[own] = value;
    warp.source[own] = source;
    warp.mask[own] = mask;
    warp.arrived |= bit;
    warp.released &= ~bit;
    warp.waiting |= bit;
    block.idle = 0;
    wait_at(block, file, line);
    while (!(warp.released & bit)) {
        unsigned wanted = mask & warp.alive;
        if ((warp.arrived & wanted) == wanted) {
            finish(warp, wanted);
            warp.arrived &= ~wanted;
            warp.waiting &= ~wanted;
            warp.released |= wanted;
            block.idle = 0;
            break;
        }
        yield(block);
    }
    return warp.result[own];
}

// Brings those lanes together that come to a place, and returns them: each waits until all others of
// the warp wait or are gone; where they wait to run in step at several places, the first one goes on.
inline unsigned converge(const char *file, int line, int place) {
    Block &block = *self->block;
    const unsigned own = self->rank % warp_size, bit = 1u << own;
    if (!block.running) return bit;
    Warp &warp = block.warps[self->rank / warp_size];
    warp.place[own] = place;
    warp.stepping |= bit;
    warp.waiting |= bit;
    block.idle = 0;
    wait_at(block, file, line);
    while (warp.stepping & bit) {
        if ((warp.waiting & warp.alive) != warp.alive) {
            yield(block);
            continue;
        }
        int first = place;
        for (unsigned rest = warp.stepping; rest; rest &= rest - 1)
            if (warp.place[__builtin_ctz(rest)] < first) first = warp.place[__builtin_ctz(rest)];
        unsigned together = 0;
        for (unsigned rest = warp.stepping; rest; rest &= rest - 1)
            if (warp.place[__builtin_ctz(rest)] == first) together |= rest & -rest;
        for (unsigned rest = together; rest; rest &= rest - 1) warp.result[__builtin_ctz(rest)] = together;
        warp.stepping &= ~together;
        warp.waiting &= ~together;
        block.idle = 0;
    }
    return unsigned(warp.result[own]);
}

template <class T> uint64_t pack(T value) {
    static_assert(sizeof(T) <= 8, "not supported on a CPU node: a warp operation on more than 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T> T unpack(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(T));
    return value;
}

inline void give_sources(Warp &warp, unsigned lanes) {
    for (unsigned rest = lanes; rest; rest &= rest - 1) {
        int to = __builtin_ctz(rest);
        int from = warp.source[to];
        warp.result[to] = lanes >> from & 1u ? warp.value[from] : 0; // not defined on a GPU
    }
}

inline void give_all(Warp &warp, unsigned lanes, uint64_t result) {
    for (unsigned rest = lanes; rest; rest &= rest - 1) warp.result[__builtin_ctz(rest)] = result;
}

inline int source_idx(int own, int from, int width) { return (own & ~(width - 1)) | (from & (width - 1)); }
inline int source_up(int own, int delta, int width) { // the instructions take the amount modulo 32
    const int by = delta & (warp_size - 1);
    return (own & (width - 1)) >= by ? own - by : own;
}
inline int source_down(int own, int delta, int width) {
    const int by = delta & (warp_size - 1);
    return (own & (width - 1)) + by < width ? own + by : own;
}
inline int source_xor(int own, int mask, int width) {
    const int from = own ^ (mask & (warp_size - 1));
    return from > (own | (width - 1)) ? own : from;
}

template <class T> T shuffle(unsigned mask, T value, int source, const char *file, int line) {
    static_assert(std::is_trivially_copyable_v<T>, "a shuffle copies bytes");
    if constexpr (sizeof(T) <= 8) {
        return unpack<T>(collective(mask, pack(value), source & 31, file, line, give_sources));
    } else { // tiles exchange larger values, one word after the other
        uint64_t words[(sizeof(T) + 7) / 8] = {};
        memcpy(words, &value, sizeof(T));
        for (uint64_t &word : words) word = collective(mask, word, source & 31, file, line, give_sources);
        memcpy(&value, words, sizeof(T));
        return value;
    }
}

inline unsigned ballot(unsigned mask, int predicate, const char *file, int line) {
    return unsigned(collective(mask, predicate != 0, 0, file, line, [](Warp &warp, unsigned lanes) {
        unsigned bits = 0;
        for (unsigned rest = lanes; rest; rest &= rest - 1) {
            int from = __builtin_ctz(rest);
            bits |= unsigned(warp.value[from]) << from;
        }
        give_all(warp, lanes, bits);
    }));
}

template <class T, class Fold>
T reduce(unsigned mask, T value, const char *file, int line, Fold fold) {
    auto finish = [&](Warp &warp, unsigned lanes) {
        T total = unpack<T>(warp.value[__builtin_ctz(lanes)]);
        for (unsigned rest = lanes & (lanes - 1); rest; rest &= rest - 1)
            total = fold(total, unpack<T>(warp.value[__builtin_ctz(rest)]));
        give_all(warp, lanes, pack(total));
    };
    return unpack<T>(collective(mask, pack(value), 0, file, line, finish));
}

} // namespace sapwood_cuda

#define SAPWOOD_SHUFFLE(name, how, argument)                                                     \
    template <class T>                                                                           \
    T name##_sync(unsigned mask, T value, argument, int width = 32, SAPWOOD_PLACE) {             \
        int source = ::sapwood_cuda::how(::sapwood_cuda::lane(), int(from), width);              \
        return ::sapwood_cuda::shuffle(mask, value, source, file, line);                         \
    }
SAPWOOD_SHUFFLE(__shfl, source_idx, int from)
SAPWOOD_SHUFFLE(__shfl_up, source_up, unsigned from)
SAPWOOD_SHUFFLE(__shfl_down, source_down, unsigned from)
SAPWOOD_SHUFFLE(__shfl_xor, source_xor, int from)
#undef SAPWOOD_SHUFFLE

inline void __syncwarp(unsigned mask = ~0u, SAPWOOD_PLACE) {
    ::sapwood_cuda::collective(mask, 0, 0, file, line, [](::sapwood_cuda::Warp &, unsigned) {});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SAPWOOD_PLACE) {
    return ::sapwood_cuda::ballot(mask, predicate, file, line);
}
inline int __any_sync(unsigned mask, int predicate, SAPWOOD_PLACE) {
    return ::sapwood_cuda::ballot(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, SAPWOOD_PLACE) {
    return ::sapwood_cuda::ballot(mask, !predicate, file, line) == 0;
}
inline unsigned __activemask(SAPWOOD_PLACE) { return ::sapwood_cuda::converge(file, line, line); }
// What patched sources call where they rely on lanes in step.
inline void __sapwood_in_step(int place, SAPWOOD_PLACE) { ::sapwood_cuda::converge(file, line, place); }
template <class T> unsigned __match_any_sync(unsigned mask, T value, SAPWOOD_PLACE) {
    using namespace ::sapwood_cuda;
    auto finish = [](Warp &warp, unsigned lanes) {
        for (unsigned a = lanes; a; a &= a - 1) {
            unsigned same = 0, to = __builtin_ctz(a);
            for (unsigned b = lanes; b; b &= b - 1)
                same |= unsigned(warp.value[__builtin_ctz(b)] == warp.value[to]) << __builtin_ctz(b);
            warp.result[to] = same;
        }
    };
    return unsigned(collective(mask, pack(value), 0, file, line, finish));
}
template <class T> unsigned __match_all_sync(unsigned mask, T value, int *all, SAPWOOD_PLACE) {
    unsigned same = __match_any_sync(mask, value, file, line);
    *all = __all_sync(mask, (same & mask) == same && __builtin_popcount(same) ==
                      __builtin_popcount(__ballot_sync(mask, 1, file, line)), file, line);
    return *all ? same : 0;
}
#define SAPWOOD_REDUCE(name, types, expression)                                                  \
    template <class T> T __reduce_##name##_sync(unsigned mask, T value, SAPWOOD_PLACE) {         \
        return ::sapwood_cuda::reduce(mask, value, file, line,                                   \
                                      [](T a, T b) -> T { return expression; });                 \
    }
SAPWOOD_REDUCE(add, T, a + b)
SAPWOOD_REDUCE(min, T, a < b ? a : b)
SAPWOOD_REDUCE(max, T, a > b ? a : b)
SAPWOOD_REDUCE(and, T, a & b)
SAPWOOD_REDUCE(or, T, a | b)
SAPWOOD_REDUCE(xor, T, a ^ b)
#undef SAPWOOD_REDUCE
