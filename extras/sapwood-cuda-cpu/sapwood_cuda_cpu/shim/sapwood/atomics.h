// Atomic operations and fences.
#pragma once

#include <atomic>
#include <type_traits>

#include "block.h"

namespace sapwood_cuda {

template <class T> using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

// With one worker nothing runs at the same time: plain operations are atomic.
inline bool alone = false;

template <class T, class Change> T change(T *address, Change make) {
    if (alone) {
        T old = *address;
        *address = make(old);
        return old;
    }
    auto *place = reinterpret_cast<Bits<T> *>(address);
    Bits<T> seen = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        T old, fresh;
        memcpy(&old, &seen, sizeof(T));
        fresh = make(old);
        Bits<T> wanted;
        memcpy(&wanted, &fresh, sizeof(T));
        if (__atomic_compare_exchange_n(place, &seen, wanted, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return old;
    }
}

} // namespace sapwood_cuda

#define SAPWOOD_ATOMIC(name, expression)                                                         \
    template <class T, class V> T name(T *address, V operand) {                                  \
        T value = T(operand);                                                                    \
        return ::sapwood_cuda::change(const_cast<std::remove_volatile_t<T> *>(address),          \
                                      [=](T old) -> T { return expression; });                   \
    }                                                                                            \
    namespace sapwood_cuda::own { /* for memory that only one worker uses */                     \
    template <class P, class V, class T = std::remove_volatile_t<P>> T name(P *address, V operand) {\
        const T value = T(operand), old = *address;                                              \
        *address = expression;                                                                   \
        return old;                                                                              \
    }                                                                                            \
    }                                                                                            \
    template <class T, class V> T name##_block(T *address, V operand) { return name(address, operand); } \
    template <class T, class V> T name##_system(T *address, V operand) { return name(address, operand); }
SAPWOOD_ATOMIC(sapwood_atomic_change_add, old + value)
SAPWOOD_ATOMIC(atomicSub, old - value)
SAPWOOD_ATOMIC(atomicMin, value < old ? value : old)
SAPWOOD_ATOMIC(atomicMax, old < value ? value : old)
SAPWOOD_ATOMIC(atomicAnd, old & value)
SAPWOOD_ATOMIC(atomicOr, old | value)
SAPWOOD_ATOMIC(atomicXor, old ^ value)
SAPWOOD_ATOMIC(atomicInc, old >= value ? T(0) : T(old + 1))
SAPWOOD_ATOMIC(atomicDec, (old == 0 || old > value) ? value : T(old - 1))
#undef SAPWOOD_ATOMIC

namespace sapwood_cuda::own {
template <class T, class V> std::remove_volatile_t<T> atomicAdd(T *address, V operand) {
    return sapwood_atomic_change_add(address, operand);
}
} // namespace sapwood_cuda::own
template <class T, class V> T atomicAdd(T *address, V operand) {
    using Plain = std::remove_volatile_t<T>;
    if constexpr (std::is_integral_v<Plain>) {
        if (!::sapwood_cuda::alone)
            return __atomic_fetch_add(const_cast<Plain *>(address), Plain(operand), __ATOMIC_ACQ_REL);
    }
    return sapwood_atomic_change_add(const_cast<Plain *>(address), operand);
}
template <class T, class V> T atomicAdd_block(T *address, V value) { return atomicAdd(address, value); }
template <class T, class V> T atomicAdd_system(T *address, V value) { return atomicAdd(address, value); }

template <class T, class V> T atomicExch(T *address, V operand) {
    T value = T(operand);
    T old = ::sapwood_cuda::change(const_cast<std::remove_volatile_t<T> *>(address), [=](T) { return value; });
    if (!memcmp(&old, &value, sizeof(T))) ::sapwood_cuda::spin(); // a lock that was not free
    return old;
}
template <class T, class V> T atomicExch_block(T *address, V value) { return atomicExch(address, value); }
template <class T, class V> T atomicExch_system(T *address, V value) { return atomicExch(address, value); }
template <class T, class A, class B> T atomicCAS(T *address, A expected, B operand) {
    T compare = T(expected), value = T(operand);
    T old = ::sapwood_cuda::change(const_cast<std::remove_volatile_t<T> *>(address),
                                   [=](T now) { return now == compare ? value : now; });
    if (!(old == compare)) ::sapwood_cuda::spin();
    return old;
}
template <class T, class A, class B> T atomicCAS_block(T *p, A a, B b) { return atomicCAS(p, a, b); }
template <class T, class A, class B> T atomicCAS_system(T *p, A a, B b) { return atomicCAS(p, a, b); }

namespace sapwood_cuda { // PTX's ld.acquire, st.release and their like
template <class T> T atomic_read(const T *address) {
    T value;
    __atomic_load(address, &value, __ATOMIC_ACQUIRE);
    spin(); // who waits for another value reads again
    return value;
}
template <class T> void atomic_write(T *address, T value) { __atomic_store(address, &value, __ATOMIC_RELEASE); }
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_system() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __nanosleep(unsigned) { ::sapwood_cuda::spin(); }
