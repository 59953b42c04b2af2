// What an expression is for all threads of a block, or of a row of one: two bounds that are proved.
//
// A guard such as `i < n` is decided once for a block where that is right for each of its threads. Types of C++ wrap,
// narrow and round, so the bounds are computed as the expression itself is, with its types, and are forgotten where
// the values between them need not lie between them any more. What is not known is asked thread by thread.
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#define SAPWOOD_HERE inline __attribute__((always_inline))

namespace sapwood_cuda {

// Types whose sums and products are exact or wrap; those of floating point round, and pointers are not counted.
template <class T> constexpr bool is_counted =
    (std::is_integral_v<T> || (std::is_enum_v<T> && std::is_convertible_v<T, int64_t>)) && sizeof(T) <= sizeof(int64_t);

template <class T> struct Span {
    using Bound = std::conditional_t<is_counted<T>, std::remove_cv_t<T>, char>;
    Bound low{}, high{};
    bool known = false;
};

template <class T> struct Valued { using type = T; static constexpr bool is_span = false; };
template <class T> struct Valued<Span<T>> { using type = T; static constexpr bool is_span = true; };
template <class T> using value_of = typename Valued<T>::type;
template <class A, class B> constexpr bool has_span = Valued<A>::is_span || Valued<B>::is_span;
template <class A, class B> constexpr bool are_counted = is_counted<value_of<A>> && is_counted<value_of<B>>;
template <class A, class B> using sum_of = std::decay_t<decltype(std::declval<value_of<A>>() + std::declval<value_of<B>>())>;

template <class T> SAPWOOD_HERE Span<T> spanned(const Span<T> &a) { return a; }
template <class T> SAPWOOD_HERE Span<T> spanned(const T &a) {
    if constexpr (is_counted<T>) return {a, a, true};
    else return {};
}

// A value as one of another type: an expression's, or that of a variable which starts with it.
template <class T, class A> SAPWOOD_HERE T as(const A &a) { return (T)a; }
template <class T, class A> SAPWOOD_HERE Span<T> as(const Span<A> &a) {
    if constexpr (is_counted<T> && is_counted<A>) {
        const T low = T(a.low), high = T(a.high);
        return {low, high, a.known && low <= high && uint64_t(high) - uint64_t(low) == uint64_t(a.high) - uint64_t(a.low)};
    } else {
        return {};
    }
}

// An index variable such as threadIdx.x.
SAPWOOD_HERE constexpr unsigned coordinate(int x) { return unsigned(x); }
SAPWOOD_HERE Span<unsigned> coordinate(const Span<int> &x) { return as<unsigned>(x); }
SAPWOOD_HERE Span<int> span_of(int size) {
    if (size < 1) __builtin_unreachable(); // so compilers prove more by themselves
    return {0, size - 1, true};
}

// What is added to a thread's index where the sum becomes an int: signed if it is a whole number.
template <class A> SAPWOOD_HERE constexpr auto signed_part(const A &a) {
    if constexpr (std::is_integral_v<value_of<A>>) return as<int>(a);
    else return a;
}

// Both bounds of unsigned sums may wrap: then so do all between them. That one operand is a span is asked first: the
// operators are candidates for whatever has to do with this namespace, and must not look for themselves.
template <class A, class B, class = std::enable_if_t<has_span<A, B>>, class C = sum_of<A, B>>
SAPWOOD_HERE Span<C> operator+(const A &a, const B &b) {
    if constexpr (are_counted<A, B>) {
        const Span<C> x = as<C>(spanned(a)), y = as<C>(spanned(b));
        Span<C> sum;
        const bool low = __builtin_add_overflow(x.low, y.low, &sum.low), high = __builtin_add_overflow(x.high, y.high, &sum.high);
        sum.known = x.known && y.known && low == high && (std::is_unsigned_v<C> || !low);
        return sum;
    } else {
        return {};
    }
}
template <class A, class B, class = std::enable_if_t<has_span<A, B>>,
          class C = std::decay_t<decltype(std::declval<value_of<A>>() - std::declval<value_of<B>>())>>
SAPWOOD_HERE Span<C> operator-(const A &a, const B &b) {
    if constexpr (are_counted<A, B>) {
        const Span<C> x = as<C>(spanned(a)), y = as<C>(spanned(b));
        Span<C> rest;
        const bool low = __builtin_sub_overflow(x.low, y.high, &rest.low), high = __builtin_sub_overflow(x.high, y.low, &rest.high);
        rest.known = x.known && y.known && low == high && (std::is_unsigned_v<C> || !low);
        return rest;
    } else {
        return {};
    }
}
template <class A> SAPWOOD_HERE auto operator-(const Span<A> &a) { return decltype(-std::declval<A>())(0) - a; }
template <class A, class B, class = std::enable_if_t<has_span<A, B>>,
          class C = std::decay_t<decltype(std::declval<value_of<A>>() * std::declval<value_of<B>>())>>
SAPWOOD_HERE Span<C> operator*(const A &a, const B &b) {
    if constexpr (are_counted<A, B>) {
        const Span<C> x = as<C>(spanned(a)), y = as<C>(spanned(b));
        C corners[4];
        bool wraps = __builtin_mul_overflow(x.low, y.low, &corners[0]);
        wraps |= __builtin_mul_overflow(x.low, y.high, &corners[1]);
        wraps |= __builtin_mul_overflow(x.high, y.low, &corners[2]);
        wraps |= __builtin_mul_overflow(x.high, y.high, &corners[3]);
        Span<C> product{corners[0], corners[0], x.known && y.known && !wraps};
        for (C corner : corners) {
            product.low = corner < product.low ? corner : product.low;
            product.high = corner > product.high ? corner : product.high;
        }
        return product;
    } else {
        return {};
    }
}

// What a comparison says for all threads. Where neither holds they differ, or it is not known.
struct Answer { bool always, never; };
SAPWOOD_HERE bool always(bool holds) { return holds; }
SAPWOOD_HERE bool always(Answer answer) { return answer.always; }
SAPWOOD_HERE bool sometimes(bool holds) { return holds; }
SAPWOOD_HERE bool sometimes(Answer answer) { return !answer.never; }

template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator<(const A &a, const B &b) {
    if constexpr (are_counted<A, B>) {
        using C = sum_of<A, B>;
        const Span<C> x = as<C>(spanned(a)), y = as<C>(spanned(b));
        const bool known = x.known && y.known;
        return {known && x.high < y.low, known && x.low >= y.high};
    } else {
        return {false, false};
    }
}
template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator>(const A &a, const B &b) { return b < a; }
template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator<=(const A &a, const B &b) {
    const Answer above = b < a;
    return {above.never, above.always};
}
template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator>=(const A &a, const B &b) { return b <= a; }

template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator==(const A &a, const B &b) {
    if constexpr (are_counted<A, B>) {
        using C = sum_of<A, B>;
        const Span<C> x = as<C>(spanned(a)), y = as<C>(spanned(b));
        const bool known = x.known && y.known;
        return {known && x.low == x.high && y.low == y.high && x.low == y.low, known && (x.high < y.low || y.high < x.low)};
    } else {
        return {false, false};
    }
}
template <class A, class B, class = std::enable_if_t<has_span<A, B>>> SAPWOOD_HERE Answer operator!=(const A &a, const B &b) {
    const Answer same = a == b;
    return {same.never, same.always};
}
SAPWOOD_HERE Answer operator!(Answer answer) { return {answer.never, answer.always}; }

// Neighbours of a row for which conditions hold; `sure` when it is proved that they do, and do not for any others.
struct Run { int first, end; bool sure; };
enum class Is { below, at_most, above, at_least, equal };
SAPWOOD_HERE Span<int> point(int x) { return {x, x, true}; }

// Leaves those threads of a run for which `left`, which counts with the thread, is that. Returns whether to go on.
template <Is is, class A, class B> SAPWOOD_HERE bool keep(Run &run, int size, const A &left, const B &right) {
    if constexpr (Valued<A>::is_span && are_counted<A, B>) {
        using C = sum_of<A, B>;
        const Span<C> x = as<C>(left), to = as<C>(spanned(right));
        if (x.known && to.known && to.low == to.high && uint64_t(x.high) - uint64_t(x.low) == uint64_t(size - 1)) {
            const uint64_t gap = x.low < to.low ? uint64_t(to.low) - uint64_t(x.low) : 0;
            const int before = gap < uint64_t(size) ? int(gap) : size; // threads that are below `right`
            const int up_to = x.low > to.low ? 0 : before < size ? before + 1 : size;
            const int first = is == Is::above ? up_to : is == Is::at_least || is == Is::equal ? before : 0;
            const int end = is == Is::below ? before : is == Is::at_most || is == Is::equal ? up_to : size;
            run.first = first > run.first ? first : run.first;
            run.end = end < run.end ? end : run.end;
            if (run.first < run.end) return true;
            run.end = run.first;
            return false;
        }
    }
    run.sure = false;
    return false;
}

// Leaves all threads of a run or none, for what a whole row has in common.
SAPWOOD_HERE bool keep_row(Run &run, bool holds) {
    if (!holds) run.end = run.first;
    return holds;
}
SAPWOOD_HERE bool keep_row(Run &run, Answer answer) {
    if (!answer.always && !answer.never) return run.sure = false;
    return keep_row(run, answer.always);
}

// The first run of a row, and the one after another; `ask` says for one thread, or for all, whether conditions hold.
template <class Ask> SAPWOOD_HERE Run run_from(int from, int size, int y, int z, Ask ask) {
    while (from < size && !ask(from, y, z)) from++;
    int end = from;
    while (end < size && ask(end, y, z)) end++;
    return {from, end, false};
}
template <class Ask> SAPWOOD_HERE Run first_run(int size, int y, int z, Ask ask) {
    const Run all = ask(span_of(size), point(y), point(z));
    return all.sure ? all : run_from(0, size, y, z, ask);
}
template <class Ask> SAPWOOD_HERE Run next_run(Run run, int size, int y, int z, Ask ask) {
    return run.sure ? Run{0, 0, true} : run_from(run.end, size, y, z, ask);
}

// Does a part for the threads of a run: for those of `inner`, where its guards are proved, and before and behind them.
template <class Part> SAPWOOD_HERE void do_part(Run run, Run inner, Part part) {
    const bool some = inner.sure && inner.first < inner.end;
    const int start = some ? inner.first : run.end;
    for (int from = run.first; from < run.end;) {
        if (from == start) {
            part(from, inner.end, std::true_type());
            from = inner.end;
        } else {
            const int to = from < start ? start : run.end;
            part(from, to, std::false_type());
            from = to;
        }
    }
}

// Whether rounds of a grid-stride loop `for (T i = start; i < end; i += step)` can be run by all threads of a block
// together: the first thread has the smallest index, and no index that a thread may come to wraps.
template <class T, class Start, class End, class Step>
SAPWOOD_HERE bool in_rounds(const Span<Start> &start, T first, const End &end, const Step &step) {
    if constexpr (is_counted<T> && is_counted<Start> && are_counted<End, Step>) {
        __extension__ typedef __int128 Wide;
        using C = sum_of<T, End>;
        const Span<T> from = as<T>(start);
        const Wide width = Wide(from.high) - Wide(from.low), last = Wide(C(end)) + width + Wide(step), most = Wide(std::numeric_limits<T>::max());
        return from.known && from.low == first && step > 0 && last <= most && last - Wide(from.low) <= most &&
               last <= Wide(std::numeric_limits<C>::max()) && Wide(from.low) >= Wide(std::numeric_limits<C>::min());
    } else {
        return false;
    }
}

// Whether the index of a round is where its thread started plus what all have gone on by; floats round on the way.
template <class T, class Step> constexpr bool is_exact = is_counted<T> && is_counted<std::decay_t<Step>>;
template <bool exact, class T, class Start> SAPWOOD_HERE T round_from(const Start &start) { return exact ? T(0) : T(start); }
template <bool exact, class T, class Start> SAPWOOD_HERE auto in_round(const Start &start, T gone) {
    if constexpr (Valued<Start>::is_span) return as<T>(as<T>(start) + gone);
    else if constexpr (exact) return T(T(start) + gone);
    else return gone;
}
template <class T, class Step> SAPWOOD_HERE T next_round(T gone, const Step &step) {
    if constexpr (is_counted<T> && is_counted<Step>) return T(uint64_t(gone) + uint64_t(step));
    else return T(gone + step);
}

} // namespace sapwood_cuda
