// libcu++: cuda::std is the standard library; atomic objects and function objects of cuda.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <cassert>
#include <cfloat>
#include <chrono>
#include <climits>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <ratio>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>

#include "../cuda_runtime.h"

namespace cuda {
namespace std {
using namespace ::std;
}

// Of a processor, whose memory is coherent: each scope is the widest.
enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };
using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_consume;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;
inline void atomic_thread_fence(memory_order, thread_scope = thread_scope_system) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Indivisible changes, all in one order, of what `place()` of a class points to.
namespace detail {
template <class Own, class T> class Atomic {
    static_assert(::std::is_trivially_copyable_v<T> && (sizeof(T) & (sizeof(T) - 1)) == 0 && sizeof(T) <= 8,
                  "cuda::atomic needs a type of 1, 2, 4 or 8 bytes that may be copied as bytes");

  public:
    typedef T value_type;
    static constexpr bool is_always_lock_free = true;
    static constexpr size_t required_alignment = sizeof(T);
    bool is_lock_free() const { return true; }
    T load(memory_order = memory_order_seq_cst) const {
        const T seen = now();
        if (::sapwood_cuda::self) ::sapwood_cuda::spin(); // a thread that waits for another value reads again
        return seen;
    }
    operator T() const { return load(); }
    void store(T value, memory_order = memory_order_seq_cst) const { __atomic_store(at(), &value, __ATOMIC_SEQ_CST); }
    T exchange(T value, memory_order = memory_order_seq_cst) const {
        T old;
        __atomic_exchange(at(), &value, &old, __ATOMIC_SEQ_CST);
        if (!memcmp(&old, &value, sizeof(T))) ::sapwood_cuda::spin(); // a lock that was not free
        return old;
    }
    bool compare_exchange_strong(T &expected, T value, memory_order = memory_order_seq_cst, memory_order = memory_order_seq_cst) const {
        const bool changed = __atomic_compare_exchange(at(), &expected, &value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        if (!changed) ::sapwood_cuda::spin();
        return changed;
    }
    bool compare_exchange_weak(T &expected, T value, memory_order a = memory_order_seq_cst, memory_order b = memory_order_seq_cst) const {
        return compare_exchange_strong(expected, value, a, b);
    }
    void wait(T old, memory_order = memory_order_seq_cst) const {
        for (T seen = now(); !memcmp(&seen, &old, sizeof(T)); seen = now()) ::sapwood_cuda::spin();
    }
    void notify_one() const {}
    void notify_all() const {}
#define SAPWOOD_FETCH(name, expression)                                                          \
    template <class V> T name(V operand, memory_order = memory_order_seq_cst) const {            \
        T old = now(), fresh;                                                                    \
        do fresh = T(expression);                                                                \
        while (!__atomic_compare_exchange(at(), &old, &fresh, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)); \
        return old;                                                                              \
    }
    SAPWOOD_FETCH(fetch_add, old + operand)
    SAPWOOD_FETCH(fetch_sub, old - operand)
    SAPWOOD_FETCH(fetch_and, old & T(operand))
    SAPWOOD_FETCH(fetch_or, old | T(operand))
    SAPWOOD_FETCH(fetch_xor, old ^ T(operand))
    SAPWOOD_FETCH(fetch_min, T(operand) < old ? T(operand) : old)
    SAPWOOD_FETCH(fetch_max, old < T(operand) ? T(operand) : old)
#undef SAPWOOD_FETCH
    template <class V> T operator+=(V value) const { return T(fetch_add(value) + value); }
    template <class V> T operator-=(V value) const { return T(fetch_sub(value) - value); }
    template <class V> T operator&=(V value) const { return T(fetch_and(value) & T(value)); }
    template <class V> T operator|=(V value) const { return T(fetch_or(value) | T(value)); }
    template <class V> T operator^=(V value) const { return T(fetch_xor(value) ^ T(value)); }
    T operator++() const { return T(fetch_add(1) + 1); }
    T operator--() const { return T(fetch_sub(1) - 1); }
    T operator++(int) const { return fetch_add(1); }
    T operator--(int) const { return fetch_sub(1); }

  private:
    T *at() const { return static_cast<const Own *>(this)->place(); }
    T now() const {
        T seen;
        __atomic_load(at(), &seen, __ATOMIC_SEQ_CST);
        return seen;
    }
};
} // namespace detail
// Changes an object that lives elsewhere.
template <class T, thread_scope Scope = thread_scope_system> class atomic_ref : public detail::Atomic<atomic_ref<T, Scope>, T> {
  public:
    explicit atomic_ref(T &object) : at_(&object) {}
    T *place() const { return at_; }
    T operator=(T value) const { return this->store(value), value; }

  private:
    T *at_;
};
// Holds its value, and nothing else: memory of zeros is an array of them.
template <class T, thread_scope Scope = thread_scope_system> class atomic : public detail::Atomic<atomic<T, Scope>, T> {
  public:
    atomic() = default;
    constexpr atomic(T value) : value_(value) {}
    atomic(const atomic &) = delete;
    atomic &operator=(const atomic &) = delete;
    T *place() const { return &value_; }
    T operator=(T value) { return this->store(value), value; }

  private:
    alignas(sizeof(T)) mutable T value_;
};

template <class T = void> struct maximum {
    constexpr T operator()(const T &a, const T &b) const { return a < b ? b : a; }
};
template <class T = void> struct minimum {
    constexpr T operator()(const T &a, const T &b) const { return b < a ? b : a; }
};
template <> struct maximum<void> {
    template <class A, class B> constexpr ::std::common_type_t<A, B> operator()(const A &a, const B &b) const { return a < b ? b : a; }
};
template <> struct minimum<void> {
    template <class A, class B> constexpr ::std::common_type_t<A, B> operator()(const A &a, const B &b) const { return b < a ? b : a; }
};
template <class Result, class F> auto proclaim_return_type(F function) {
    return [function](auto &&...arguments) -> Result { return function(::std::forward<decltype(arguments)>(arguments)...); };
}
template <class A, class B> constexpr auto ceil_div(A n, B d) { return n / d + (n % d != 0); }
template <class A, class B> constexpr auto round_up(A n, B d) { return ceil_div(n, d) * d; }
} // namespace cuda
