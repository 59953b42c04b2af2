// Function objects, pairs and iterators of CUB.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "../cuda_runtime.h"
#include "iterators.h"

#define CUB_VERSION 200000
#define CUB_PTX_ARCH 700
#define CUB_RUNTIME_FUNCTION
#define CUB_MIN(a, b) (((a) < (b)) ? (a) : (b))
#define CUB_MAX(a, b) (((a) > (b)) ? (a) : (b))
#define CUB_NAMESPACE_BEGIN namespace cub {
#define CUB_NAMESPACE_END }
#define CUB_LOG_WARP_THREADS(version) 5
#define CUB_WARP_THREADS(version) 32
#define CUB_PTX_WARP_THREADS 32
#define CUB_PTX_LOG_WARP_THREADS 5

namespace cub {

struct Sum { template <class A, class B> auto operator()(const A &a, const B &b) const { return a + b; } };
struct Difference { template <class A, class B> auto operator()(const A &a, const B &b) const { return a - b; } };
struct Division { template <class A, class B> auto operator()(const A &a, const B &b) const { return a / b; } };
struct Max { template <class T> T operator()(const T &a, const T &b) const { return a < b ? b : a; } };
struct Min { template <class T> T operator()(const T &a, const T &b) const { return b < a ? b : a; } };
struct Equality { template <class A, class B> bool operator()(const A &a, const B &b) const { return a == b; } };
struct Inequality { template <class A, class B> bool operator()(const A &a, const B &b) const { return a != b; } };
template <class Same> struct InequalityWrapper {
    Same same;
    InequalityWrapper(Same same) : same(same) {}
    template <class T> bool operator()(const T &a, const T &b) { return !same(a, b); }
};
template <class K, class V> struct KeyValuePair {
    typedef K Key;
    typedef V Value;
    K key;
    V value;
    KeyValuePair() = default;
    KeyValuePair(const K &key, const V &value) : key(key), value(value) {}
    bool operator!=(const KeyValuePair &other) const { return key != other.key || value != other.value; }
    bool operator==(const KeyValuePair &other) const { return !(*this != other); }
};
// Of equal ones, the first.
struct ArgMax {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
        return a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
struct ArgMin {
    template <class K, class V>
    KeyValuePair<K, V> operator()(const KeyValuePair<K, V> &a, const KeyValuePair<K, V> &b) const {
        return b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a;
    }
};
template <class T> struct CastOp { template <class A> T operator()(const A &a) const { return T(a); } };
template <class F> struct SwizzleScanOp {
    F function;
    SwizzleScanOp(F function) : function(function) {}
    template <class T> T operator()(const T &a, const T &b) { return function(b, a); }
};
template <class F> struct ReduceByKeyOp {
    F function;
    ReduceByKeyOp() = default;
    ReduceByKeyOp(F function) : function(function) {}
    template <class P> P operator()(const P &a, const P &b) {
        return P(b.key, b.key == a.key ? function(a.value, b.value) : b.value);
    }
};
struct NullType {};
template <class T> struct Uninitialized {
    alignas(T) unsigned char storage[sizeof(T)];
    T &Alias() { return *reinterpret_cast<T *>(storage); }
};
template <int N> struct Int2Type { enum { VALUE = N }; };
template <bool Choice, class A, class B> struct If { typedef std::conditional_t<Choice, A, B> Type; };
template <class A, class B> struct Equals { enum { VALUE = std::is_same_v<A, B> }; };
template <int N, int = 0, int = 0> struct Log2 {
    static constexpr int value() { int n = 0; while ((1 << n) < N) n++; return n; }
    enum { VALUE = value() };
};
template <int N> struct PowerOfTwo { enum { VALUE = (N & (N - 1)) == 0 }; };
enum Category { NOT_A_NUMBER, SIGNED_INTEGER, UNSIGNED_INTEGER, FLOATING_POINT };
template <class T> struct Traits {
    enum { PRIMITIVE = std::numeric_limits<T>::is_specialized, NULL_TYPE = std::is_same_v<T, NullType> };
    typedef std::conditional_t<sizeof(T) == 1, unsigned char, std::conditional_t<sizeof(T) == 2, unsigned short,
            std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>>> UnsignedBits;
    static constexpr UnsignedBits HIGH_BIT = UnsignedBits(UnsignedBits(1) << (8 * sizeof(T) - 1));
    static constexpr Category CATEGORY =
        !PRIMITIVE ? NOT_A_NUMBER : !std::is_integral_v<T> ? FLOATING_POINT : std::is_signed_v<T> ? SIGNED_INTEGER : UNSIGNED_INTEGER;
    // The bits of a number as one without sign, in the same order, and back.
    static UnsignedBits TwiddleIn(UnsignedBits bits) {
        if (CATEGORY == FLOATING_POINT) return UnsignedBits(bits & HIGH_BIT ? ~bits : bits ^ HIGH_BIT);
        return UnsignedBits(CATEGORY == SIGNED_INTEGER ? bits ^ HIGH_BIT : bits);
    }
    static UnsignedBits TwiddleOut(UnsignedBits bits) {
        if (CATEGORY == FLOATING_POINT) return UnsignedBits(bits & HIGH_BIT ? bits ^ HIGH_BIT : ~bits);
        return TwiddleIn(bits);
    }
    static T Lowest() { return std::numeric_limits<T>::lowest(); }
    static T Max() { return std::numeric_limits<T>::max(); }
};
template <class T> struct NumericTraits : Traits<T> {};
template <class T> struct FpLimits : Traits<T> {};
template <class A, class B> constexpr auto DivideAndRoundUp(A n, B d) { return (n + d - 1) / d; }

template <class T, class D = std::ptrdiff_t> using CountingInputIterator = sapwood_cuda::Counting<T>;
template <class T, class D = std::ptrdiff_t> using ConstantInputIterator = sapwood_cuda::Constant<T>;
template <class T, class F, class It, class D = std::ptrdiff_t>
class TransformInputIterator : public sapwood_cuda::Iterator<TransformInputIterator<T, F, It, D>, T, T> {
  public:
    TransformInputIterator(It base, F function) : base_(base), function_(function) {}
    T get() const { return function_(*base_); }
    void move(std::ptrdiff_t n) { base_ += n; }
    std::ptrdiff_t distance_to(const TransformInputIterator &other) const { return other.base_ - base_; }

  private:
    It base_;
    mutable F function_;
};
template <class It, class D = std::ptrdiff_t, class T = sapwood_cuda::ValueOf<It>>
class ArgIndexInputIterator
    : public sapwood_cuda::Iterator<ArgIndexInputIterator<It, D, T>, KeyValuePair<D, T>, KeyValuePair<D, T>> {
  public:
    ArgIndexInputIterator(It base, std::ptrdiff_t at = 0) : base_(base), at_(at) {}
    KeyValuePair<D, T> get() const { return {D(at_), T(base_[at_])}; }
    void move(std::ptrdiff_t n) { at_ += n; }
    std::ptrdiff_t distance_to(const ArgIndexInputIterator &other) const { return other.at_ - at_; }
    void normalize() { base_ += at_, at_ = 0; }

  private:
    It base_;
    std::ptrdiff_t at_;
};
template <class = void> using DiscardOutputIterator = sapwood_cuda::Discarding;

// How memory is read and written: of no matter here.
enum CacheLoadModifier { LOAD_DEFAULT, LOAD_CA, LOAD_CG, LOAD_CS, LOAD_CV, LOAD_LDG, LOAD_VOLATILE };
enum CacheStoreModifier { STORE_DEFAULT, STORE_WB, STORE_CG, STORE_CS, STORE_WT, STORE_VOLATILE };
template <CacheLoadModifier, class It> sapwood_cuda::ValueOf<It> ThreadLoad(It at) { return *at; }
template <CacheStoreModifier, class It, class T> void ThreadStore(It at, const T &value) { *at = value; }
template <CacheLoadModifier, class T, class D = std::ptrdiff_t> using CacheModifiedInputIterator = const T *;
template <CacheStoreModifier, class T, class D = std::ptrdiff_t> using CacheModifiedOutputIterator = T *;
template <class T, class D = std::ptrdiff_t> class TexObjInputIterator {
  public:
    template <class Q> cudaError_t BindTexture(Q *at, size_t = 0, size_t = 0) { return at_ = at, cudaSuccess; }
    cudaError_t UnbindTexture() { return cudaSuccess; }
    typedef std::random_access_iterator_tag iterator_category;
    typedef T value_type;
    typedef std::ptrdiff_t difference_type;
    typedef const T *pointer;
    typedef T reference;
    template <class N> T operator[](N n) const { return at_[n]; }
    T operator*() const { return *at_; }
    TexObjInputIterator operator+(std::ptrdiff_t n) const { return TexObjInputIterator(*this) += n; }
    TexObjInputIterator &operator+=(std::ptrdiff_t n) { return at_ += n, *this; }
    TexObjInputIterator &operator++() { return ++at_, *this; }
    std::ptrdiff_t operator-(const TexObjInputIterator &other) const { return at_ - other.at_; }
    bool operator!=(const TexObjInputIterator &other) const { return at_ != other.at_; }

  private:
    const T *at_ = nullptr;
};

// Two arrays, of which one is the current one.
template <class T> struct DoubleBuffer {
    T *d_buffers[2];
    int selector = 0;
    DoubleBuffer() : d_buffers{nullptr, nullptr} {}
    DoubleBuffer(T *current, T *alternate) : d_buffers{current, alternate} {}
    T *Current() { return d_buffers[selector]; }
    T *Alternate() { return d_buffers[selector ^ 1]; }
};

struct CachingDeviceAllocator {
    bool debug = false;
    CachingDeviceAllocator() = default;
    template <class... A> CachingDeviceAllocator(A...) {}
    cudaError_t DeviceAllocate(void **at, size_t bytes, cudaStream_t = 0) {
        return sapwood_cuda::allocate(at, bytes, "cub::CachingDeviceAllocator", __FILE__, __LINE__);
    }
    cudaError_t DeviceAllocate(int, void **at, size_t bytes, cudaStream_t = 0) { return DeviceAllocate(at, bytes); }
    cudaError_t DeviceFree(void *at) { return cudaFree(at); }
    cudaError_t DeviceFree(int, void *at) { return cudaFree(at); }
    cudaError_t FreeAllCached() { return cudaSuccess; }
};

inline cudaError_t Debug(cudaError_t error, const char *file, int line) {
    if (error) fprintf(stderr, "CUDA error %d [%s, %d]: %s\n", int(error), file, line, cudaGetErrorString(error));
    return error;
}
#define CubDebug(e) ::cub::Debug(e, __FILE__, __LINE__)
#define CubDebugExit(e) do { if (::cub::Debug(e, __FILE__, __LINE__)) exit(1); } while (0)

inline cudaError_t PtxVersion(int &version) { return version = 700, cudaSuccess; }
inline cudaError_t SmVersion(int &version, int = 0) { return version = 700, cudaSuccess; }
template <class F> cudaError_t MaxSmOccupancy(int &blocks, F, int, int = 0) { return blocks = 1, cudaSuccess; }

} // namespace cub
