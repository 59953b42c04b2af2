// Thrust for one processor: vectors, iterators, function objects and algorithms, over the standard library.
// Functions are called by the thread that calls the algorithm, also in kernels.
#pragma once

#include <algorithm>
#include <complex>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "../cuda_runtime.h"
#include "iterators.h"

#define THRUST_VERSION 200000
#define THRUST_MAJOR_VERSION 2
#define THRUST_MINOR_VERSION 0
#define THRUST_SUBMINOR_VERSION 0

namespace thrust {

// Tuples and pairs.
using std::get;
using std::make_pair;
using std::make_tuple;
using std::pair;
using std::swap;
using std::tie;
using std::tuple;
using std::tuple_element;
using std::tuple_size;
struct null_type {};

// Complex numbers.
using std::abs;
using std::acos;
using std::arg;
using std::asin;
using std::atan;
using std::complex;
using std::conj;
using std::cos;
using std::cosh;
using std::exp;
using std::log;
using std::log10;
using std::norm;
using std::polar;
using std::pow;
using std::proj;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tan;
using std::tanh;

// Function objects.
using std::bit_and;
using std::bit_or;
using std::bit_xor;
using std::divides;
using std::equal_to;
using std::greater;
using std::greater_equal;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::minus;
using std::modulus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::plus;
template <class Argument, class Result> struct unary_function {
    typedef Argument argument_type;
    typedef Result result_type;
};
template <class First, class Second, class Result> struct binary_function {
    typedef First first_argument_type;
    typedef Second second_argument_type;
    typedef Result result_type;
};
template <class T = void> struct maximum { T operator()(const T &a, const T &b) const { return a < b ? b : a; } };
template <class T = void> struct minimum { T operator()(const T &a, const T &b) const { return b < a ? b : a; } };
template <> struct maximum<void> {
    template <class A, class B> std::common_type_t<A, B> operator()(const A &a, const B &b) const {
        return a < b ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
    }
};
template <> struct minimum<void> {
    template <class A, class B> std::common_type_t<A, B> operator()(const A &a, const B &b) const {
        return b < a ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
    }
};
template <class T = void> struct identity { const T &operator()(const T &x) const { return x; } };
template <> struct identity<void> { template <class T> T operator()(T x) const { return x; } };
template <class T = void> struct square { T operator()(const T &x) const { return x * x; } };
template <> struct square<void> { template <class T> T operator()(T x) const { return x * x; } };
template <class A, class B = A> struct project1st { const A &operator()(const A &a, const B &) const { return a; } };
template <class A, class B = A> struct project2nd { const B &operator()(const A &, const B &b) const { return b; } };
template <class F> struct unary_negate {
    F function;
    template <class T> bool operator()(const T &x) const { return !function(x); }
};
template <class F> unary_negate<F> not1(const F &function) { return {function}; }
template <class F> struct binary_negate {
    F function;
    template <class A, class B> bool operator()(const A &a, const B &b) const { return !function(a, b); }
};
template <class F> binary_negate<F> not2(const F &function) { return {function}; }
template <class F> struct zip_function {
    mutable F function;
    template <class Tuple> decltype(auto) operator()(Tuple &&values) const {
        return std::apply(function, std::forward<Tuple>(values));
    }
};
template <class F> zip_function<F> make_zip_function(F function) { return {function}; }

// Expressions of placeholders: _1 + 2 * _2.
namespace placeholders {
template <class F> struct Expression {
    F function;
    template <class... A> decltype(auto) operator()(A &&...a) const { return function(std::forward<A>(a)...); }
};
template <class F> Expression<F> expression(F function) { return {function}; }
template <std::size_t N> struct Placeholder {
    template <class... A> decltype(auto) operator()(A &&...a) const {
        return std::get<N>(std::forward_as_tuple(std::forward<A>(a)...));
    }
};
inline const Expression<Placeholder<0>> _1{};
inline const Expression<Placeholder<1>> _2{};
inline const Expression<Placeholder<2>> _3{};
#define SAPWOOD_PLACEHOLDER(op)                                                                  \
    template <class F, class G> auto operator op(const Expression<F> &f, const Expression<G> &g) { \
        return expression([=](auto &&...a) { return f(a...) op g(a...); });                      \
    }                                                                                            \
    template <class F, class T> auto operator op(const Expression<F> &f, const T &value) {       \
        return expression([=](auto &&...a) { return f(a...) op value; });                        \
    }                                                                                            \
    template <class F, class T> auto operator op(const T &value, const Expression<F> &f) {       \
        return expression([=](auto &&...a) { return value op f(a...); });                        \
    }
SAPWOOD_PLACEHOLDER(+)
SAPWOOD_PLACEHOLDER(-)
SAPWOOD_PLACEHOLDER(*)
SAPWOOD_PLACEHOLDER(/)
SAPWOOD_PLACEHOLDER(%)
SAPWOOD_PLACEHOLDER(<)
SAPWOOD_PLACEHOLDER(>)
SAPWOOD_PLACEHOLDER(<=)
SAPWOOD_PLACEHOLDER(>=)
SAPWOOD_PLACEHOLDER(==)
SAPWOOD_PLACEHOLDER(!=)
SAPWOOD_PLACEHOLDER(&&)
SAPWOOD_PLACEHOLDER(||)
SAPWOOD_PLACEHOLDER(&)
SAPWOOD_PLACEHOLDER(|)
SAPWOOD_PLACEHOLDER(^)
#undef SAPWOOD_PLACEHOLDER
template <class F> auto operator-(const Expression<F> &f) {
    return expression([=](auto &&...a) { return -f(a...); });
}
template <class F> auto operator!(const Expression<F> &f) {
    return expression([=](auto &&...a) { return !f(a...); });
}
} // namespace placeholders

// Iterators.
template <class It> using iterator_value = std::iterator_traits<It>;
template <class It> using iterator_traits = std::iterator_traits<It>;
template <class It> using iterator_reference = std::iterator_traits<It>;
template <class It> struct iterator_difference { typedef typename std::iterator_traits<It>::difference_type type; };
template <class It> using iterator_value_t = sapwood_cuda::ValueOf<It>;
template <class T, class = void, class = void, class = void> using counting_iterator = sapwood_cuda::Counting<T>;
template <class T, class = void, class = void> using constant_iterator = sapwood_cuda::Constant<T>;
template <class F, class It, class R = std::invoke_result_t<F, sapwood_cuda::ReferenceOf<It>>, class V = std::decay_t<R>>
using transform_iterator = sapwood_cuda::Transforming<F, It, R, V>;
template <class F, class It> using transform_output_iterator = sapwood_cuda::Changing<F, It>;
template <class It, class Places> using permutation_iterator = sapwood_cuda::Permuted<It, Places>;
template <class It> using reverse_iterator = std::reverse_iterator<It>;
template <class = void> using discard_iterator = sapwood_cuda::Discarding;
namespace detail {
template <class Tuple> struct Zip;
template <class... Its> struct Zip<std::tuple<Its...>> { typedef sapwood_cuda::Zipped<Its...> type; };
}
template <class Tuple> using zip_iterator = typename detail::Zip<Tuple>::type;
template <class T> counting_iterator<T> make_counting_iterator(T value) { return {value}; }
template <class T> constant_iterator<T> make_constant_iterator(T value, std::ptrdiff_t at = 0) { return {value, at}; }
template <class F, class It> transform_iterator<F, It> make_transform_iterator(It it, F function) { return {it, function}; }
template <class F, class It> transform_output_iterator<F, It> make_transform_output_iterator(It it, F function) {
    return {it, function};
}
template <class It, class Places> permutation_iterator<It, Places> make_permutation_iterator(It it, Places places) {
    return {it, places};
}
template <class It> reverse_iterator<It> make_reverse_iterator(It it) { return reverse_iterator<It>(it); }
inline discard_iterator<> make_discard_iterator(std::ptrdiff_t at = 0) { return {at}; }
template <class... Its> sapwood_cuda::Zipped<Its...> make_zip_iterator(std::tuple<Its...> its) { return {its}; }
template <class... Its> sapwood_cuda::Zipped<Its...> make_zip_iterator(Its... its) { return {std::tuple<Its...>(its...)}; }
using std::advance;
using std::distance;
using std::next;
using std::prev;

// Pointers to device memory, which is memory.
template <class T> class device_ptr;
template <class T> struct DeviceReference { typedef T &type; };
template <> struct DeviceReference<void> { typedef void type; };
template <class T> using device_reference = T &;
template <class T> class device_ptr : public sapwood_cuda::Iterator<device_ptr<T>, std::remove_cv_t<T>, T &> {
  public:
    typedef T element_type;
    typedef T *pointer;
    device_ptr() : at_(nullptr) {}
    device_ptr(std::nullptr_t) : at_(nullptr) {}
    device_ptr(T *at) : at_(at) {}
    template <class U, class = std::enable_if_t<std::is_convertible_v<U *, T *>>>
    device_ptr(const device_ptr<U> &other) : at_(other.get()) {}
    T &operator*() const { return *at_; }
    T *operator->() const { return at_; }
    T *get() const { return at_; }
    explicit operator bool() const { return at_; }
    void move(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t distance_to(const device_ptr &other) const { return other.at_ - at_; }

  private:
    T *at_;
};
template <> class device_ptr<void> {
  public:
    device_ptr(void *at = nullptr) : at_(at) {}
    template <class U> explicit operator device_ptr<U>() const { return device_ptr<U>(static_cast<U *>(at_)); }
    void *get() const { return at_; }

  private:
    void *at_;
};
template <class T> device_ptr<T> device_pointer_cast(T *at) { return device_ptr<T>(at); }
template <class T> device_ptr<T> device_pointer_cast(const device_ptr<T> &at) { return at; }
template <class T> T *raw_pointer_cast(T *at) { return at; }
template <class T> T *raw_pointer_cast(const device_ptr<T> &at) { return at.get(); }
template <class T> T &raw_reference_cast(T &value) { return value; }

// Memory.
namespace detail {
inline void *allocated(size_t bytes) {
    void *at = nullptr;
    if (sapwood_cuda::allocate(&at, bytes, "thrust", "device memory", 0)) throw std::bad_alloc();
    return at;
}
}
inline device_ptr<void> device_malloc(size_t bytes) { return detail::allocated(bytes); }
template <class T> device_ptr<T> device_malloc(size_t n) { return device_ptr<T>(static_cast<T *>(detail::allocated(n * sizeof(T)))); }
template <class T> device_ptr<T> device_new(size_t n = 1) {
    T *at = static_cast<T *>(detail::allocated(n * sizeof(T)));
    std::uninitialized_value_construct_n(at, n);
    return device_ptr<T>(at);
}
template <class T> void device_free(device_ptr<T> at) { sapwood_cuda::release(at.get()); }
template <class T> void device_delete(device_ptr<T> at, size_t n = 1) {
    std::destroy_n(at.get(), n);
    sapwood_cuda::release(at.get());
}
// Memory that cudaMalloc and its like would give.
template <class T> struct device_allocator {
    typedef T value_type;
    device_allocator() = default;
    template <class U> device_allocator(const device_allocator<U> &) {}
    template <class U> struct rebind { typedef device_allocator<U> other; };
    T *allocate(size_t n) { return n ? static_cast<T *>(detail::allocated(n * sizeof(T))) : nullptr; }
    void deallocate(T *at, size_t) { sapwood_cuda::release(at); }
    bool operator==(const device_allocator &) const { return true; }
    bool operator!=(const device_allocator &) const { return false; }
};
template <class T> using device_malloc_allocator = device_allocator<T>;
template <class T> using universal_allocator = device_allocator<T>;

// A vector whose iterators are pointers.
template <class T, class Allocator, class Pointer> class Vector {
  public:
    typedef T value_type;
    typedef T &reference;
    typedef const T &const_reference;
    typedef size_t size_type;
    typedef std::ptrdiff_t difference_type;
    typedef T *iterator;
    typedef const T *const_iterator;
    typedef std::reverse_iterator<iterator> reverse_iterator;
    typedef std::reverse_iterator<const_iterator> const_reverse_iterator;
    typedef Pointer pointer;
    typedef Allocator allocator_type;

    Vector() = default;
    explicit Vector(const Allocator &) {}
    explicit Vector(size_t n) { resize(n); }
    Vector(size_t n, const T &value) { resize(n, value); }
    Vector(size_t n, const T &value, const Allocator &) { resize(n, value); }
    template <class It, class = typename std::iterator_traits<It>::iterator_category> Vector(It first, It last) {
        assign(first, last);
    }
    Vector(std::initializer_list<T> values) { assign(values.begin(), values.end()); }
    Vector(const Vector &other) { assign(other.begin(), other.end()); }
    Vector(Vector &&other) noexcept { swap(other); }
    template <class U, class A, class P> Vector(const Vector<U, A, P> &other) { assign(other.begin(), other.end()); }
    template <class U, class A> Vector(const std::vector<U, A> &other) { assign(other.begin(), other.end()); }
    ~Vector() { release(); }
    Vector &operator=(const Vector &other) {
        if (this != &other) assign(other.begin(), other.end());
        return *this;
    }
    Vector &operator=(Vector &&other) noexcept { return swap(other), *this; }
    template <class U, class A, class P> Vector &operator=(const Vector<U, A, P> &other) {
        return assign(other.begin(), other.end()), *this;
    }
    template <class U, class A> Vector &operator=(const std::vector<U, A> &other) {
        return assign(other.begin(), other.end()), *this;
    }
    Vector &operator=(std::initializer_list<T> values) { return assign(values.begin(), values.end()), *this; }

    iterator begin() { return at_; }
    iterator end() { return at_ + size_; }
    const_iterator begin() const { return at_; }
    const_iterator end() const { return at_ + size_; }
    const_iterator cbegin() const { return at_; }
    const_iterator cend() const { return at_ + size_; }
    reverse_iterator rbegin() { return reverse_iterator(end()); }
    reverse_iterator rend() { return reverse_iterator(begin()); }
    const_reverse_iterator rbegin() const { return const_reverse_iterator(end()); }
    const_reverse_iterator rend() const { return const_reverse_iterator(begin()); }
    Pointer data() { return Pointer(at_); }
    typename std::pointer_traits<Pointer>::template rebind<const T> data() const {
        return typename std::pointer_traits<Pointer>::template rebind<const T>(at_);
    }
    size_t size() const { return size_; }
    size_t capacity() const { return capacity_; }
    size_t max_size() const { return size_t(-1) / sizeof(T); }
    bool empty() const { return size_ == 0; }
    T &operator[](size_t i) { return at_[i]; }
    const T &operator[](size_t i) const { return at_[i]; }
    T &front() { return at_[0]; }
    T &back() { return at_[size_ - 1]; }
    const T &front() const { return at_[0]; }
    const T &back() const { return at_[size_ - 1]; }
    Allocator get_allocator() const { return {}; }

    void reserve(size_t n) {
        if (n <= capacity_) return;
        T *fresh = Allocator().allocate(n);
        std::uninitialized_move(at_, at_ + size_, fresh);
        const size_t kept = size_;
        release();
        at_ = fresh, size_ = kept, capacity_ = n;
    }
    void resize(size_t n, const T &value = T()) {
        if (n > capacity_) reserve(n);
        if (n > size_) std::uninitialized_fill(at_ + size_, at_ + n, value);
        if (n < size_) std::destroy(at_ + n, at_ + size_);
        size_ = n;
    }
    void clear() { resize(0); }
    void shrink_to_fit() {}
    template <class It, class = typename std::iterator_traits<It>::iterator_category> void assign(It first, It last) {
        const size_t n = size_t(std::distance(first, last));
        Vector other;
        if (n > capacity_) {
            other.reserve(n);
            swap(other);
        }
        std::destroy(at_, at_ + size_);
        size_ = 0; // should a copy throw
        for (T *to = at_; first != last; ++first, ++to) ::new (static_cast<void *>(to)) T(*first);
        size_ = n;
    }
    void assign(size_t n, const T &value) {
        const T copy = value;
        clear();
        resize(n, copy);
    }
    void push_back(const T &value) {
        const T copy = value;
        if (size_ == capacity_) reserve(capacity_ ? 2 * capacity_ : 8);
        ::new (static_cast<void *>(at_ + size_)) T(copy);
        size_++;
    }
    template <class... A> T &emplace_back(A &&...a) { return push_back(T(std::forward<A>(a)...)), back(); }
    void pop_back() { resize(size_ - 1); }
    iterator erase(iterator first, iterator last) {
        T *rest = std::move(last, end(), first);
        std::destroy(rest, end());
        size_ = size_t(rest - at_);
        return first;
    }
    iterator erase(iterator at) { return erase(at, at + 1); }
    iterator insert(iterator at, const T &value) { return insert(at, &value, &value + 1); }
    template <class It, class = typename std::iterator_traits<It>::iterator_category>
    iterator insert(iterator at, It first, It last) {
        const std::vector<T> fresh(first, last), rest(at, end());
        const size_t before = size_t(at - at_);
        resize(before);
        reserve(before + fresh.size() + rest.size());
        for (const T &each : fresh) push_back(each);
        for (const T &each : rest) push_back(each);
        return at_ + before;
    }
    void insert(iterator at, size_t n, const T &value) {
        const std::vector<T> fresh(n, value);
        insert(at, fresh.begin(), fresh.end());
    }
    void swap(Vector &other) noexcept {
        std::swap(at_, other.at_), std::swap(size_, other.size_), std::swap(capacity_, other.capacity_);
    }

  private:
    void release() {
        std::destroy(at_, at_ + size_);
        if (at_) Allocator().deallocate(at_, capacity_);
        at_ = nullptr, size_ = capacity_ = 0;
    }
    T *at_ = nullptr;
    size_t size_ = 0, capacity_ = 0;
};
template <class T, class A, class P, class U, class B, class Q>
bool operator==(const Vector<T, A, P> &a, const Vector<U, B, Q> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
template <class T, class A, class P, class U, class B, class Q>
bool operator!=(const Vector<T, A, P> &a, const Vector<U, B, Q> &b) { return !(a == b); }
template <class T, class A, class P, class U, class B>
bool operator==(const Vector<T, A, P> &a, const std::vector<U, B> &b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
template <class U, class B, class T, class A, class P>
bool operator==(const std::vector<U, B> &b, const Vector<T, A, P> &a) { return a == b; }
template <class T, class A, class P> void swap(Vector<T, A, P> &a, Vector<T, A, P> &b) { a.swap(b); }

template <class T, class Allocator = std::allocator<T>> class host_vector : public Vector<T, std::allocator<T>, T *> {
  public:
    using Vector<T, std::allocator<T>, T *>::Vector;
    using Vector<T, std::allocator<T>, T *>::operator=;
    host_vector() = default;
};
template <class T, class Allocator = device_allocator<T>>
class device_vector : public Vector<T, device_allocator<T>, device_ptr<T>> {
  public:
    using Vector<T, device_allocator<T>, device_ptr<T>>::Vector;
    using Vector<T, device_allocator<T>, device_ptr<T>>::operator=;
    device_vector() = default;
};
template <class T, class A = device_allocator<T>> using universal_vector = device_vector<T, A>;

// Where an algorithm shall run; it runs here.
struct Policy {
    template <class Stream> const Policy &on(const Stream &) const { return *this; }
    template <class Memory> const Policy &operator()(const Memory &) const { return *this; }
};
struct device_execution_policy_base : Policy {};
inline const Policy host{}, device{}, seq{};
typedef Policy host_system_tag;
typedef Policy device_system_tag;
template <class P> using execution_policy = Policy;
namespace cuda {
inline const Policy par{}, par_nosync{};
typedef Policy tag;
template <class P> using execution_policy = Policy;
}
namespace cuda_cub { using namespace thrust::cuda; }
namespace omp { inline const Policy par{}; typedef Policy tag; }
namespace cpp { inline const Policy par{}; typedef Policy tag; }
namespace tbb { inline const Policy par{}; }
namespace system {
namespace cuda = thrust::cuda;
using std::error_code;
using std::system_error;
}
using std::error_code;
using std::system_error;
inline const std::error_category &cuda_category() { return std::generic_category(); }

namespace detail {
template <class P> constexpr bool is_policy = std::is_base_of_v<Policy, std::decay_t<P>>;
template <class It> using Values = std::vector<std::conditional_t<
    std::is_same_v<sapwood_cuda::ValueOf<It>, bool>, char, sapwood_cuda::ValueOf<It>>>;
template <class It> Values<It> values(It first, It last) {
    Values<It> found;
    found.reserve(size_t(last - first));
    for (; first != last; ++first) found.push_back(*first);
    return found;
}
}
#define SAPWOOD_BY_POLICY(name)                                                                  \
    template <class P, class... A, class = std::enable_if_t<detail::is_policy<P>>>               \
    decltype(auto) name(const P &, A &&...a) { return ::thrust::name(std::forward<A>(a)...); }
#define SAPWOOD_FROM_STD(name)                                                                   \
    template <class It, class... A, class = std::enable_if_t<!detail::is_policy<It>>>            \
    decltype(auto) name(It first, A &&...a) { return std::name(first, std::forward<A>(a)...); }  \
    SAPWOOD_BY_POLICY(name)
#define SAPWOOD_UNLESS_POLICY(It) class = std::enable_if_t<!detail::is_policy<It>>

SAPWOOD_FROM_STD(fill)
SAPWOOD_FROM_STD(fill_n)
SAPWOOD_FROM_STD(generate)
SAPWOOD_FROM_STD(generate_n)
SAPWOOD_FROM_STD(copy_n)
SAPWOOD_FROM_STD(uninitialized_fill)
SAPWOOD_FROM_STD(uninitialized_copy)
SAPWOOD_FROM_STD(replace)
SAPWOOD_FROM_STD(replace_copy)
SAPWOOD_FROM_STD(count)
SAPWOOD_FROM_STD(count_if)
SAPWOOD_FROM_STD(find)
SAPWOOD_FROM_STD(find_if)
SAPWOOD_FROM_STD(find_if_not)
SAPWOOD_FROM_STD(any_of)
SAPWOOD_FROM_STD(all_of)
SAPWOOD_FROM_STD(none_of)
SAPWOOD_FROM_STD(min_element)
SAPWOOD_FROM_STD(max_element)
SAPWOOD_FROM_STD(minmax_element)
SAPWOOD_FROM_STD(equal)
SAPWOOD_FROM_STD(mismatch)
SAPWOOD_FROM_STD(is_sorted)
SAPWOOD_FROM_STD(is_sorted_until)
SAPWOOD_FROM_STD(is_partitioned)
SAPWOOD_FROM_STD(partition_point)
SAPWOOD_FROM_STD(partition_copy)
SAPWOOD_FROM_STD(swap_ranges)
SAPWOOD_FROM_STD(reverse_copy)
SAPWOOD_FROM_STD(merge)
SAPWOOD_FROM_STD(set_union)
SAPWOOD_FROM_STD(set_intersection)
SAPWOOD_FROM_STD(set_difference)
SAPWOOD_FROM_STD(set_symmetric_difference)
SAPWOOD_FROM_STD(inner_product)
SAPWOOD_FROM_STD(adjacent_difference)
SAPWOOD_FROM_STD(equal_range)

template <class It, class Out, SAPWOOD_UNLESS_POLICY(It)> Out copy(It first, It last, Out out) {
    for (; first != last; ++first, ++out) *out = *first;
    return out;
}
SAPWOOD_BY_POLICY(copy)
template <class It, class F, SAPWOOD_UNLESS_POLICY(It)> It for_each(It first, It last, F function) {
    for (; first != last; ++first) {
        auto &&value = *first; // a function may take it by reference
        function(value);
    }
    return first;
}
SAPWOOD_BY_POLICY(for_each)
template <class It, class N, class F, SAPWOOD_UNLESS_POLICY(It)> It for_each_n(It first, N n, F function) {
    return thrust::for_each(first, first + n, function);
}
SAPWOOD_BY_POLICY(for_each_n)
template <class It, class Out, class F, SAPWOOD_UNLESS_POLICY(It)> Out transform(It first, It last, Out out, F function) {
    for (; first != last; ++first, ++out) {
        auto &&value = *first;
        *out = function(value);
    }
    return out;
}
template <class It, class Other, class Out, class F, SAPWOOD_UNLESS_POLICY(It)>
Out transform(It first, It last, Other other, Out out, F function) {
    for (; first != last; ++first, ++other, ++out) {
        auto &&a = *first;
        auto &&b = *other;
        *out = function(a, b);
    }
    return out;
}
SAPWOOD_BY_POLICY(transform)
template <class It, class Out, class F, class If, SAPWOOD_UNLESS_POLICY(It)>
Out transform_if(It first, It last, Out out, F function, If condition) {
    for (; first != last; ++first, ++out)
        if (condition(*first)) *out = function(*first);
    return out;
}
template <class It, class Mask, class Out, class F, class If, SAPWOOD_UNLESS_POLICY(It)>
Out transform_if(It first, It last, Mask mask, Out out, F function, If condition) {
    for (; first != last; ++first, ++mask, ++out)
        if (condition(*mask)) *out = function(*first);
    return out;
}
SAPWOOD_BY_POLICY(transform_if)
template <class It, class T, SAPWOOD_UNLESS_POLICY(It)> void sequence(It first, It last, T value, T step) {
    for (std::ptrdiff_t i = 0; first != last; ++first, ++i) *first = value + T(i) * step;
}
template <class It, class T, SAPWOOD_UNLESS_POLICY(It)> void sequence(It first, It last, T value) {
    thrust::sequence(first, last, value, T(1));
}
template <class It, SAPWOOD_UNLESS_POLICY(It)> void sequence(It first, It last) {
    thrust::sequence(first, last, sapwood_cuda::ValueOf<It>(0));
}
SAPWOOD_BY_POLICY(sequence)
template <class It, class F, SAPWOOD_UNLESS_POLICY(It)> void tabulate(It first, It last, F function) {
    for (std::ptrdiff_t i = 0; first != last; ++first, ++i) *first = function(i);
}
SAPWOOD_BY_POLICY(tabulate)
template <class It, class If, class T, SAPWOOD_UNLESS_POLICY(It)> void replace_if(It first, It last, If condition, const T &value) {
    for (; first != last; ++first)
        if (condition(*first)) *first = value;
}
template <class It, class Mask, class If, class T, SAPWOOD_UNLESS_POLICY(It)>
void replace_if(It first, It last, Mask mask, If condition, const T &value) {
    for (; first != last; ++first, ++mask)
        if (condition(*mask)) *first = value;
}
SAPWOOD_BY_POLICY(replace_if)
template <class It, class Out, class If, class T, SAPWOOD_UNLESS_POLICY(It)>
Out replace_copy_if(It first, It last, Out out, If condition, const T &value) {
    for (; first != last; ++first, ++out) {
        if (condition(*first)) *out = value;
        else *out = *first;
    }
    return out;
}
SAPWOOD_BY_POLICY(replace_copy_if)

// Reductions and scans.
template <class It, class T, class F, SAPWOOD_UNLESS_POLICY(It)> T reduce(It first, It last, T value, F fold) {
    for (; first != last; ++first) value = fold(value, *first);
    return value;
}
template <class It, class T, SAPWOOD_UNLESS_POLICY(It)> T reduce(It first, It last, T value) {
    return thrust::reduce(first, last, value, plus<T>());
}
template <class It, SAPWOOD_UNLESS_POLICY(It)> sapwood_cuda::ValueOf<It> reduce(It first, It last) {
    return thrust::reduce(first, last, sapwood_cuda::ValueOf<It>(0));
}
SAPWOOD_BY_POLICY(reduce)
template <class It, class U, class T, class F, SAPWOOD_UNLESS_POLICY(It)>
T transform_reduce(It first, It last, U function, T value, F fold) {
    for (; first != last; ++first) {
        auto &&each = *first;
        value = fold(value, function(each));
    }
    return value;
}
SAPWOOD_BY_POLICY(transform_reduce)
template <class Keys, class It, class OutKeys, class Out, class Same, class F, SAPWOOD_UNLESS_POLICY(Keys)>
pair<OutKeys, Out> reduce_by_key(Keys first, Keys last, It values, OutKeys keys, Out out, Same same, F fold) {
    while (first != last) {
        sapwood_cuda::ValueOf<Keys> key = *first;
        sapwood_cuda::ValueOf<It> value = *values;
        for (++first, ++values; first != last && same(key, *first); ++first, ++values) value = fold(value, *values);
        *keys = key, *out = value;
        ++keys, ++out;
    }
    return {keys, out};
}
template <class Keys, class It, class OutKeys, class Out, class Same, SAPWOOD_UNLESS_POLICY(Keys)>
pair<OutKeys, Out> reduce_by_key(Keys first, Keys last, It values, OutKeys keys, Out out, Same same) {
    return thrust::reduce_by_key(first, last, values, keys, out, same, plus<>());
}
template <class Keys, class It, class OutKeys, class Out, SAPWOOD_UNLESS_POLICY(Keys)>
pair<OutKeys, Out> reduce_by_key(Keys first, Keys last, It values, OutKeys keys, Out out) {
    return thrust::reduce_by_key(first, last, values, keys, out, equal_to<>());
}
SAPWOOD_BY_POLICY(reduce_by_key)
template <class It, class Out, class F, SAPWOOD_UNLESS_POLICY(It)> Out inclusive_scan(It first, It last, Out out, F fold) {
    if (first == last) return out;
    sapwood_cuda::ValueOf<It> value = *first;
    for (*out = value, ++first, ++out; first != last; ++first, ++out) *out = value = fold(value, *first);
    return out;
}
template <class It, class Out, SAPWOOD_UNLESS_POLICY(It)> Out inclusive_scan(It first, It last, Out out) {
    return thrust::inclusive_scan(first, last, out, plus<>());
}
SAPWOOD_BY_POLICY(inclusive_scan)
template <class It, class Out, class T, class F, SAPWOOD_UNLESS_POLICY(It)>
Out exclusive_scan(It first, It last, Out out, T value, F fold) {
    for (; first != last; ++first, ++out) {
        const T next = fold(value, *first); // it may be done in place
        *out = value;
        value = next;
    }
    return out;
}
template <class It, class Out, class T, SAPWOOD_UNLESS_POLICY(It)> Out exclusive_scan(It first, It last, Out out, T value) {
    return thrust::exclusive_scan(first, last, out, value, plus<>());
}
template <class It, class Out, SAPWOOD_UNLESS_POLICY(It)> Out exclusive_scan(It first, It last, Out out) {
    return thrust::exclusive_scan(first, last, out, sapwood_cuda::ValueOf<It>(0));
}
SAPWOOD_BY_POLICY(exclusive_scan)
template <class It, class Out, class U, class F, SAPWOOD_UNLESS_POLICY(It)>
Out transform_inclusive_scan(It first, It last, Out out, U function, F fold) {
    return thrust::inclusive_scan(make_transform_iterator(first, function), make_transform_iterator(last, function), out, fold);
}
SAPWOOD_BY_POLICY(transform_inclusive_scan)
template <class It, class Out, class U, class T, class F, SAPWOOD_UNLESS_POLICY(It)>
Out transform_exclusive_scan(It first, It last, Out out, U function, T value, F fold) {
    return thrust::exclusive_scan(make_transform_iterator(first, function), make_transform_iterator(last, function), out,
                                  value, fold);
}
SAPWOOD_BY_POLICY(transform_exclusive_scan)
template <class Keys, class It, class Out, class Same = equal_to<>, class F = plus<>, SAPWOOD_UNLESS_POLICY(Keys)>
Out inclusive_scan_by_key(Keys first, Keys last, It values, Out out, Same same = Same(), F fold = F()) {
    while (first != last) {
        sapwood_cuda::ValueOf<Keys> key = *first;
        sapwood_cuda::ValueOf<It> value = *values;
        *out = value;
        for (++first, ++values, ++out; first != last && same(key, *first); ++first, ++values, ++out) {
            key = *first;
            *out = value = fold(value, *values);
        }
    }
    return out;
}
SAPWOOD_BY_POLICY(inclusive_scan_by_key)
template <class Keys, class It, class Out, class T, class Same = equal_to<>, class F = plus<>, SAPWOOD_UNLESS_POLICY(Keys)>
Out exclusive_scan_by_key(Keys first, Keys last, It values, Out out, T start, Same same = Same(), F fold = F()) {
    while (first != last) {
        sapwood_cuda::ValueOf<Keys> key = *first;
        T value = start;
        do {
            key = *first;
            const T next = fold(value, *values);
            *out = value;
            value = next;
            ++first, ++values, ++out;
        } while (first != last && same(key, *first));
    }
    return out;
}
template <class Keys, class It, class Out, SAPWOOD_UNLESS_POLICY(Keys)>
Out exclusive_scan_by_key(Keys first, Keys last, It values, Out out) {
    return thrust::exclusive_scan_by_key(first, last, values, out, sapwood_cuda::ValueOf<It>(0));
}
SAPWOOD_BY_POLICY(exclusive_scan_by_key)

// Sorting, by way of a copy: the elements may be in several arrays.
template <class It, class Less, SAPWOOD_UNLESS_POLICY(It)> void stable_sort(It first, It last, Less less) {
    auto sorted = detail::values(first, last);
    std::stable_sort(sorted.begin(), sorted.end(), less);
    thrust::copy(sorted.begin(), sorted.end(), first);
}
template <class It, SAPWOOD_UNLESS_POLICY(It)> void stable_sort(It first, It last) { thrust::stable_sort(first, last, less<>()); }
SAPWOOD_BY_POLICY(stable_sort)
template <class It, class Less, SAPWOOD_UNLESS_POLICY(It)> void sort(It first, It last, Less less) {
    if constexpr (std::is_pointer_v<It>) std::sort(first, last, less);
    else thrust::stable_sort(first, last, less);
}
template <class It, SAPWOOD_UNLESS_POLICY(It)> void sort(It first, It last) { thrust::sort(first, last, less<>()); }
SAPWOOD_BY_POLICY(sort)
template <class Keys, class It, class Less, SAPWOOD_UNLESS_POLICY(Keys)>
void stable_sort_by_key(Keys first, Keys last, It values, Less less) {
    const auto keys = detail::values(first, last);
    const auto old = detail::values(values, values + (last - first));
    std::vector<size_t> order(keys.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return less(keys[a], keys[b]); });
    for (size_t at : order) {
        *first = keys[at], *values = old[at];
        ++first, ++values;
    }
}
template <class Keys, class It, SAPWOOD_UNLESS_POLICY(Keys)> void stable_sort_by_key(Keys first, Keys last, It values) {
    thrust::stable_sort_by_key(first, last, values, less<>());
}
SAPWOOD_BY_POLICY(stable_sort_by_key)
template <class Keys, class It, class Less, SAPWOOD_UNLESS_POLICY(Keys)>
void sort_by_key(Keys first, Keys last, It values, Less less) { thrust::stable_sort_by_key(first, last, values, less); }
template <class Keys, class It, SAPWOOD_UNLESS_POLICY(Keys)> void sort_by_key(Keys first, Keys last, It values) {
    thrust::stable_sort_by_key(first, last, values);
}
SAPWOOD_BY_POLICY(sort_by_key)
template <class It, SAPWOOD_UNLESS_POLICY(It)> void reverse(It first, It last) {
    auto old = detail::values(first, last);
    thrust::copy(old.rbegin(), old.rend(), first);
}
SAPWOOD_BY_POLICY(reverse)
template <class It, class Engine, SAPWOOD_UNLESS_POLICY(It)> void shuffle(It first, It last, Engine &&engine) {
    auto mixed = detail::values(first, last);
    std::shuffle(mixed.begin(), mixed.end(), engine);
    thrust::copy(mixed.begin(), mixed.end(), first);
}
SAPWOOD_BY_POLICY(shuffle)
template <class It, class Out, class Engine, SAPWOOD_UNLESS_POLICY(It)>
Out shuffle_copy(It first, It last, Out out, Engine &&engine) {
    auto mixed = detail::values(first, last);
    std::shuffle(mixed.begin(), mixed.end(), engine);
    return thrust::copy(mixed.begin(), mixed.end(), out);
}
SAPWOOD_BY_POLICY(shuffle_copy)

// Choosing and moving elements.
template <class It, class Out, class If, SAPWOOD_UNLESS_POLICY(It)> Out copy_if(It first, It last, Out out, If condition) {
    for (; first != last; ++first) {
        auto &&value = *first;
        if (condition(value)) *out = value, ++out;
    }
    return out;
}
template <class It, class Mask, class Out, class If, SAPWOOD_UNLESS_POLICY(It)>
Out copy_if(It first, It last, Mask mask, Out out, If condition) {
    for (; first != last; ++first, ++mask)
        if (condition(*mask)) *out = *first, ++out;
    return out;
}
SAPWOOD_BY_POLICY(copy_if)
template <class It, class Out, class If, SAPWOOD_UNLESS_POLICY(It)> Out remove_copy_if(It first, It last, Out out, If condition) {
    return thrust::copy_if(first, last, out, [&](auto &&value) { return !condition(value); });
}
template <class It, class Mask, class Out, class If, SAPWOOD_UNLESS_POLICY(It)>
Out remove_copy_if(It first, It last, Mask mask, Out out, If condition) {
    return thrust::copy_if(first, last, mask, out, [&](auto &&value) { return !condition(value); });
}
SAPWOOD_BY_POLICY(remove_copy_if)
template <class It, class If, SAPWOOD_UNLESS_POLICY(It)> It remove_if(It first, It last, If condition) {
    return thrust::remove_copy_if(first, last, first, condition);
}
template <class It, class Mask, class If, SAPWOOD_UNLESS_POLICY(It)> It remove_if(It first, It last, Mask mask, If condition) {
    return thrust::remove_copy_if(first, last, mask, first, condition);
}
SAPWOOD_BY_POLICY(remove_if)
template <class It, class T, SAPWOOD_UNLESS_POLICY(It)> It remove(It first, It last, const T &value) {
    const T gone = value;
    return thrust::remove_if(first, last, [&](const auto &each) { return each == gone; });
}
SAPWOOD_BY_POLICY(remove)
template <class It, class Out, class T, SAPWOOD_UNLESS_POLICY(It)> Out remove_copy(It first, It last, Out out, const T &value) {
    return thrust::remove_copy_if(first, last, out, [&](const auto &each) { return each == value; });
}
SAPWOOD_BY_POLICY(remove_copy)
template <class It, class Out, class Same = equal_to<>, SAPWOOD_UNLESS_POLICY(It)>
Out unique_copy(It first, It last, Out out, Same same = Same()) {
    if (first == last) return out;
    sapwood_cuda::ValueOf<It> seen = *first;
    *out = seen, ++out;
    for (++first; first != last; ++first)
        if (!same(seen, *first)) {
            seen = *first;
            *out = seen, ++out;
        }
    return out;
}
SAPWOOD_BY_POLICY(unique_copy)
template <class It, class Same = equal_to<>, SAPWOOD_UNLESS_POLICY(It)> It unique(It first, It last, Same same = Same()) {
    return thrust::unique_copy(first, last, first, same);
}
SAPWOOD_BY_POLICY(unique)
template <class It, class Same = equal_to<>, SAPWOOD_UNLESS_POLICY(It)> std::ptrdiff_t unique_count(It first, It last, Same same = Same()) {
    return thrust::unique_copy(first, last, make_discard_iterator(), same) - make_discard_iterator();
}
SAPWOOD_BY_POLICY(unique_count)
template <class Keys, class It, class OutKeys, class Out, class Same = equal_to<>, SAPWOOD_UNLESS_POLICY(Keys)>
pair<OutKeys, Out> unique_by_key_copy(Keys first, Keys last, It values, OutKeys keys, Out out, Same same = Same()) {
    while (first != last) {
        const sapwood_cuda::ValueOf<Keys> key = *first;
        *keys = key, *out = *values;
        ++keys, ++out;
        while (first != last && same(key, *first)) ++first, ++values;
    }
    return {keys, out};
}
SAPWOOD_BY_POLICY(unique_by_key_copy)
template <class Keys, class It, class Same = equal_to<>, SAPWOOD_UNLESS_POLICY(Keys)>
pair<Keys, It> unique_by_key(Keys first, Keys last, It values, Same same = Same()) {
    return thrust::unique_by_key_copy(first, last, values, first, values, same);
}
SAPWOOD_BY_POLICY(unique_by_key)
template <class It, class If, SAPWOOD_UNLESS_POLICY(It)> It stable_partition(It first, It last, If condition) {
    const auto old = detail::values(first, last);
    It middle = thrust::copy_if(old.begin(), old.end(), first, condition);
    thrust::remove_copy_if(old.begin(), old.end(), middle, condition);
    return middle;
}
template <class It, class Mask, class If, SAPWOOD_UNLESS_POLICY(It)>
It stable_partition(It first, It last, Mask mask, If condition) {
    const auto old = detail::values(first, last);
    It middle = thrust::copy_if(old.begin(), old.end(), mask, first, condition);
    thrust::remove_copy_if(old.begin(), old.end(), mask, middle, condition);
    return middle;
}
SAPWOOD_BY_POLICY(stable_partition)
template <class It, class... A, SAPWOOD_UNLESS_POLICY(It)> It partition(It first, It last, A... a) {
    return thrust::stable_partition(first, last, a...);
}
SAPWOOD_BY_POLICY(partition)
template <class Map, class It, class Out, SAPWOOD_UNLESS_POLICY(Map)> Out gather(Map first, Map last, It from, Out out) {
    for (; first != last; ++first, ++out) *out = from[*first];
    return out;
}
SAPWOOD_BY_POLICY(gather)
template <class Map, class Mask, class It, class Out, class If = identity<>, SAPWOOD_UNLESS_POLICY(Map)>
Out gather_if(Map first, Map last, Mask mask, It from, Out out, If condition = If()) {
    for (; first != last; ++first, ++mask, ++out)
        if (condition(*mask)) *out = from[*first];
    return out;
}
SAPWOOD_BY_POLICY(gather_if)
template <class It, class Map, class Out, SAPWOOD_UNLESS_POLICY(It)> void scatter(It first, It last, Map map, Out out) {
    for (; first != last; ++first, ++map) out[*map] = *first;
}
SAPWOOD_BY_POLICY(scatter)
template <class It, class Map, class Mask, class Out, class If = identity<>, SAPWOOD_UNLESS_POLICY(It)>
void scatter_if(It first, It last, Map map, Mask mask, Out out, If condition = If()) {
    for (; first != last; ++first, ++map, ++mask)
        if (condition(*mask)) out[*map] = *first;
}
SAPWOOD_BY_POLICY(scatter_if)
template <class A, class B, class U, class V, class Keys, class Out, class Less = less<>, SAPWOOD_UNLESS_POLICY(A)>
pair<Keys, Out> merge_by_key(A a, A end_a, B b, B end_b, U of_a, V of_b, Keys keys, Out out, Less less = Less()) {
    for (; a != end_a || b != end_b; ++keys, ++out) {
        if (a == end_a || (b != end_b && less(*b, *a))) *keys = *b, *out = *of_b, ++b, ++of_b;
        else *keys = *a, *out = *of_a, ++a, ++of_a;
    }
    return {keys, out};
}
SAPWOOD_BY_POLICY(merge_by_key)

// Searches in sorted ranges: for one value, or for each of some.
#define SAPWOOD_SEARCH(name, result)                                                             \
    template <class It, class T, SAPWOOD_UNLESS_POLICY(It)> auto name(It first, It last, const T &value) { \
        return std::name(first, last, value);                                                    \
    }                                                                                            \
    template <class It, class T, class Less, SAPWOOD_UNLESS_POLICY(It)>                          \
    auto name(It first, It last, const T &value, Less less) { return std::name(first, last, value, less); } \
    template <class It, class Values, class Out, class Less, SAPWOOD_UNLESS_POLICY(It)>          \
    Out name(It first, It last, Values from, Values to, Out out, Less less) {                    \
        for (; from != to; ++from, ++out) *out = std::name(first, last, *from, less) result;     \
        return out;                                                                              \
    }                                                                                            \
    template <class It, class Values, class Out, SAPWOOD_UNLESS_POLICY(It),                      \
              class = typename std::iterator_traits<Values>::iterator_category>                  \
    Out name(It first, It last, Values from, Values to, Out out) {                               \
        return thrust::name(first, last, from, to, out, less<>());                               \
    }                                                                                            \
    SAPWOOD_BY_POLICY(name)
SAPWOOD_SEARCH(lower_bound, -first)
SAPWOOD_SEARCH(upper_bound, -first)
SAPWOOD_SEARCH(binary_search, )
#undef SAPWOOD_SEARCH

#undef SAPWOOD_FROM_STD
#undef SAPWOOD_BY_POLICY
#undef SAPWOOD_UNLESS_POLICY

// Random numbers.
using std::minstd_rand;
using std::minstd_rand0;
typedef minstd_rand default_random_engine;
namespace random {
using std::linear_congruential_engine;
using std::minstd_rand;
using std::minstd_rand0;
typedef minstd_rand default_random_engine;
template <class T = double> class uniform_real_distribution {
  public:
    explicit uniform_real_distribution(T from = 0, T to = 1) : from_(from), to_(to) {}
    template <class Engine> T operator()(Engine &engine) const {
        const double range = double(Engine::max() - Engine::min()) + 1;
        return T(double(engine() - Engine::min()) / range) * (to_ - from_) + from_;
    }

  private:
    T from_, to_;
};
template <class T = int> class uniform_int_distribution {
  public:
    explicit uniform_int_distribution(T from = 0, T to = std::numeric_limits<T>::max()) : from_(from), to_(to) {}
    template <class Engine> T operator()(Engine &engine) const {
        return T(std::floor(uniform_real_distribution<double>(double(from_), double(to_) + 1)(engine)));
    }

  private:
    T from_, to_;
};
template <class T = double> class normal_distribution {
  public:
    explicit normal_distribution(T mean = 0, T deviation = 1) : mean_(mean), deviation_(deviation) {}
    template <class Engine> T operator()(Engine &engine) const {
        const double range = double(Engine::max() - Engine::min()) + 1;
        return mean_ + deviation_ * T(::normcdfinv((double(engine() - Engine::min()) + 0.5) / range));
    }

  private:
    T mean_, deviation_;
};
} // namespace random
using random::normal_distribution;
using random::uniform_int_distribution;
using random::uniform_real_distribution;

} // namespace thrust
