// Products of matrices and their like, in columns: by the machine's BLAS where one is found, else by loops.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "../cuda_bf16.h"

namespace sapwood_cuda {

// The functions of a BLAS for Fortran. Its integers may have 32 or 64 bits: the first half of a small
// number of 64 bits is the same number.
class FortranBlas {
  public:
    template <class T>
    using Gemm = void (*)(const char *, const char *, const int64_t *, const int64_t *, const int64_t *, const T *, const T *,
                          const int64_t *, const T *, const int64_t *, const T *, T *, const int64_t *, size_t, size_t);
    Gemm<float> sgemm = nullptr;
    Gemm<double> dgemm = nullptr;
    static const FortranBlas &found() {
        static const FortranBlas blas;
        return blas;
    }

  private:
    FortranBlas() {
        const char *chosen = getenv("SAPWOOD_CUDA_BLAS"); // any other word than a library's name: none
        for (const char *name : {"libopenblas.so.0", "libmkl_rt.so.2", "libblis.so.4", "libblas.so.3"}) {
            void *library = dlopen(chosen ? chosen : name, RTLD_NOW | RTLD_LOCAL);
            for (const char *form : {"%sgemm_", "%sgemm_64_", "scipy_%sgemm_", "scipy_%sgemm_64_"}) {
                if (!library || sgemm) continue;
                sgemm = reinterpret_cast<Gemm<float>>(dlsym(library, worded(form, "s").c_str()));
                dgemm = reinterpret_cast<Gemm<double>>(dlsym(library, worded(form, "d").c_str()));
                if (!dgemm) sgemm = nullptr;
            }
            if (sgemm || chosen) return;
        }
    }
};

template <class T> struct IsComplex : std::false_type {};
template <class T> struct IsComplex<std::complex<T>> : std::true_type {};
template <class T> T conjugate(T x) {
    if constexpr (IsComplex<T>::value) return std::conj(x);
    else return x;
}
// An element of a matrix as it is, transposed ('T'), or transposed and conjugate ('C').
template <class T> T element(const T *a, int64_t ld, int64_t i, int64_t j, char how) {
    return how == 'N' ? a[i + j * ld] : how == 'T' ? a[j + i * ld] : conjugate(a[j + i * ld]);
}
template <class T>
void gemm(char ta, char tb, int64_t m, int64_t n, int64_t k, T alpha, const T *a, int64_t lda, const T *b, int64_t ldb, T beta,
          T *c, int64_t ldc) {
    if (m <= 0 || n <= 0) return;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
        if (ta == 'C') ta = 'T';
        if (tb == 'C') tb = 'T';
        const FortranBlas &blas = FortranBlas::found();
        if (blas.sgemm && m * n * k > 4096) {
            if constexpr (std::is_same_v<T, float>) blas.sgemm(&ta, &tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
            else blas.dgemm(&ta, &tb, &m, &n, &k, &alpha, a, &lda, b, &ldb, &beta, c, &ldc, 1, 1);
            return;
        }
    }
    std::vector<T> turned;
    if (ta != 'N' && k > 0) { // so that the inner loop runs along memory
        turned.resize(size_t(m * k));
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < m; i++) turned[size_t(i + p * m)] = element(a, lda, i, p, ta);
        a = turned.data(), lda = m;
    }
    for (int64_t j = 0; j < n; j++) {
        T *column = c + j * ldc;
        if (beta == T(0)) std::fill(column, column + m, T(0)); // what it holds may be a NaN
        else if (beta != T(1))
            for (int64_t i = 0; i < m; i++) column[i] *= beta;
        for (int64_t p = 0; p < k; p++) {
            const T factor = alpha * element(b, ldb, p, j, tb);
            const T *from = a + p * lda;
            for (int64_t i = 0; i < m; i++) column[i] += factor * from[i];
        }
    }
}

// Solves op(A) x = b for a triangle, in place; A is m by m, and x and b have n columns.
template <class T>
void triangle_solve(char uplo, char trans, char diag, int64_t m, int64_t n, const T *a, int64_t lda, T *b, int64_t ldb) {
    const bool forwards = (uplo == 'L') == (trans == 'N');
    for (int64_t j = 0; j < n; j++)
        for (int64_t s = 0; s < m; s++) {
            const int64_t i = forwards ? s : m - 1 - s;
            T sum = b[i + j * ldb];
            for (int64_t k = forwards ? 0 : i + 1, end = forwards ? i : m; k < end; k++)
                sum -= element(a, lda, i, k, trans) * b[k + j * ldb];
            b[i + j * ldb] = diag == 'U' ? sum : sum / element(a, lda, i, i, trans);
        }
}
// b = op(A) b for a triangle.
template <class T>
void triangle_times(char uplo, char trans, char diag, int64_t m, int64_t n, const T *a, int64_t lda, T *b, int64_t ldb) {
    const bool upper = (uplo == 'U') == (trans == 'N');
    for (int64_t j = 0; j < n; j++)
        for (int64_t s = 0; s < m; s++) {
            const int64_t i = upper ? s : m - 1 - s;
            T sum = diag == 'U' ? b[i + j * ldb] : element(a, lda, i, i, trans) * b[i + j * ldb];
            for (int64_t k = upper ? i + 1 : 0, end = upper ? m : i; k < end; k++)
                sum += element(a, lda, i, k, trans) * b[k + j * ldb];
            b[i + j * ldb] = sum;
        }
}
// LU decomposition with the largest pivot; returns the first column whose pivot is 0, counted from 1.
template <class T> int factorise(int n, T *a, int lda, int *pivots) {
    int singular = 0;
    for (int k = 0; k < n; k++) {
        int best = k;
        for (int i = k + 1; pivots && i < n; i++)
            if (std::abs(a[i + k * lda]) > std::abs(a[best + k * lda])) best = i;
        if (pivots) pivots[k] = best + 1;
        if (a[best + k * lda] == T(0)) {
            if (!singular) singular = k + 1;
            continue;
        }
        for (int j = 0; best != k && j < n; j++) std::swap(a[k + j * lda], a[best + j * lda]);
        for (int i = k + 1; i < n; i++) a[i + k * lda] /= a[k + k * lda];
        for (int j = k + 1; j < n; j++)
            for (int i = k + 1; i < n; i++) a[i + j * lda] -= a[i + k * lda] * a[k + j * lda];
    }
    return singular;
}
template <class T> void solve_factorised(char trans, int n, int columns, const T *a, int lda, const int *pivots, T *b, int ldb) {
    if (trans == 'N') {
        for (int k = 0; pivots && k < n; k++)
            for (int j = 0; pivots[k] - 1 != k && j < columns; j++) std::swap(b[k + j * ldb], b[pivots[k] - 1 + j * ldb]);
        triangle_solve('L', 'N', 'U', n, columns, a, lda, b, ldb);
        triangle_solve('U', 'N', 'N', n, columns, a, lda, b, ldb);
    } else {
        triangle_solve('U', trans, 'N', n, columns, a, lda, b, ldb);
        triangle_solve('L', trans, 'U', n, columns, a, lda, b, ldb);
        for (int k = n - 1; pivots && k >= 0; k--)
            for (int j = 0; pivots[k] - 1 != k && j < columns; j++) std::swap(b[k + j * ldb], b[pivots[k] - 1 + j * ldb]);
    }
}
// The x for which A x is nearest to b, by reflections; A has at least as many rows as columns. Returns the
// first column, counted from 1, that depends on those before it.
template <class T> int least_squares(int m, int n, int columns, T *a, int lda, T *b, int ldb) {
    std::vector<T> v(size_t(m) + 1);
    for (int k = 0; k < n; k++) {
        double length = 0;
        for (int i = k; i < m; i++) length += double(std::norm(a[i + k * lda]));
        length = std::sqrt(length);
        if (length == 0) return k + 1;
        const T first = a[k + k * lda];
        const T turn = first == T(0) ? T(1) : first / T(std::abs(first));
        for (int i = k; i < m; i++) v[size_t(i)] = a[i + k * lda];
        v[size_t(k)] += turn * T(length);
        double size = 0;
        for (int i = k; i < m; i++) size += double(std::norm(v[size_t(i)]));
        const auto reflect = [&](T *x) {
            T sum(0);
            for (int i = k; i < m; i++) sum += conjugate(v[size_t(i)]) * x[i];
            sum *= T(2 / size);
            for (int i = k; i < m; i++) x[i] -= sum * v[size_t(i)];
        };
        for (int j = k; j < n; j++) reflect(a + j * lda);
        for (int j = 0; j < columns; j++) reflect(b + j * ldb);
    }
    triangle_solve('U', 'N', 'N', n, columns, a, lda, b, ldb);
    return 0;
}

// Elements of the types that "Ex" functions take.
inline size_t bytes_of(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F: case CUDA_R_16BF: return 2;
        case CUDA_R_64F: case CUDA_C_32F: case CUDA_R_64I: return 8;
        case CUDA_C_64F: return 16;
        case CUDA_R_8I: case CUDA_R_8U: return 1;
        default: return 4;
    }
}
template <class T> T loaded(const void *from, cudaDataType type, int64_t i) {
    switch (type) {
        case CUDA_R_16F: return T(float(static_cast<const __half *>(from)[i]));
        case CUDA_R_16BF: return T(float(static_cast<const __nv_bfloat16 *>(from)[i]));
        case CUDA_R_32F: return T(static_cast<const float *>(from)[i]);
        case CUDA_R_64F: return T(static_cast<const double *>(from)[i]);
        case CUDA_R_8I: return T(static_cast<const signed char *>(from)[i]);
        case CUDA_R_8U: return T(static_cast<const unsigned char *>(from)[i]);
        case CUDA_R_32I: return T(static_cast<const int *>(from)[i]);
        default: return T(0);
    }
}
template <class T> void stored(void *to, cudaDataType type, int64_t i, T value) {
    switch (type) {
        case CUDA_R_16F: static_cast<__half *>(to)[i] = __half(value); break;
        case CUDA_R_16BF: static_cast<__nv_bfloat16 *>(to)[i] = __nv_bfloat16(value); break;
        case CUDA_R_32F: static_cast<float *>(to)[i] = float(value); break;
        case CUDA_R_64F: static_cast<double *>(to)[i] = double(value); break;
        case CUDA_R_8I: static_cast<signed char *>(to)[i] = clamp_to<signed char>(value); break;
        case CUDA_R_8U: static_cast<unsigned char *>(to)[i] = clamp_to<unsigned char>(value); break;
        case CUDA_R_32I: static_cast<int *>(to)[i] = clamp_to<int>(value); break;
        default: break;
    }
}
// Whether elements of this type can be read and written here: real numbers and integers.
inline bool is_real(cudaDataType type) {
    switch (type) {
        case CUDA_R_16F: case CUDA_R_16BF: case CUDA_R_32F: case CUDA_R_64F: case CUDA_R_8I: case CUDA_R_8U: case CUDA_R_32I: return true;
        default: return false;
    }
}

} // namespace sapwood_cuda
