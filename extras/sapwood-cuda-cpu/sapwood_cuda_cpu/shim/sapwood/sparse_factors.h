// Incomplete factors of cuSPARSE, at the places of the matrix: L U (csrilu02), and L of L L^T (csric02).
#pragma once

enum cusparseSolvePolicy_t { CUSPARSE_SOLVE_POLICY_NO_LEVEL, CUSPARSE_SOLVE_POLICY_USE_LEVEL };

namespace sapwood_cuda {
struct Factored {
    int zero = -1; // the first pivot that is missing or 0, counted as the matrix counts
    bool raised = false;
    double below = 0, to = 0;
};
// The values of each row by columns, in order; several values of one place are one number, their sum.
template <class T> struct SparseRows {
    std::vector<std::map<int, double>> rows;
    const int *offsets, *indices;
    int base;
    SparseRows(int m, const cusparseMatDescr &a, const T *values, const int *offsets, const int *indices)
        : rows(static_cast<size_t>(m)), offsets(offsets), indices(indices), base(a.base) {
        each([&](std::map<int, double> &row, int column, int i) { row[column] += double(values[i]); });
    }
    template <class F> void each(F function) {
        for (size_t r = 0; r < rows.size(); r++)
            for (int i = offsets[r] - base; i < offsets[r + 1] - base; i++) function(rows[r], indices[i] - base, i);
    }
    // A place that is named several times has its number once, and then zeros.
    void store(T *values, bool upper) {
        size_t r = 0;
        for (std::map<int, double> &row : rows) {
            for (int i = offsets[r] - base; i < offsets[r + 1] - base; i++) {
                const int column = indices[i] - base;
                if (upper || column <= int(r)) values[i] = T(row.at(column)), row.at(column) = 0;
            }
            r++;
        }
    }
    int missing_pivot() const {
        for (size_t r = 0; r < rows.size(); r++)
            if (!rows[r].count(int(r))) return int(r) + base;
        return -1;
    }
};
template <class T> void factor_lu(SparseRows<T> &a, Factored &info) {
    info.zero = -1;
    for (int i = 0; i < int(a.rows.size()); i++) {
        std::map<int, double> &row = a.rows[size_t(i)];
        for (auto at = row.begin(); at != row.end() && at->first < i; ++at) {
            const std::map<int, double> &above = a.rows[size_t(at->first)];
            const auto pivot = above.find(at->first);
            if (pivot == above.end()) continue;
            at->second /= pivot->second;
            for (auto other = std::next(pivot); other != above.end(); ++other)
                if (const auto to = row.find(other->first); to != row.end()) to->second -= at->second * other->second;
        }
        const auto pivot = row.find(i);
        if (pivot != row.end() && info.raised && std::fabs(pivot->second) <= info.below) pivot->second = info.to;
        if (info.zero < 0 && (pivot == row.end() || pivot->second == 0)) info.zero = i + a.base;
    }
}
template <class T> void factor_cholesky(SparseRows<T> &a, Factored &info) {
    info.zero = -1;
    for (int i = 0; i < int(a.rows.size()); i++) {
        std::map<int, double> &row = a.rows[size_t(i)];
        double squares = 0;
        for (auto at = row.begin(); at != row.end() && at->first < i; ++at) {
            const std::map<int, double> &above = a.rows[size_t(at->first)];
            const auto pivot = above.find(at->first);
            if (pivot == above.end()) continue;
            for (auto other = above.begin(); other != pivot; ++other)
                if (const auto with = row.find(other->first); with != row.end()) at->second -= with->second * other->second;
            at->second /= pivot->second;
            squares += at->second * at->second;
        }
        const auto pivot = row.find(i);
        if (pivot != row.end()) pivot->second = std::sqrt(pivot->second - squares);
        if (info.zero < 0 && (pivot == row.end() || !(pivot->second > 0))) info.zero = i + a.base;
    }
}
} // namespace sapwood_cuda

#define SAPWOOD_FACTORS_OF(X, T, name, factor, upper)                                            \
    inline cusparseStatus_t cusparse##X##name##_bufferSize(cusparseHandle_t, int, int, const cusparseMatDescr_t, T *, const int *, \
                                                           const int *, name##Info_t, int *bytes) SAPWOOD_BYTES \
    inline cusparseStatus_t cusparse##X##name##_bufferSizeExt(cusparseHandle_t, int, int, const cusparseMatDescr_t, T *, const int *, \
                                                              const int *, name##Info_t, size_t *bytes) SAPWOOD_BYTES \
    inline cusparseStatus_t cusparse##X##name##_analysis(cusparseHandle_t handle, int m, int, const cusparseMatDescr_t a, const T *values, \
                                                         const int *offsets, const int *indices, name##Info_t info, \
                                                         cusparseSolvePolicy_t, void *) {        \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 0) return CUSPARSE_STATUS_INVALID_VALUE;                                         \
        if (a->type != CUSPARSE_MATRIX_TYPE_GENERAL) return CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED; \
        info->zero = SparseRows<T>(m, *a, values, offsets, indices).missing_pivot();             \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }                                                                                            \
    inline cusparseStatus_t cusparse##X##name(cusparseHandle_t handle, int m, int, const cusparseMatDescr_t a, T *values, \
                                              const int *offsets, const int *indices, name##Info_t info, cusparseSolvePolicy_t, \
                                              void *) {                                          \
        SAPWOOD_SPARSE;                                                                          \
        if (m < 0) return CUSPARSE_STATUS_INVALID_VALUE;                                         \
        if (a->type != CUSPARSE_MATRIX_TYPE_GENERAL) return CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED; \
        SparseRows<T> rows(m, *a, values, offsets, indices);                                     \
        factor(rows, *info);                                                                     \
        rows.store(values, upper);                                                               \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }
#define SAPWOOD_FACTORS(Name, name, factor, upper)                                               \
    struct name##Info : sapwood_cuda::Factored {};                                               \
    typedef name##Info *name##Info_t;                                                            \
    inline cusparseStatus_t cusparseCreate##Name##Info(name##Info_t *info) { return *info = new name##Info, CUSPARSE_STATUS_SUCCESS; } \
    inline cusparseStatus_t cusparseDestroy##Name##Info(name##Info_t info) { return delete info, CUSPARSE_STATUS_SUCCESS; } \
    inline cusparseStatus_t cusparseX##name##_zeroPivot(cusparseHandle_t handle, name##Info_t info, int *place) { \
        SAPWOOD_SPARSE;                                                                          \
        *place = info->zero;                                                                     \
        return info->zero < 0 ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ZERO_PIVOT;            \
    }                                                                                            \
    SAPWOOD_FACTORS_OF(S, float, name, factor, upper)                                            \
    SAPWOOD_FACTORS_OF(D, double, name, factor, upper)
#define SAPWOOD_RAISED(X, T)                                                                     \
    inline cusparseStatus_t cusparse##X##csrilu02_numericBoost(cusparseHandle_t handle, csrilu02Info_t info, int raised, double *below, \
                                                               T *to) {                          \
        SAPWOOD_SPARSE;                                                                          \
        info->raised = raised;                                                                   \
        if (raised) info->below = *below, info->to = double(*to);                                \
        return CUSPARSE_STATUS_SUCCESS;                                                          \
    }
SAPWOOD_FACTORS(Csrilu02, csrilu02, factor_lu, true)
SAPWOOD_FACTORS(Csric02, csric02, factor_cholesky, false)
SAPWOOD_RAISED(S, float)
SAPWOOD_RAISED(D, double)
#undef SAPWOOD_FACTORS
#undef SAPWOOD_FACTORS_OF
#undef SAPWOOD_RAISED
