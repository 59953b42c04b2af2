// Shifts as a GPU does them: by as many bits as a value has, and by more, they give 0, or the sign.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

namespace sapwood_cuda {

template <class T> constexpr bool is_shifted = std::is_integral_v<T> || std::is_enum_v<T>;

template <class A, class B> constexpr auto shifted_left(A a, B b) {
    if constexpr (is_shifted<A> && is_shifted<B>) {
        using Value = decltype(a << 1);
        using Bits = std::make_unsigned_t<Value>;
        return uint64_t(b) < 8 * sizeof(Value) ? Value(Bits(a) << unsigned(b)) : Value(0);
    } else {
        return a << b;
    }
}
template <class A, class B> constexpr auto shifted_right(A a, B b) {
    if constexpr (is_shifted<A> && is_shifted<B>) {
        using Value = decltype(a >> 1);
        constexpr unsigned bits = 8 * sizeof(Value);
        if constexpr (std::is_signed_v<Value>) return Value(Value(a) >> (uint64_t(b) < bits ? unsigned(b) : bits - 1));
        else return uint64_t(b) < bits ? Value(Value(a) >> unsigned(b)) : Value(0);
    } else {
        return a >> b;
    }
}

// `a << by << b` shifts a by b, and `a <<= by <<= b` makes that the value of a.
struct By {};
constexpr By by{};
template <class A> struct Left { A value; };
template <class A> struct Right { A value; };
template <class A> struct Reference { A value; };
template <class B> struct Amount { B value; };

template <class A, class = std::enable_if_t<is_shifted<A>>> constexpr Left<A> operator<<(A a, By) { return {a}; }
template <class A, class = std::enable_if_t<is_shifted<A>>> constexpr Right<A> operator>>(A a, By) { return {a}; }
template <class A, class B> constexpr auto operator<<(Left<A> a, B b) { return shifted_left(a.value, b); }
template <class A, class B> constexpr auto operator>>(Right<A> a, B b) { return shifted_right(a.value, b); }
// What shifts in its own way, such as a class.
template <class A, class = std::enable_if_t<!is_shifted<std::decay_t<A>>>, class = void> constexpr Reference<A> operator<<(A &&a, By) {
    return {std::forward<A>(a)};
}
template <class A, class = std::enable_if_t<!is_shifted<std::decay_t<A>>>, class = void> constexpr Reference<A> operator>>(A &&a, By) {
    return {std::forward<A>(a)};
}
template <class A, class B> constexpr decltype(auto) operator<<(Reference<A> a, B &&b) { return std::forward<A>(a.value) << std::forward<B>(b); }
template <class A, class B> constexpr decltype(auto) operator>>(Reference<A> a, B &&b) { return std::forward<A>(a.value) >> std::forward<B>(b); }

template <class B> constexpr Amount<B> operator<<=(By, B b) { return {b}; }
template <class B> constexpr Amount<B> operator>>=(By, B b) { return {b}; }
template <class A, class B> constexpr A &operator<<=(A &a, Amount<B> b) {
    if constexpr (is_shifted<A> && is_shifted<B>) a = A(shifted_left(a, b.value));
    else a <<= b.value;
    return a;
}
template <class A, class B> constexpr A &operator>>=(A &a, Amount<B> b) {
    if constexpr (is_shifted<A> && is_shifted<B>) a = A(shifted_right(a, b.value));
    else a >>= b.value;
    return a;
}

} // namespace sapwood_cuda
