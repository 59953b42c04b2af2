// cuBLAS: vectors and matrices in columns.
#pragma once

#define CUBLAS_API_H_
#define CUBLAS_V2_H_
#define CUBLAS_VER_MAJOR 12
#define CUBLAS_VER_MINOR 0
#define CUBLAS_VER_PATCH 0
#define CUBLAS_VER_BUILD 0
#define CUBLAS_VERSION 120000
#define CUBLASWINAPI

#include "cuComplex.h"
#include "library_types.h"
#include "sapwood/blas.h"

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_NOT_INITIALIZED = 1, CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7, CUBLAS_STATUS_ARCH_MISMATCH = 8, CUBLAS_STATUS_MAPPING_ERROR = 11,
    CUBLAS_STATUS_EXECUTION_FAILED = 13, CUBLAS_STATUS_INTERNAL_ERROR = 14, CUBLAS_STATUS_NOT_SUPPORTED = 15,
    CUBLAS_STATUS_LICENSE_ERROR = 16
};
enum cublasFillMode_t { CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER, CUBLAS_FILL_MODE_FULL };
enum cublasDiagType_t { CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT };
enum cublasSideMode_t { CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C, CUBLAS_OP_HERMITAN = CUBLAS_OP_C, CUBLAS_OP_CONJG };
enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST, CUBLAS_POINTER_MODE_DEVICE };
enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED, CUBLAS_ATOMICS_ALLOWED };
enum cublasGemmAlgo_t {
    CUBLAS_GEMM_DFALT = -1, CUBLAS_GEMM_DEFAULT = -1, CUBLAS_GEMM_ALGO0 = 0, CUBLAS_GEMM_ALGO1, CUBLAS_GEMM_ALGO2,
    CUBLAS_GEMM_ALGO3, CUBLAS_GEMM_ALGO4, CUBLAS_GEMM_ALGO5, CUBLAS_GEMM_ALGO6, CUBLAS_GEMM_ALGO7, CUBLAS_GEMM_ALGO23 = 23,
    CUBLAS_GEMM_DEFAULT_TENSOR_OP = 99, CUBLAS_GEMM_DFALT_TENSOR_OP = 99, CUBLAS_GEMM_ALGO0_TENSOR_OP = 100,
    CUBLAS_GEMM_ALGO15_TENSOR_OP = 115
};
enum cublasMath_t {
    CUBLAS_DEFAULT_MATH, CUBLAS_TENSOR_OP_MATH, CUBLAS_PEDANTIC_MATH, CUBLAS_TF32_TENSOR_OP_MATH,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};
enum cublasComputeType_t {
    CUBLAS_COMPUTE_16F = 64, CUBLAS_COMPUTE_16F_PEDANTIC, CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_PEDANTIC,
    CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_64F_PEDANTIC, CUBLAS_COMPUTE_32I = 72, CUBLAS_COMPUTE_32I_PEDANTIC,
    CUBLAS_COMPUTE_32F_FAST_16F = 74, CUBLAS_COMPUTE_32F_FAST_16BF, CUBLAS_COMPUTE_32F_FAST_TF32 = 77
};
typedef cudaDataType cublasDataType_t;

struct cublasContext {
    cudaStream_t stream = 0;
    cublasPointerMode_t mode = CUBLAS_POINTER_MODE_HOST;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
    cublasAtomicsMode_t atomics = CUBLAS_ATOMICS_NOT_ALLOWED;
};
typedef cublasContext *cublasHandle_t;

inline cublasStatus_t cublasCreate(cublasHandle_t *handle) { return *handle = new cublasContext, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasDestroy(cublasHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }
#define SAPWOOD_SETTING(name, T, member)                                                         \
    inline cublasStatus_t cublasSet##name(cublasHandle_t handle, T value) {                      \
        return handle ? (handle->member = value, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; \
    }                                                                                            \
    inline cublasStatus_t cublasGet##name(cublasHandle_t handle, T *value) {                     \
        return handle ? (*value = handle->member, CUBLAS_STATUS_SUCCESS) : CUBLAS_STATUS_NOT_INITIALIZED; \
    }
SAPWOOD_SETTING(Stream, cudaStream_t, stream)
SAPWOOD_SETTING(PointerMode, cublasPointerMode_t, mode)
SAPWOOD_SETTING(MathMode, cublasMath_t, math)
SAPWOOD_SETTING(AtomicsMode, cublasAtomicsMode_t, atomics)
#undef SAPWOOD_SETTING
inline cublasStatus_t cublasSetWorkspace(cublasHandle_t, void *, size_t) { return CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasGetVersion(cublasHandle_t, int *version) { return *version = CUBLAS_VERSION, CUBLAS_STATUS_SUCCESS; }
inline const char *cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_INTERNAL_ERROR";
    }
}
inline const char *cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

namespace sapwood_cuda {
inline cublasStatus_t blas_state(cublasHandle_t handle, bool valid = true) {
    return !handle ? CUBLAS_STATUS_NOT_INITIALIZED : !valid ? CUBLAS_STATUS_INVALID_VALUE
           : state() ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
inline char letter(cublasOperation_t how) { return how == CUBLAS_OP_N ? 'N' : how == CUBLAS_OP_T ? 'T' : 'C'; }
inline char letter(cublasFillMode_t uplo) { return uplo == CUBLAS_FILL_MODE_LOWER ? 'L' : 'U'; }
inline char letter(cublasDiagType_t diag) { return diag == CUBLAS_DIAG_UNIT ? 'U' : 'N'; }
inline bool holds_rows(cublasOperation_t how, int rows, int columns, int ld) { return ld >= (how == CUBLAS_OP_N ? rows : columns) && ld > 0; }

// The types that programs name, and those that are computed with.
template <class T> struct Number { typedef T type; };
template <> struct Number<cuComplex> { typedef std::complex<float> type; };
template <> struct Number<cuDoubleComplex> { typedef std::complex<double> type; };
template <class T> typename Number<T>::type *numbers(T *p) { return reinterpret_cast<typename Number<T>::type *>(p); }
template <class T> const typename Number<T>::type *numbers(const T *p) { return reinterpret_cast<const typename Number<T>::type *>(p); }
template <class T> typename Number<T>::type number(const T *p) { return *numbers(p); }

template <class T> T *start(T *x, int n, int step) { return step < 0 ? x - int64_t(n - 1) * step : x; }
template <class T> auto size_of(T x) { // as BLAS counts complex numbers
    if constexpr (IsComplex<T>::value) return std::abs(x.real()) + std::abs(x.imag());
    else return std::abs(x);
}
} // namespace sapwood_cuda

#define SAPWOOD_BLAS(valid)                                                                      \
    using namespace sapwood_cuda;                                                                \
    if (const cublasStatus_t bad = blas_state(handle, valid)) return bad
#define SAPWOOD_DONE return CUBLAS_STATUS_SUCCESS

// Vectors and matrices between host and device.
inline cublasStatus_t cublasSetMatrix(int rows, int columns, int bytes, const void *a, int lda, void *b, int ldb) {
    return cudaMemcpy2D(b, size_t(ldb) * bytes, a, size_t(lda) * bytes, size_t(rows) * bytes, columns, cudaMemcpyHostToDevice)
               ? CUBLAS_STATUS_MAPPING_ERROR : CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasGetMatrix(int rows, int columns, int bytes, const void *a, int lda, void *b, int ldb) {
    return cublasSetMatrix(rows, columns, bytes, a, lda, b, ldb);
}
inline cublasStatus_t cublasSetVector(int n, int bytes, const void *x, int dx, void *y, int dy) {
    return cublasSetMatrix(1, n, bytes, x, dx, y, dy);
}
inline cublasStatus_t cublasGetVector(int n, int bytes, const void *x, int dx, void *y, int dy) {
    return cublasSetMatrix(1, n, bytes, x, dx, y, dy);
}
inline cublasStatus_t cublasSetMatrixAsync(int rows, int columns, int bytes, const void *a, int lda, void *b, int ldb, cudaStream_t) {
    return cublasSetMatrix(rows, columns, bytes, a, lda, b, ldb);
}
inline cublasStatus_t cublasGetMatrixAsync(int rows, int columns, int bytes, const void *a, int lda, void *b, int ldb, cudaStream_t) {
    return cublasSetMatrix(rows, columns, bytes, a, lda, b, ldb);
}
inline cublasStatus_t cublasSetVectorAsync(int n, int bytes, const void *x, int dx, void *y, int dy, cudaStream_t) {
    return cublasSetVector(n, bytes, x, dx, y, dy);
}
inline cublasStatus_t cublasGetVectorAsync(int n, int bytes, const void *x, int dx, void *y, int dy, cudaStream_t) {
    return cublasSetVector(n, bytes, x, dx, y, dy);
}

namespace sapwood_cuda {
template <class T> void axpy(int n, T alpha, const T *x, int dx, T *y, int dy) {
    x = start(x, n, dx), y = start(y, n, dy);
    for (int i = 0; i < n; i++) y[int64_t(i) * dy] += alpha * x[int64_t(i) * dx];
}
template <class T> T dot(int n, const T *x, int dx, const T *y, int dy, bool conjugated) {
    x = start(x, n, dx), y = start(y, n, dy);
    T sum(0);
    for (int i = 0; i < n; i++)
        sum += (conjugated ? conjugate(x[int64_t(i) * dx]) : x[int64_t(i) * dx]) * y[int64_t(i) * dy];
    return sum;
}
template <class T> auto length(int n, const T *x, int dx) { // scaled, so that squares stay in range
    double scale = 0, sum = 0;
    for (int i = 0; i < n; i++) scale = std::max(scale, double(std::abs(x[int64_t(i) * dx])));
    for (int i = 0; scale > 0 && i < n; i++) {
        const double part = double(std::abs(x[int64_t(i) * dx])) / scale;
        sum += part * part;
    }
    return scale * std::sqrt(sum);
}
template <class T, class Better> int best_of(int n, const T *x, int dx, Better better) { // counted from 1
    int found = 0;
    for (int i = 1; i < n; i++)
        if (better(size_of(x[int64_t(i) * dx]), size_of(x[int64_t(found) * dx]))) found = i;
    return n > 0 && dx > 0 ? found + 1 : 0;
}
template <class T>
void gemv(char trans, int m, int n, T alpha, const T *a, int lda, const T *x, int dx, T beta, T *y, int dy) {
    const int rows = trans == 'N' ? m : n, columns = trans == 'N' ? n : m;
    std::vector<T> sums(size_t(rows), T(0));
    x = start(x, columns, dx), y = start(y, rows, dy);
    if (trans == 'N')
        for (int j = 0; j < n; j++) {
            const T factor = x[int64_t(j) * dx], *column = a + int64_t(j) * lda;
            for (int i = 0; i < m; i++) sums[size_t(i)] += factor * column[i];
        }
    else
        for (int j = 0; j < n; j++) {
            const T *column = a + int64_t(j) * lda;
            T sum(0);
            for (int i = 0; i < m; i++) sum += (trans == 'C' ? conjugate(column[i]) : column[i]) * x[int64_t(i) * dx];
            sums[size_t(j)] = sum;
        }
    for (int i = 0; i < rows; i++) {
        T &to = y[int64_t(i) * dy];
        to = beta == T(0) ? alpha * sums[size_t(i)] : alpha * sums[size_t(i)] + beta * to;
    }
}
// A symmetric or Hermitian matrix as a whole, of which one triangle is given.
template <class T> std::vector<T> filled(char uplo, int n, const T *a, int lda, bool hermitian) {
    std::vector<T> found(size_t(n) * size_t(n));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++) {
            const bool given = uplo == 'U' ? i <= j : i >= j;
            const T value = given ? a[i + int64_t(j) * lda] : a[j + int64_t(i) * lda];
            found[size_t(i) + size_t(j) * size_t(n)] = hermitian && !given ? conjugate(value) : hermitian && i == j ? T(std::real(value)) : value;
        }
    return found;
}
template <class T> void store_triangle(char uplo, int n, const std::vector<T> &from, T beta, T *c, int ldc) {
    for (int j = 0; j < n; j++)
        for (int i = uplo == 'U' ? 0 : j; i < (uplo == 'U' ? j + 1 : n); i++) {
            T &to = c[i + int64_t(j) * ldc];
            const T value = from[size_t(i) + size_t(j) * size_t(n)];
            to = beta == T(0) ? value : value + beta * to;
        }
}
} // namespace sapwood_cuda

// Real and complex numbers of both precisions; x_ is their letter in some names.
#define SAPWOOD_EACH(X, x_, T)                                                                     \
    inline cublasStatus_t cublas##X##axpy(cublasHandle_t handle, int n, const T *alpha, const T *x, int dx, T *y, int dy) { \
        SAPWOOD_BLAS(true);                                                                      \
        axpy(n, number(alpha), numbers(x), dx, numbers(y), dy);                                  \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##scal(cublasHandle_t handle, int n, const T *alpha, T *x, int dx) { \
        SAPWOOD_BLAS(true);                                                                      \
        for (int i = 0; i < n; i++) numbers(x)[int64_t(i) * dx] *= number(alpha);                \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##copy(cublasHandle_t handle, int n, const T *x, int dx, T *y, int dy) { \
        SAPWOOD_BLAS(true);                                                                      \
        x = start(x, n, dx), y = start(y, n, dy);                                                \
        for (int i = 0; i < n; i++) y[int64_t(i) * dy] = x[int64_t(i) * dx];                     \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##swap(cublasHandle_t handle, int n, T *x, int dx, T *y, int dy) { \
        SAPWOOD_BLAS(true);                                                                      \
        x = start(x, n, dx), y = start(y, n, dy);                                                \
        for (int i = 0; i < n; i++) std::swap(y[int64_t(i) * dy], x[int64_t(i) * dx]);           \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublasI##x_##amax(cublasHandle_t handle, int n, const T *x, int dx, int *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *found = best_of(n, numbers(x), dx, [](auto a, auto b) { return a > b; });               \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublasI##x_##amin(cublasHandle_t handle, int n, const T *x, int dx, int *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *found = best_of(n, numbers(x), dx, [](auto a, auto b) { return a < b; });               \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemv(cublasHandle_t handle, cublasOperation_t how, int m, int n, const T *alpha, \
                                          const T *a, int lda, const T *x, int dx, const T *beta, T *y, int dy) { \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && lda >= m && dx && dy);                                  \
        gemv(letter(how), m, n, number(alpha), numbers(a), lda, numbers(x), dx, number(beta), numbers(y), dy); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemvStridedBatched(                                         \
        cublasHandle_t handle, cublasOperation_t how, int m, int n, const T *alpha, const T *a, int lda, long long sa, \
        const T *x, int dx, long long sx, const T *beta, T *y, int dy, long long sy, int batch) { \
        for (int b = 0; b < batch; b++)                                                          \
            if (auto bad = cublas##X##gemv(handle, how, m, n, alpha, a + b * sa, lda, x + b * sx, dx, beta, y + b * sy, dy)) \
                return bad;                                                                      \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemvBatched(cublasHandle_t handle, cublasOperation_t how, int m, int n, const T *alpha, \
                                                 const T *const *a, int lda, const T *const *x, int dx, const T *beta, \
                                                 T *const *y, int dy, int batch) {               \
        for (int b = 0; b < batch; b++)                                                          \
            if (auto bad = cublas##X##gemv(handle, how, m, n, alpha, a[b], lda, x[b], dx, beta, y[b], dy)) return bad; \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##trsv(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t how, \
                                          cublasDiagType_t diag, int n, const T *a, int lda, T *x, int dx) { \
        SAPWOOD_BLAS(dx == 1);                                                                   \
        triangle_solve(letter(uplo), letter(how), letter(diag), n, 1, numbers(a), lda, numbers(x), n); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##trmv(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t how, \
                                          cublasDiagType_t diag, int n, const T *a, int lda, T *x, int dx) { \
        SAPWOOD_BLAS(dx == 1);                                                                   \
        triangle_times(letter(uplo), letter(how), letter(diag), n, 1, numbers(a), lda, numbers(x), n); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, \
                                          int k, const T *alpha, const T *a, int lda, const T *b, int ldb, const T *beta, \
                                          T *c, int ldc) {                                       \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && k >= 0 && holds_rows(ta, m, k, lda) && holds_rows(tb, k, n, ldb) && ldc >= m); \
        gemm(letter(ta), letter(tb), m, n, k, number(alpha), numbers(a), lda, numbers(b), ldb, number(beta), numbers(c), ldc); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemmStridedBatched(                                         \
        cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const T *alpha, const T *a, \
        int lda, long long sa, const T *b, int ldb, long long sb, const T *beta, T *c, int ldc, long long sc, int batch) { \
        for (int i = 0; i < batch; i++)                                                          \
            if (auto bad = cublas##X##gemm(handle, ta, tb, m, n, k, alpha, a + i * sa, lda, b + i * sb, ldb, beta, c + i * sc, ldc)) \
                return bad;                                                                      \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gemmBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, \
                                                 int k, const T *alpha, const T *const *a, int lda, const T *const *b, int ldb, \
                                                 const T *beta, T *const *c, int ldc, int batch) { \
        for (int i = 0; i < batch; i++)                                                          \
            if (auto bad = cublas##X##gemm(handle, ta, tb, m, n, k, alpha, a[i], lda, b[i], ldb, beta, c[i], ldc)) return bad; \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##symm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, int m, int n, \
                                          const T *alpha, const T *a, int lda, const T *b, int ldb, const T *beta, T *c, int ldc) { \
        SAPWOOD_BLAS(ldb >= m && ldc >= m);                                                      \
        const bool left = side == CUBLAS_SIDE_LEFT;                                              \
        const int size = left ? m : n;                                                           \
        const auto whole = filled(letter(uplo), size, numbers(a), lda, false);                   \
        if (left) gemm('N', 'N', m, n, m, number(alpha), whole.data(), m, numbers(b), ldb, number(beta), numbers(c), ldc); \
        else gemm('N', 'N', m, n, n, number(alpha), numbers(b), ldb, whole.data(), n, number(beta), numbers(c), ldc); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##syrk(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t how, int n, int k, \
                                          const T *alpha, const T *a, int lda, const T *beta, T *c, int ldc) { \
        SAPWOOD_BLAS(holds_rows(how, n, k, lda) && ldc >= n);                                    \
        typedef Number<T>::type N;                                                               \
        std::vector<N> whole(size_t(n) * size_t(n));                                             \
        gemm(how == CUBLAS_OP_N ? 'N' : 'T', how == CUBLAS_OP_N ? 'T' : 'N', n, n, k, number(alpha), numbers(a), lda, numbers(a), \
             lda, N(0), whole.data(), n);                                                        \
        store_triangle(letter(uplo), n, whole, number(beta), numbers(c), ldc);                   \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##syr2k(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t how, int n, int k, \
                                           const T *alpha, const T *a, int lda, const T *b, int ldb, const T *beta, T *c, int ldc) { \
        SAPWOOD_BLAS(holds_rows(how, n, k, lda) && ldc >= n);                                    \
        typedef Number<T>::type N;                                                               \
        std::vector<N> whole(size_t(n) * size_t(n));                                             \
        const char first = how == CUBLAS_OP_N ? 'N' : 'T', second = how == CUBLAS_OP_N ? 'T' : 'N'; \
        gemm(first, second, n, n, k, number(alpha), numbers(a), lda, numbers(b), ldb, N(0), whole.data(), n); \
        gemm(first, second, n, n, k, number(alpha), numbers(b), ldb, numbers(a), lda, N(1), whole.data(), n); \
        store_triangle(letter(uplo), n, whole, number(beta), numbers(c), ldc);                   \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##trsm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, \
                                          cublasOperation_t how, cublasDiagType_t diag, int m, int n, const T *alpha, const T *a, \
                                          int lda, T *b, int ldb) {                              \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && ldb >= m);                                              \
        triangle(side, how, m, n, number(alpha), numbers(b), ldb, [&](char trans, int rows, int columns, auto *x, int ldx) { \
            triangle_solve(letter(uplo), trans, letter(diag), rows, columns, numbers(a), lda, x, ldx); \
        });                                                                                      \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##trsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, \
                                                 cublasOperation_t how, cublasDiagType_t diag, int m, int n, const T *alpha, \
                                                 const T *const *a, int lda, T *const *b, int ldb, int batch) { \
        for (int i = 0; i < batch; i++)                                                          \
            if (auto bad = cublas##X##trsm(handle, side, uplo, how, diag, m, n, alpha, a[i], lda, b[i], ldb)) return bad; \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##trmm(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, \
                                          cublasOperation_t how, cublasDiagType_t diag, int m, int n, const T *alpha, const T *a, \
                                          int lda, const T *b, int ldb, T *c, int ldc) {         \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && ldb >= m && ldc >= m);                                  \
        for (int j = 0; j < n; j++) std::copy(b + int64_t(j) * ldb, b + int64_t(j) * ldb + m, c + int64_t(j) * ldc); \
        triangle(side, how, m, n, number(alpha), numbers(c), ldc, [&](char trans, int rows, int columns, auto *x, int ldx) { \
            triangle_times(letter(uplo), trans, letter(diag), rows, columns, numbers(a), lda, x, ldx); \
        });                                                                                      \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##geam(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, \
                                          const T *alpha, const T *a, int lda, const T *beta, const T *b, int ldb, T *c, int ldc) { \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && ldc >= m);                                              \
        typedef Number<T>::type N;                                                               \
        const N x = number(alpha), y = number(beta);                                             \
        for (int j = 0; j < n; j++)                                                              \
            for (int i = 0; i < m; i++) {                                                        \
                N sum(0);                                                                        \
                if (x != N(0)) sum += x * element(numbers(a), lda, i, j, letter(ta));            \
                if (y != N(0)) sum += y * element(numbers(b), ldb, i, j, letter(tb));            \
                numbers(c)[i + int64_t(j) * ldc] = sum;                                          \
            }                                                                                    \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##dgmm(cublasHandle_t handle, cublasSideMode_t side, int m, int n, const T *a, int lda, \
                                          const T *x, int dx, T *c, int ldc) {                   \
        SAPWOOD_BLAS(m >= 0 && n >= 0 && lda >= m && ldc >= m);                                  \
        const auto *by = start(numbers(x), side == CUBLAS_SIDE_LEFT ? m : n, dx);                \
        for (int j = 0; j < n; j++)                                                              \
            for (int i = 0; i < m; i++)                                                          \
                numbers(c)[i + int64_t(j) * ldc] =                                               \
                    numbers(a)[i + int64_t(j) * lda] * by[int64_t(side == CUBLAS_SIDE_LEFT ? i : j) * dx]; \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##getrfBatched(cublasHandle_t handle, int n, T *const *a, int lda, int *pivots, int *info, \
                                                  int batch) {                                   \
        SAPWOOD_BLAS(n >= 0 && lda >= n);                                                        \
        for (int b = 0; b < batch; b++) info[b] = factorise(n, numbers(a[b]), lda, pivots ? pivots + int64_t(b) * n : nullptr); \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##getrsBatched(cublasHandle_t handle, cublasOperation_t how, int n, int columns, \
                                                  const T *const *a, int lda, const int *pivots, T *const *x, int ldx, int *info, \
                                                  int batch) {                                   \
        SAPWOOD_BLAS(n >= 0 && lda >= n && ldx >= n);                                            \
        for (int b = 0; b < batch; b++)                                                          \
            solve_factorised(letter(how), n, columns, numbers(a[b]), lda, pivots ? pivots + int64_t(b) * n : nullptr, numbers(x[b]), ldx); \
        if (info) *info = 0;                                                                     \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##getriBatched(cublasHandle_t handle, int n, const T *const *a, int lda, const int *pivots, \
                                                  T *const *c, int ldc, int *info, int batch) {  \
        SAPWOOD_BLAS(n >= 0 && lda >= n && ldc >= n);                                            \
        typedef Number<T>::type N;                                                               \
        for (int b = 0; b < batch; b++) {                                                        \
            info[b] = 0;                                                                         \
            for (int i = n; i-- > 0;)                                                            \
                if (numbers(a[b])[i + int64_t(i) * lda] == N(0)) info[b] = i + 1;                \
            for (int j = 0; j < n; j++)                                                          \
                for (int i = 0; i < n; i++) numbers(c[b])[i + int64_t(j) * ldc] = N(i == j);     \
            solve_factorised('N', n, n, numbers(a[b]), lda, pivots ? pivots + int64_t(b) * n : nullptr, numbers(c[b]), ldc); \
        }                                                                                        \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##gelsBatched(cublasHandle_t handle, cublasOperation_t how, int m, int n, int columns, \
                                                 T *const a[], int lda, T *const b[], int ldb, int *info, int *problems, int batch) { \
        SAPWOOD_BLAS(m >= n && n >= 0 && lda >= m && ldb >= m);                                  \
        if (how != CUBLAS_OP_N) return CUBLAS_STATUS_NOT_SUPPORTED;                              \
        if (info) *info = 0;                                                                     \
        for (int i = 0; i < batch; i++) {                                                        \
            const int problem = least_squares(m, n, columns, numbers(a[i]), lda, numbers(b[i]), ldb); \
            if (problems) problems[i] = problem;                                                 \
        }                                                                                        \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##matinvBatched(cublasHandle_t handle, int n, const T *const *a, int lda, T *const *c, int ldc, \
                                                   int *info, int batch) {                       \
        SAPWOOD_BLAS(n >= 0 && lda >= n && ldc >= n);                                            \
        for (int b = 0; b < batch; b++) {                                                        \
            std::vector<T> copy(size_t(n) * size_t(n));                                          \
            std::vector<int> pivots(size_t(n) + 1);                                              \
            for (int j = 0; j < n; j++) std::copy(a[b] + int64_t(j) * lda, a[b] + int64_t(j) * lda + n, copy.data() + int64_t(j) * n); \
            T *from = copy.data(), *to = c[b];                                                   \
            info[b] = factorise(n, numbers(from), n, pivots.data());                             \
            if (!info[b]) cublas##X##getriBatched(handle, n, &from, n, pivots.data(), &to, ldc, info + b, 1); \
        }                                                                                        \
        SAPWOOD_DONE;                                                                            \
    }
namespace sapwood_cuda {
// B = alpha f(op(A)) B, or B f(op(A)), which is the same of what is transposed.
template <class T, class F> void triangle(cublasSideMode_t side, cublasOperation_t how, int m, int n, T alpha, T *b, int ldb, F function) {
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) b[i + int64_t(j) * ldb] *= alpha;
    if (side == CUBLAS_SIDE_LEFT) return function(letter(how), m, n, b, ldb);
    std::vector<T> turned(size_t(m) * size_t(n));
    const bool conjugated = how == CUBLAS_OP_C;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            const T value = b[i + int64_t(j) * ldb];
            turned[size_t(j) + size_t(i) * size_t(n)] = conjugated ? conjugate(value) : value;
        }
    function(how == CUBLAS_OP_N ? 'T' : 'N', n, m, turned.data(), n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            const T value = turned[size_t(j) + size_t(i) * size_t(n)];
            b[i + int64_t(j) * ldb] = conjugated ? conjugate(value) : value;
        }
}
} // namespace sapwood_cuda
SAPWOOD_EACH(S, s, float)
SAPWOOD_EACH(D, d, double)
SAPWOOD_EACH(C, c, cuComplex)
SAPWOOD_EACH(Z, z, cuDoubleComplex)
#undef SAPWOOD_EACH

#define SAPWOOD_REAL(X, T)                                                                       \
    inline cublasStatus_t cublas##X##dot(cublasHandle_t handle, int n, const T *x, int dx, const T *y, int dy, T *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *found = dot(n, x, dx, y, dy, false);                                                    \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##rot(cublasHandle_t handle, int n, T *x, int dx, T *y, int dy, const T *c, const T *s) { \
        SAPWOOD_BLAS(true);                                                                      \
        x = start(x, n, dx), y = start(y, n, dy);                                                \
        for (int i = 0; i < n; i++) {                                                            \
            T &a = x[int64_t(i) * dx], &b = y[int64_t(i) * dy];                                  \
            const T turned = *c * a + *s * b;                                                    \
            b = *c * b - *s * a, a = turned;                                                     \
        }                                                                                        \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##ger(cublasHandle_t handle, int m, int n, const T *alpha, const T *x, int dx, const T *y, \
                                         int dy, T *a, int lda) {                                \
        SAPWOOD_BLAS(lda >= m);                                                                  \
        x = start(x, m, dx), y = start(y, n, dy);                                                \
        for (int j = 0; j < n; j++)                                                              \
            for (int i = 0; i < m; i++) a[i + int64_t(j) * lda] += *alpha * x[int64_t(i) * dx] * y[int64_t(j) * dy]; \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##symv(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T *alpha, const T *a, int lda, \
                                          const T *x, int dx, const T *beta, T *y, int dy) {     \
        SAPWOOD_BLAS(lda >= n);                                                                  \
        const auto whole = filled(letter(uplo), n, a, lda, false);                               \
        gemv('N', n, n, *alpha, whole.data(), n, x, dx, *beta, y, dy);                           \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##syr(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T *alpha, const T *x, int dx, \
                                         T *a, int lda) {                                        \
        SAPWOOD_BLAS(lda >= n);                                                                  \
        x = start(x, n, dx);                                                                     \
        for (int j = 0; j < n; j++)                                                              \
            for (int i = uplo == CUBLAS_FILL_MODE_UPPER ? 0 : j; i < (uplo == CUBLAS_FILL_MODE_UPPER ? j + 1 : n); i++) \
                a[i + int64_t(j) * lda] += *alpha * x[int64_t(i) * dx] * x[int64_t(j) * dx];     \
        SAPWOOD_DONE;                                                                            \
    }
SAPWOOD_REAL(S, float)
SAPWOOD_REAL(D, double)
#undef SAPWOOD_REAL
#define SAPWOOD_SIZES(name, T, R)                                                                \
    inline cublasStatus_t cublas##name##nrm2(cublasHandle_t handle, int n, const T *x, int dx, R *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *found = R(length(n, numbers(x), dx));                                                   \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##name##asum(cublasHandle_t handle, int n, const T *x, int dx, R *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        R sum = 0;                                                                               \
        for (int i = 0; i < n; i++) sum += size_of(numbers(x)[int64_t(i) * dx]);                 \
        *found = sum;                                                                            \
        SAPWOOD_DONE;                                                                            \
    }
SAPWOOD_SIZES(S, float, float)
SAPWOOD_SIZES(D, double, double)
SAPWOOD_SIZES(Sc, cuComplex, float)
SAPWOOD_SIZES(Dz, cuDoubleComplex, double)
#undef SAPWOOD_SIZES
#define SAPWOOD_COMPLEX(X, T, R)                                                                 \
    inline cublasStatus_t cublas##X##dotu(cublasHandle_t handle, int n, const T *x, int dx, const T *y, int dy, T *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *numbers(found) = dot(n, numbers(x), dx, numbers(y), dy, false);                         \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##dotc(cublasHandle_t handle, int n, const T *x, int dx, const T *y, int dy, T *found) { \
        SAPWOOD_BLAS(true);                                                                      \
        *numbers(found) = dot(n, numbers(x), dx, numbers(y), dy, true);                          \
        SAPWOOD_DONE;                                                                            \
    }                                                                                            \
    inline cublasStatus_t cublas##X##hemv(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T *alpha, const T *a, int lda, \
                                          const T *x, int dx, const T *beta, T *y, int dy) {     \
        SAPWOOD_BLAS(lda >= n);                                                                  \
        const auto whole = filled(letter(uplo), n, numbers(a), lda, true);                       \
        gemv('N', n, n, number(alpha), whole.data(), n, numbers(x), dx, number(beta), numbers(y), dy); \
        SAPWOOD_DONE;                                                                            \
    }
SAPWOOD_COMPLEX(C, cuComplex, float)
SAPWOOD_COMPLEX(Z, cuDoubleComplex, double)
#undef SAPWOOD_COMPLEX

// Mixed types: products and sums are those of the type that is computed with, and results are rounded once.
namespace sapwood_cuda {
template <class T>
void mixed_gemm(char ta, char tb, int m, int n, int k, T alpha, const void *a, cudaDataType at, int lda, const void *b,
                cudaDataType bt, int ldb, T beta, void *c, cudaDataType ct, int ldc) {
    const auto copied = [](const void *from, cudaDataType type, int rows, int columns, int ld) {
        std::vector<T> found(size_t(rows) * size_t(columns) + 1);
        for (int j = 0; j < columns; j++)
            for (int i = 0; i < rows; i++) found[size_t(i) + size_t(j) * size_t(rows)] = loaded<T>(from, type, i + int64_t(j) * ld);
        return found;
    };
    const int ra = ta == 'N' ? m : k, ca = ta == 'N' ? k : m, rb = tb == 'N' ? k : n, cb = tb == 'N' ? n : k;
    const auto left = copied(a, at, ra, ca, lda), right = copied(b, bt, rb, cb, ldb);
    std::vector<T> sums(size_t(m) * size_t(n) + 1, T(0));
    if (beta != T(0)) sums = copied(c, ct, m, n, ldc);
    gemm<T>(ta, tb, m, n, k, alpha, left.data(), std::max(ra, 1), right.data(), std::max(rb, 1), beta, sums.data(), std::max(m, 1));
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) stored(c, ct, i + int64_t(j) * ldc, sums[size_t(i) + size_t(j) * size_t(m)]);
}
inline cublasComputeType_t compute_type(cublasComputeType_t type) { return type; }
inline cublasComputeType_t compute_type(cudaDataType type) { // as before CUDA 11
    return type == CUDA_R_16F ? CUBLAS_COMPUTE_16F : type == CUDA_R_64F ? CUBLAS_COMPUTE_64F
           : type == CUDA_R_32I ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F;
}
}
template <class Compute>
cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType at, int lda, const void *b, cudaDataType bt, int ldb,
                            const void *beta, void *c, cudaDataType ct, int ldc, Compute given, cublasGemmAlgo_t = CUBLAS_GEMM_DEFAULT) {
    SAPWOOD_BLAS(m >= 0 && n >= 0 && k >= 0 && holds_rows(ta, m, k, lda) && holds_rows(tb, k, n, ldb) && ldc >= m);
    const cublasComputeType_t compute = compute_type(given);
    if (at == CUDA_C_32F)
        return cublasCgemm(handle, ta, tb, m, n, k, (const cuComplex *)alpha, (const cuComplex *)a, lda, (const cuComplex *)b, ldb,
                           (const cuComplex *)beta, (cuComplex *)c, ldc);
    if (at == CUDA_C_64F)
        return cublasZgemm(handle, ta, tb, m, n, k, (const cuDoubleComplex *)alpha, (const cuDoubleComplex *)a, lda,
                           (const cuDoubleComplex *)b, ldb, (const cuDoubleComplex *)beta, (cuDoubleComplex *)c, ldc);
    if (!is_real(at) || !is_real(bt) || !is_real(ct)) return CUBLAS_STATUS_NOT_SUPPORTED;
    const cudaDataType scale = compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC ? CUDA_R_16F
        : compute == CUBLAS_COMPUTE_64F || compute == CUBLAS_COMPUTE_64F_PEDANTIC ? CUDA_R_64F
        : (compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC) && ct == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
    if (scale == CUDA_R_64F || scale == CUDA_R_32I) // sums of integers are exact in a double
        mixed_gemm<double>(letter(ta), letter(tb), m, n, k, loaded<double>(alpha, scale, 0), a, at, lda, b, bt, ldb,
                           loaded<double>(beta, scale, 0), c, ct, ldc);
    else
        mixed_gemm<float>(letter(ta), letter(tb), m, n, k, loaded<float>(alpha, scale, 0), a, at, lda, b, bt, ldb,
                          loaded<float>(beta, scale, 0), c, ct, ldc);
    SAPWOOD_DONE;
}
template <class Compute>
cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                          const void *alpha, const void *a, cudaDataType at, int lda, long long sa, const void *b,
                                          cudaDataType bt, int ldb, long long sb, const void *beta, void *c, cudaDataType ct, int ldc,
                                          long long sc, int batch, Compute compute, cublasGemmAlgo_t = CUBLAS_GEMM_DEFAULT) {
    using sapwood_cuda::bytes_of;
    for (int i = 0; i < batch; i++)
        if (auto bad = cublasGemmEx(handle, ta, tb, m, n, k, alpha, (const char *)a + i * sa * (long long)bytes_of(at), at, lda,
                                    (const char *)b + i * sb * (long long)bytes_of(bt), bt, ldb, beta,
                                    (char *)c + i * sc * (long long)bytes_of(ct), ct, ldc, compute))
            return bad;
    SAPWOOD_DONE;
}
template <class Compute>
cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                   const void *alpha, const void *const a[], cudaDataType at, int lda, const void *const b[],
                                   cudaDataType bt, int ldb, const void *beta, void *const c[], cudaDataType ct, int ldc, int batch,
                                   Compute compute, cublasGemmAlgo_t = CUBLAS_GEMM_DEFAULT) {
    for (int i = 0; i < batch; i++)
        if (auto bad = cublasGemmEx(handle, ta, tb, m, n, k, alpha, a[i], at, lda, b[i], bt, ldb, beta, c[i], ct, ldc, compute))
            return bad;
    SAPWOOD_DONE;
}
inline cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                    const float *alpha, const void *a, cudaDataType at, int lda, const void *b, cudaDataType bt, int ldb,
                                    const float *beta, void *c, cudaDataType ct, int ldc) {
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, at, lda, b, bt, ldb, beta, c, ct, ldc, CUBLAS_COMPUTE_32F);
}
inline cublasStatus_t cublasHgemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                  const __half *alpha, const __half *a, int lda, const __half *b, int ldb, const __half *beta, __half *c,
                                  int ldc) {
    return cublasGemmEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_16F, lda, b, CUDA_R_16F, ldb, beta, c, CUDA_R_16F, ldc, CUBLAS_COMPUTE_16F);
}
inline cublasStatus_t cublasHgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                                const __half *alpha, const __half *a, int lda, long long sa, const __half *b, int ldb,
                                                long long sb, const __half *beta, __half *c, int ldc, long long sc, int batch) {
    return cublasGemmStridedBatchedEx(handle, ta, tb, m, n, k, alpha, a, CUDA_R_16F, lda, sa, b, CUDA_R_16F, ldb, sb, beta, c, CUDA_R_16F,
                                      ldc, sc, batch, CUBLAS_COMPUTE_16F);
}
inline cublasStatus_t cublasHgemmBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                                         const __half *alpha, const __half *const a[], int lda, const __half *const b[], int ldb,
                                         const __half *beta, __half *const c[], int ldc, int batch) {
    return cublasGemmBatchedEx(handle, ta, tb, m, n, k, alpha, (const void *const *)a, CUDA_R_16F, lda, (const void *const *)b, CUDA_R_16F,
                               ldb, beta, (void *const *)c, CUDA_R_16F, ldc, batch, CUBLAS_COMPUTE_16F);
}
namespace sapwood_cuda {
// A vector of numbers of any real type, in the order of its increment.
struct AnyVector {
    const void *at;
    cudaDataType type;
    int n, step;
    int64_t place(int i) const { return step < 0 ? int64_t(i + 1 - n) * step : int64_t(i) * step; }
    double operator[](int i) const { return loaded<double>(at, type, place(i)); }
};
}
#define SAPWOOD_REAL(...)                                                                        \
    SAPWOOD_BLAS(true);                                                                          \
    for (const cudaDataType each : {__VA_ARGS__})                                                \
        if (!is_real(each)) return CUBLAS_STATUS_NOT_SUPPORTED
inline cublasStatus_t cublasDotEx(cublasHandle_t handle, int n, const void *x, cudaDataType xt, int dx, const void *y, cudaDataType yt,
                                  int dy, void *found, cudaDataType type, cudaDataType) {
    SAPWOOD_REAL(xt, yt, type);
    const AnyVector left{x, xt, n, dx}, right{y, yt, n, dy};
    double sum = 0;
    for (int i = 0; i < n; i++) sum += left[i] * right[i];
    stored(found, type, 0, sum);
    SAPWOOD_DONE;
}
inline cublasStatus_t cublasNrm2Ex(cublasHandle_t handle, int n, const void *x, cudaDataType xt, int dx, void *found, cudaDataType type,
                                   cudaDataType) {
    SAPWOOD_REAL(xt, type);
    const AnyVector all{x, xt, n, dx};
    double sum = 0;
    for (int i = 0; dx > 0 && i < n; i++) sum += all[i] * all[i];
    stored(found, type, 0, std::sqrt(sum));
    SAPWOOD_DONE;
}
inline cublasStatus_t cublasAxpyEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType type, const void *x, cudaDataType xt, int dx,
                                   void *y, cudaDataType yt, int dy, cudaDataType) {
    SAPWOOD_REAL(type, xt, yt);
    const AnyVector from{x, xt, n, dx}, to{y, yt, n, dy};
    const double factor = loaded<double>(alpha, type, 0);
    for (int i = 0; i < n; i++) stored(y, yt, to.place(i), factor * from[i] + to[i]);
    SAPWOOD_DONE;
}
inline cublasStatus_t cublasScalEx(cublasHandle_t handle, int n, const void *alpha, cudaDataType type, void *x, cudaDataType xt, int dx,
                                   cudaDataType) {
    SAPWOOD_REAL(type, xt);
    const AnyVector all{x, xt, n, dx};
    const double factor = loaded<double>(alpha, type, 0);
    for (int i = 0; dx > 0 && i < n; i++) stored(x, xt, all.place(i), factor * all[i]);
    SAPWOOD_DONE;
}
#undef SAPWOOD_REAL
#undef SAPWOOD_BLAS
#undef SAPWOOD_DONE

#define cublasCreate_v2 cublasCreate
#define cublasDestroy_v2 cublasDestroy
#define cublasSetStream_v2 cublasSetStream
#define cublasGetStream_v2 cublasGetStream
#define cublasSetPointerMode_v2 cublasSetPointerMode
#define cublasSgemm_v2 cublasSgemm
#define cublasDgemm_v2 cublasDgemm
#define cublasSgemv_v2 cublasSgemv
#define cublasDgemv_v2 cublasDgemv
