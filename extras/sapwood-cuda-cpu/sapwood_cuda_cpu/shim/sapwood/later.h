// Atomic additions whose old values nobody asks for, at places that nothing else of the kernel uses:
// each worker adds up on its own, and adds its sums to memory at the end of the launch.
#pragma once

#include "atomics.h"

namespace sapwood_cuda {

template <class T> constexpr int sums_slot =
    std::is_same_v<T, int> ? 0 : std::is_same_v<T, unsigned> ? 1 : std::is_same_v<T, float> ? 2 :
    std::is_same_v<T, double> ? 3 : std::is_same_v<T, unsigned long long> ? 4 : -1;

template <class T> class Sums : public SumsBase {
  public:
    // Adds to a copy of the memory's line of 64 bytes.
    void add(T *address, T value) {
        const uintptr_t place = uintptr_t(address) / 64;
        const unsigned slot = place % count;
        if (__builtin_expect(places_[slot] != place, 0) && !take(slot, place)) {
            atomicAdd(address, value);
            return;
        }
        sums_[slot][uintptr_t(address) % 64 / sizeof(T)] += value;
    }

    void flush() override {
        for (unsigned slot = 0; slot < count; slot++) write(slot);
        direct_ = false;
        written_ = useful_ = 0;
    }

  private:
    static constexpr unsigned count = 256, width = 64 / sizeof(T);

    // Whether a line of memory has its copy here now.
    __attribute__((noinline)) bool take(unsigned slot, uintptr_t place) {
        if (direct_) return false;
        write(slot);
        places_[slot] = place;
        return true;
    }

    void write(unsigned slot) {
        if (!places_[slot]) return;
        T *to = reinterpret_cast<T *>(places_[slot] * 64);
        for (unsigned i = 0; i < width; i++) {
            if (sums_[slot][i] == T(0)) continue;
            atomicAdd(to + i, sums_[slot][i]);
            sums_[slot][i] = T(0);
            useful_++;
        }
        places_[slot] = 0;
        if (++written_ % 1024 == 0) { // additions all over the memory: it is no use to wait
            direct_ = useful_ < 4 * 1024;
            useful_ = 0;
        }
    }

    alignas(64) T sums_[count][width] = {};
    uintptr_t places_[count] = {};
    unsigned written_ = 0, useful_ = 0;
    bool direct_ = false;
};

// What a kernel adds to one of its arrays.
template <class T> class Later {
  public:
    explicit Later(bool at_once) {
        if constexpr (sums_slot<T> >= 0) {
            if (at_once) return;
            auto &sums = self->block->sums[sums_slot<T>];
            if (!sums) sums = std::make_unique<Sums<T>>();
            sums_ = static_cast<Sums<T> *>(sums.get());
        }
    }
    template <class A, class V> void add(A *address, V value) const {
        if constexpr (std::is_same_v<A, T> && sums_slot<T> >= 0) {
            if (sums_) {
                sums_->add(address, T(value));
                return;
            }
        }
        atomicAdd(address, value);
    }

  private:
    Sums<T> *sums_ = nullptr;
};
// An array that the kernel has under another name too is added to at once.
template <class T, class... Others> Later<std::remove_all_extents_t<T>> later(T *place, Others... others) {
    const void *own = place;
    return Later<std::remove_all_extents_t<T>>(alone || (... || (own == (const void *)others)));
}

} // namespace sapwood_cuda
