// Functions of cuSPARSE whose names say a type: counts, sums of sparse matrices, systems of three diagonals.
#pragma once

namespace sapwood_cuda {

// Solves for one right-hand side that replaces it, with the larger of two pivots in each step. `at` gives the
// place of an element; the diagonals stay as they are.
template <class T, class At> void solve_diagonals(int m, const T *lower, const T *middle, const T *upper, T *x, At at) {
    std::vector<double> d(static_cast<size_t>(m)), u(d), second(d), right(d);
    for (int i = 0; i < m; i++) {
        d[size_t(i)] = double(middle[at(i)]), right[size_t(i)] = double(x[at(i)]);
        u[size_t(i)] = i + 1 < m ? double(upper[at(i)]) : 0;
    }
    for (int i = 0; i + 1 < m; i++) {
        const size_t k = size_t(i);
        double below = double(lower[at(i + 1)]);
        if (std::fabs(below) > std::fabs(d[k])) {
            std::swap(below, d[k]), std::swap(u[k], d[k + 1]), std::swap(second[k], u[k + 1]), std::swap(right[k], right[k + 1]);
        }
        const double factor = below / d[k];
        d[k + 1] -= factor * u[k], u[k + 1] -= factor * second[k], right[k + 1] -= factor * right[k];
    }
    for (int i = m; i-- > 0;) {
        const size_t k = size_t(i);
        if (i + 1 < m) right[k] -= u[k] * right[k + 1];
        if (i + 2 < m) right[k] -= second[k] * right[k + 2];
        right[k] /= d[k];
    }
    for (int i = 0; i < m; i++) x[at(i)] = T(right[size_t(i)]);
}

// The rows of alpha A + beta B: calls a function with row, column and sum, in order.
struct TypedRows {
    const cusparseMatDescr *description;
    const int *offsets, *indices;
    int begin(int row) const { return offsets[row] - description->base; }
    int column(int i) const { return indices[i] - description->base; }
};
template <class ValueA, class ValueB, class F> void each_sum(int m, TypedRows a, ValueA of_a, TypedRows b, ValueB of_b, F function) {
    for (int row = 0; row < m; row++) {
        std::map<int, double> sums;
        for (int i = a.begin(row); i < a.begin(row + 1); i++) sums[a.column(i)] += of_a(i);
        for (int i = b.begin(row); i < b.begin(row + 1); i++) sums[b.column(i)] += of_b(i);
        for (const auto &[column, sum] : sums) function(row, column, sum);
    }
}
} // namespace sapwood_cuda

#define SAPWOOD_SYSTEM(X, T, suffix)                                                             \
    inline cusparseStatus_t cusparse##X##gtsv2##suffix##_bufferSizeExt(cusparseHandle_t, int, int, const T *, const T *, const T *, \
                                                                       const T *, int, size_t *bytes) SAPWOOD_BYTES \
    inline cusparseStatus_t cusparse##X##gtsv2##suffix(cusparseHandle_t handle, int m, int n, const T *lower, const T *middle, \
                                                       const T *upper, T *b, int ldb, void *) {  \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 3 || n < 0 || ldb < m) return CUSPARSE_STATUS_INVALID_VALUE;                     \
        for (int j = 0; j < n; j++) solve_diagonals(m, lower, middle, upper, b + int64_t(j) * ldb, [](int i) { return i; }); \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }
#define SAPWOOD_TYPED(X, T)                                                                      \
    SAPWOOD_SYSTEM(X, T, )                                                                       \
    SAPWOOD_SYSTEM(X, T, _nopivot)                                                               \
    inline cusparseStatus_t cusparse##X##gtsv2StridedBatch_bufferSizeExt(cusparseHandle_t, int, const T *, const T *, const T *, \
                                                                         const T *, int, int, size_t *bytes) SAPWOOD_BYTES \
    inline cusparseStatus_t cusparse##X##gtsv2StridedBatch(cusparseHandle_t handle, int m, const T *lower, const T *middle, \
                                                           const T *upper, T *x, int batch, int stride, void *) { \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 1 || batch < 0 || stride < m) return CUSPARSE_STATUS_INVALID_VALUE;              \
        for (int64_t j = 0, start = 0; j < batch; j++, start += stride)                          \
            solve_diagonals(m, lower + start, middle + start, upper + start, x + start, [](int i) { return i; }); \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }                                                                                            \
    inline cusparseStatus_t cusparse##X##gtsvInterleavedBatch_bufferSizeExt(                     \
        cusparseHandle_t, int, int, const T *, const T *, const T *, const T *, int, size_t *bytes) SAPWOOD_BYTES \
    inline cusparseStatus_t cusparse##X##gtsvInterleavedBatch(cusparseHandle_t handle, int, int m, T *lower, T *middle, T *upper, \
                                                              T *x, int batch, void *) {         \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 1 || batch < 0) return CUSPARSE_STATUS_INVALID_VALUE;                            \
        for (int j = 0; j < batch; j++)                                                          \
            solve_diagonals(m, lower, middle, upper, x, [=](int i) { return int64_t(i) * batch + j; }); \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }                                                                                            \
    inline cusparseStatus_t cusparse##X##nnz(cusparseHandle_t handle, cusparseDirection_t direction, int m, int n, \
                                             const cusparseMatDescr_t, const T *a, int lda, int *counts, int *total) { \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 0 || n < 0 || lda < m) return CUSPARSE_STATUS_INVALID_VALUE;                     \
        const bool by_rows = direction == CUSPARSE_DIRECTION_ROW;                                \
        std::fill(counts, counts + (by_rows ? m : n), 0);                                        \
        *total = 0;                                                                              \
        for (int j = 0; j < n; j++)                                                              \
            for (int i = 0; i < m; i++)                                                          \
                if (a[i + int64_t(j) * lda] != T(0)) counts[by_rows ? i : j]++, ++*total;        \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }                                                                                            \
    inline cusparseStatus_t cusparse##X##csrgeam2_bufferSizeExt(                                 \
        cusparseHandle_t, int, int, const T *, const cusparseMatDescr_t, int, const T *, const int *, const int *, const T *, \
        const cusparseMatDescr_t, int, const T *, const int *, const int *, const cusparseMatDescr_t, const T *, const int *, \
        const int *, size_t *bytes) SAPWOOD_BYTES                                                \
    inline cusparseStatus_t cusparse##X##csrgeam2(                                               \
        cusparseHandle_t handle, int m, int, const T *alpha, const cusparseMatDescr_t a, int, const T *a_values, const int *a_offsets, \
        const int *a_indices, const T *beta, const cusparseMatDescr_t b, int, const T *b_values, const int *b_offsets, \
        const int *b_indices, const cusparseMatDescr_t c, T *values, int *offsets, int *indices, void *) { \
        SAPWOOD_SPARSE;                                                                          \
        int i = 0;                                                                               \
        each_sum(m, {a, a_offsets, a_indices}, [=](int at) { return double(*alpha) * double(a_values[at]); }, {b, b_offsets, b_indices}, \
                 [=](int at) { return double(*beta) * double(b_values[at]); }, [&](int, int column, double sum) { \
                     indices[i] = column + c->base, values[i] = T(sum);                          \
                     i++;                                                                        \
                 });                                                                             \
        (void)offsets;                                                                           \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }
SAPWOOD_TYPED(S, float)
SAPWOOD_TYPED(D, double)
#undef SAPWOOD_TYPED
#undef SAPWOOD_SYSTEM
inline cusparseStatus_t cusparseXcsrgeam2Nnz(cusparseHandle_t handle, int m, int, const cusparseMatDescr_t a, int, const int *a_offsets,
                                             const int *a_indices, const cusparseMatDescr_t b, int, const int *b_offsets,
                                             const int *b_indices, const cusparseMatDescr_t c, int *offsets, int *total, void *) {
    SAPWOOD_SPARSE;
    std::fill(offsets, offsets + m + 1, 0);
    const auto nothing = [](int) { return 0.0; };
    each_sum(m, {a, a_offsets, a_indices}, nothing, {b, b_offsets, b_indices}, nothing, [&](int row, int, double) { offsets[row + 1]++; });
    std::partial_sum(offsets, offsets + m + 1, offsets);
    *total = offsets[m];
    for (int row = 0; row <= m; row++) offsets[row] += c->base;
    return CUSPARSE_STATUS_SUCCESS;
}
