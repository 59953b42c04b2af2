// Iterators of Thrust and CUB that compute what they point to.
#pragma once

#include <cstddef>
#include <iterator>
#include <tuple>
#include <type_traits>
#include <utility>

namespace sapwood_cuda {

// What is the same for all of them. `Own` has get(), move(n) and distance_to(other).
template <class Own, class Value, class Reference> struct Iterator {
    typedef std::random_access_iterator_tag iterator_category;
    typedef Value value_type;
    typedef std::ptrdiff_t difference_type;
    typedef Reference reference;
    struct Arrow {
        Value value;
        Value *operator->() { return &value; }
    };
    typedef Arrow pointer;

    Reference operator*() const { return own().get(); }
    Arrow operator->() const { return {own().get()}; }
    template <class N> Reference operator[](N n) const { return *(own() + difference_type(n)); }
    Own &operator++() { return own().move(1), own(); }
    Own &operator--() { return own().move(-1), own(); }
    Own operator++(int) { Own old = own(); own().move(1); return old; }
    Own operator--(int) { Own old = own(); own().move(-1); return old; }
    Own &operator+=(difference_type n) { return own().move(n), own(); }
    Own &operator-=(difference_type n) { return own().move(-n), own(); }
    friend Own operator+(const Own &a, difference_type n) { Own b = a; b.move(n); return b; }
    friend Own operator+(difference_type n, const Own &a) { return a + n; }
    friend Own operator-(const Own &a, difference_type n) { return a + -n; }
    friend difference_type operator-(const Own &a, const Own &b) { return b.distance_to(a); }
    friend bool operator==(const Own &a, const Own &b) { return b.distance_to(a) == 0; }
    friend bool operator!=(const Own &a, const Own &b) { return b.distance_to(a) != 0; }
    friend bool operator<(const Own &a, const Own &b) { return b.distance_to(a) < 0; }
    friend bool operator>(const Own &a, const Own &b) { return b.distance_to(a) > 0; }
    friend bool operator<=(const Own &a, const Own &b) { return b.distance_to(a) <= 0; }
    friend bool operator>=(const Own &a, const Own &b) { return b.distance_to(a) >= 0; }

  private:
    Own &own() { return static_cast<Own &>(*this); }
    const Own &own() const { return static_cast<const Own &>(*this); }
};

template <class It> using ValueOf = typename std::iterator_traits<It>::value_type;
template <class It> using ReferenceOf = typename std::iterator_traits<It>::reference;

template <class T> class Counting : public Iterator<Counting<T>, T, T> {
  public:
    Counting(T value = T()) : value_(value) {}
    T get() const { return value_; }
    void move(std::ptrdiff_t n) { value_ = T(value_ + n); }
    std::ptrdiff_t distance_to(const Counting &other) const { return std::ptrdiff_t(other.value_ - value_); }

  private:
    T value_;
};

template <class T> class Constant : public Iterator<Constant<T>, T, T> {
  public:
    Constant() = default;
    Constant(const T &value, std::ptrdiff_t at = 0) : value_(value), at_(at) {}
    T get() const { return value_; }
    void move(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t distance_to(const Constant &other) const { return other.at_ - at_; }

  private:
    T value_{};
    std::ptrdiff_t at_ = 0;
};

template <class F, class It, class Reference = std::invoke_result_t<F, ReferenceOf<It>>,
          class Value = std::decay_t<Reference>>
class Transforming : public Iterator<Transforming<F, It, Reference, Value>, Value, Reference> {
  public:
    Transforming(It base, F function) : base_(base), function_(function) {}
    explicit Transforming(It base) : base_(base), function_() {}
    Reference get() const {
        auto &&value = *base_;
        return function_(value);
    }
    void move(std::ptrdiff_t n) { base_ += n; }
    std::ptrdiff_t distance_to(const Transforming &other) const { return other.base_ - base_; }
    It base() const { return base_; }
    F functor() const { return function_; }
    Transforming(const Transforming &) = default;
    Transforming &operator=(const Transforming &other) { // lambdas cannot be assigned
        base_ = other.base_;
        return *this;
    }

  private:
    It base_;
    mutable F function_;
};

template <class... Its>
class Zipped : public Iterator<Zipped<Its...>, std::tuple<ValueOf<Its>...>, std::tuple<ReferenceOf<Its>...>> {
  public:
    Zipped(std::tuple<Its...> bases) : bases_(bases) {}
    Zipped(Its... bases) : bases_(bases...) {}
    std::tuple<ReferenceOf<Its>...> get() const {
        return std::apply([](auto &...it) { return std::tuple<ReferenceOf<Its>...>(*it...); }, bases_);
    }
    void move(std::ptrdiff_t n) {
        std::apply([n](auto &...it) { ((it += n), ...); }, bases_);
    }
    std::ptrdiff_t distance_to(const Zipped &other) const { return std::get<0>(other.bases_) - std::get<0>(bases_); }
    const std::tuple<Its...> &get_iterator_tuple() const { return bases_; }

  private:
    std::tuple<Its...> bases_;
};

// The elements at some places, in the order of those.
template <class It, class Places>
class Permuted : public Iterator<Permuted<It, Places>, ValueOf<It>, ReferenceOf<It>> {
  public:
    Permuted(It base, Places places) : base_(base), places_(places) {}
    ReferenceOf<It> get() const { return base_[std::ptrdiff_t(*places_)]; }
    void move(std::ptrdiff_t n) { places_ += n; }
    std::ptrdiff_t distance_to(const Permuted &other) const { return other.places_ - places_; }

  private:
    It base_;
    Places places_;
};

// Takes anything and keeps nothing.
class Discarding;
struct Discarded {
    template <class T> const Discarded &operator=(const T &) const { return *this; }
};
class Discarding : public Iterator<Discarding, Discarded, Discarded> {
  public:
    Discarding(std::ptrdiff_t at = 0) : at_(at) {}
    Discarded get() const { return {}; }
    void move(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t distance_to(const Discarding &other) const { return other.at_ - at_; }

  private:
    std::ptrdiff_t at_;
};

// Writes what a function makes of what is assigned.
template <class F, class It> struct Changed {
    F function;
    It at;
    template <class T> const Changed &operator=(const T &value) const { return *at = function(value), *this; }
};
template <class F, class It> class Changing : public Iterator<Changing<F, It>, ValueOf<It>, Changed<F, It>> {
  public:
    Changing(It base, F function) : base_(base), function_(function) {}
    Changed<F, It> get() const { return {function_, base_}; }
    void move(std::ptrdiff_t n) { base_ += n; }
    std::ptrdiff_t distance_to(const Changing &other) const { return other.base_ - base_; }

  private:
    It base_;
    F function_;
};

} // namespace sapwood_cuda
