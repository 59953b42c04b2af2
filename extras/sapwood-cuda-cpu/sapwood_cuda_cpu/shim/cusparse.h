// cuSPARSE's generic functions: matrices of rows (CSR), columns (CSC) and coordinates (COO).
#pragma once

#define CUSPARSE_H_
#define CUSPARSE_VER_MAJOR 12
#define CUSPARSE_VER_MINOR 0
#define CUSPARSE_VER_PATCH 0
#define CUSPARSE_VERSION 12000

#include <map>
#include <numeric>

#include "cuComplex.h"
#include "library_types.h"
#include "sapwood/blas.h"

enum cusparseStatus_t {
    CUSPARSE_STATUS_SUCCESS, CUSPARSE_STATUS_NOT_INITIALIZED, CUSPARSE_STATUS_ALLOC_FAILED, CUSPARSE_STATUS_INVALID_VALUE,
    CUSPARSE_STATUS_ARCH_MISMATCH, CUSPARSE_STATUS_MAPPING_ERROR, CUSPARSE_STATUS_EXECUTION_FAILED, CUSPARSE_STATUS_INTERNAL_ERROR,
    CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED, CUSPARSE_STATUS_ZERO_PIVOT, CUSPARSE_STATUS_NOT_SUPPORTED,
    CUSPARSE_STATUS_INSUFFICIENT_RESOURCES
};
enum cusparseOperation_t {
    CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_TRANSPOSE, CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE
};
enum cusparseIndexType_t { CUSPARSE_INDEX_16U = 1, CUSPARSE_INDEX_32I = 2, CUSPARSE_INDEX_64I = 3 };
enum cusparseIndexBase_t { CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_INDEX_BASE_ONE };
enum cusparseOrder_t { CUSPARSE_ORDER_COL = 1, CUSPARSE_ORDER_ROW = 2 };
enum cusparsePointerMode_t { CUSPARSE_POINTER_MODE_HOST, CUSPARSE_POINTER_MODE_DEVICE };
enum cusparseDirection_t { CUSPARSE_DIRECTION_ROW, CUSPARSE_DIRECTION_COLUMN };
enum cusparseAction_t { CUSPARSE_ACTION_SYMBOLIC, CUSPARSE_ACTION_NUMERIC };
enum cusparseMatrixType_t {
    CUSPARSE_MATRIX_TYPE_GENERAL, CUSPARSE_MATRIX_TYPE_SYMMETRIC, CUSPARSE_MATRIX_TYPE_HERMITIAN, CUSPARSE_MATRIX_TYPE_TRIANGULAR
};
enum cusparseFillMode_t { CUSPARSE_FILL_MODE_LOWER, CUSPARSE_FILL_MODE_UPPER };
enum cusparseDiagType_t { CUSPARSE_DIAG_TYPE_NON_UNIT, CUSPARSE_DIAG_TYPE_UNIT };
enum cusparseSpMatAttribute_t { CUSPARSE_SPMAT_FILL_MODE, CUSPARSE_SPMAT_DIAG_TYPE };
enum cusparseFormat_t { CUSPARSE_FORMAT_CSR = 1, CUSPARSE_FORMAT_CSC = 2, CUSPARSE_FORMAT_COO = 3 };
enum cusparseSpMVAlg_t {
    CUSPARSE_SPMV_ALG_DEFAULT, CUSPARSE_SPMV_COO_ALG1, CUSPARSE_SPMV_CSR_ALG1, CUSPARSE_SPMV_CSR_ALG2, CUSPARSE_SPMV_COO_ALG2,
    CUSPARSE_MV_ALG_DEFAULT = 0, CUSPARSE_CSRMV_ALG1 = 2, CUSPARSE_CSRMV_ALG2 = 3
};
enum cusparseSpMMAlg_t {
    CUSPARSE_SPMM_ALG_DEFAULT, CUSPARSE_SPMM_COO_ALG1, CUSPARSE_SPMM_COO_ALG2, CUSPARSE_SPMM_COO_ALG3, CUSPARSE_SPMM_CSR_ALG1,
    CUSPARSE_SPMM_COO_ALG4, CUSPARSE_SPMM_CSR_ALG2, CUSPARSE_SPMM_CSR_ALG3 = 12, CUSPARSE_MM_ALG_DEFAULT = 0
};
enum cusparseSpGEMMAlg_t {
    CUSPARSE_SPGEMM_DEFAULT, CUSPARSE_SPGEMM_CSR_ALG_DETERMINITIC, CUSPARSE_SPGEMM_CSR_ALG_NONDETERMINITIC, CUSPARSE_SPGEMM_ALG1,
    CUSPARSE_SPGEMM_ALG2, CUSPARSE_SPGEMM_ALG3
};
enum cusparseSDDMMAlg_t { CUSPARSE_SDDMM_ALG_DEFAULT };
enum cusparseSparseToDenseAlg_t { CUSPARSE_SPARSETODENSE_ALG_DEFAULT };
enum cusparseDenseToSparseAlg_t { CUSPARSE_DENSETOSPARSE_ALG_DEFAULT };
enum cusparseSpSVAlg_t { CUSPARSE_SPSV_ALG_DEFAULT };
enum cusparseSpSMAlg_t { CUSPARSE_SPSM_ALG_DEFAULT };
enum cusparseCsr2CscAlg_t { CUSPARSE_CSR2CSC_ALG_DEFAULT = 1, CUSPARSE_CSR2CSC_ALG1 = 1, CUSPARSE_CSR2CSC_ALG2 = 2 };

struct cusparseContext { cudaStream_t stream = 0; cusparsePointerMode_t mode = CUSPARSE_POINTER_MODE_HOST; };
typedef cusparseContext *cusparseHandle_t;
struct cusparseMatDescr {
    cusparseMatrixType_t type = CUSPARSE_MATRIX_TYPE_GENERAL;
    cusparseIndexBase_t base = CUSPARSE_INDEX_BASE_ZERO;
    cusparseFillMode_t fill = CUSPARSE_FILL_MODE_LOWER;
    cusparseDiagType_t diag = CUSPARSE_DIAG_TYPE_NON_UNIT;
};
typedef cusparseMatDescr *cusparseMatDescr_t;
struct cusparseSpMatDescr {
    cusparseFormat_t format;
    int64_t rows, columns, entries;
    void *offsets, *indices, *values; // of COO, the rows and the columns
    cusparseIndexType_t offset_type, index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
    cusparseFillMode_t fill = CUSPARSE_FILL_MODE_LOWER;
    cusparseDiagType_t diag = CUSPARSE_DIAG_TYPE_NON_UNIT;
    int batch = 1;
    int64_t offset_stride = 0, stride = 0; // between the matrices of a batch
};
typedef cusparseSpMatDescr *cusparseSpMatDescr_t;
typedef const cusparseSpMatDescr *cusparseConstSpMatDescr_t;
struct cusparseDnMatDescr {
    int64_t rows, columns, ld;
    void *values;
    cudaDataType type;
    cusparseOrder_t order;
    int batch = 1;
    int64_t stride = 0;
};
typedef cusparseDnMatDescr *cusparseDnMatDescr_t;
typedef const cusparseDnMatDescr *cusparseConstDnMatDescr_t;
struct cusparseDnVecDescr { int64_t size; void *values; cudaDataType type; };
typedef cusparseDnVecDescr *cusparseDnVecDescr_t;
typedef const cusparseDnVecDescr *cusparseConstDnVecDescr_t;

namespace sapwood_cuda {
struct Entry { int64_t row, column; double value; };
inline int64_t index_at(const void *from, cusparseIndexType_t type, int64_t i) {
    return type == CUSPARSE_INDEX_64I ? static_cast<const int64_t *>(from)[i]
           : type == CUSPARSE_INDEX_16U ? static_cast<const uint16_t *>(from)[i] : static_cast<const int *>(from)[i];
}
inline void set_index(void *to, cusparseIndexType_t type, int64_t i, int64_t value) {
    if (type == CUSPARSE_INDEX_64I) static_cast<int64_t *>(to)[i] = value;
    else if (type == CUSPARSE_INDEX_16U) static_cast<uint16_t *>(to)[i] = uint16_t(value);
    else static_cast<int *>(to)[i] = int(value);
}
// Calls a function with row, column and number of each entry.
template <class F> void each_entry(const cusparseSpMatDescr &a, F function) {
    if (a.format == CUSPARSE_FORMAT_COO) {
        for (int64_t i = 0; i < a.entries; i++)
            function(index_at(a.offsets, a.index_type, i) - a.base, index_at(a.indices, a.index_type, i) - a.base, i);
        return;
    }
    const bool by_rows = a.format == CUSPARSE_FORMAT_CSR;
    for (int64_t line = 0; line < (by_rows ? a.rows : a.columns); line++)
        for (int64_t i = index_at(a.offsets, a.offset_type, line) - a.base; i < index_at(a.offsets, a.offset_type, line + 1) - a.base; i++) {
            const int64_t other = index_at(a.indices, a.index_type, i) - a.base;
            by_rows ? function(line, other, i) : function(other, line, i);
        }
}
inline double entry(const cusparseSpMatDescr &a, int64_t i) { return loaded<double>(a.values, a.type, i); }
inline int64_t place(const cusparseDnMatDescr &a, int64_t row, int64_t column) {
    return a.order == CUSPARSE_ORDER_ROW ? row * a.ld + column : row + column * a.ld;
}
inline cusparseStatus_t sparse_state(const void *handle) {
    return !handle ? CUSPARSE_STATUS_NOT_INITIALIZED : state() ? CUSPARSE_STATUS_EXECUTION_FAILED : CUSPARSE_STATUS_SUCCESS;
}
// y = alpha op(A) x + beta y for one column; sums are kept in double, as real numbers.
template <class In, class Out>
void times(const cusparseSpMatDescr &a, bool turned, double alpha, In in, double beta, Out at, void *y, cudaDataType type, int64_t rows) {
    std::vector<double> sums(size_t(rows), 0.0);
    each_entry(a, [&](int64_t row, int64_t column, int64_t i) {
        if (turned) std::swap(row, column);
        sums[size_t(row)] += entry(a, i) * in(column);
    });
    for (int64_t i = 0; i < rows; i++)
        stored(y, type, at(i), alpha * sums[size_t(i)] + (beta == 0 ? 0 : beta * loaded<double>(y, type, at(i))));
}
} // namespace sapwood_cuda

inline cusparseStatus_t cusparseCreate(cusparseHandle_t *handle) { return *handle = new cusparseContext, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) { return delete handle, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) { return handle->stream = stream, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseGetStream(cusparseHandle_t handle, cudaStream_t *stream) { return *stream = handle->stream, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode) { return handle->mode = mode, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseGetVersion(cusparseHandle_t, int *version) { return *version = CUSPARSE_VERSION, CUSPARSE_STATUS_SUCCESS; }
inline const char *cusparseGetErrorName(cusparseStatus_t status) { return status ? "CUSPARSE_STATUS_ERROR" : "CUSPARSE_STATUS_SUCCESS"; }
inline const char *cusparseGetErrorString(cusparseStatus_t status) {
    switch (status) {
        case CUSPARSE_STATUS_SUCCESS: return "success";
        case CUSPARSE_STATUS_NOT_INITIALIZED: return "initialization error";
        case CUSPARSE_STATUS_INVALID_VALUE: return "invalid value";
        case CUSPARSE_STATUS_NOT_SUPPORTED: return "operation not supported";
        default: return "failure during the execution";
    }
}
inline cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t *a) { return *a = new cusparseMatDescr, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDestroyMatDescr(cusparseMatDescr_t a) { return delete a, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetMatType(cusparseMatDescr_t a, cusparseMatrixType_t type) { return a->type = type, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetMatIndexBase(cusparseMatDescr_t a, cusparseIndexBase_t base) { return a->base = base, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetMatFillMode(cusparseMatDescr_t a, cusparseFillMode_t fill) { return a->fill = fill, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSetMatDiagType(cusparseMatDescr_t a, cusparseDiagType_t diag) { return a->diag = diag, CUSPARSE_STATUS_SUCCESS; }

inline cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries, void *offsets, void *indices,
                                          void *values, cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                          cusparseIndexBase_t base, cudaDataType type) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    *a = new cusparseSpMatDescr{CUSPARSE_FORMAT_CSR, rows, columns, entries, offsets, indices, values, offset_type, index_type, base, type};
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries, void *offsets, void *indices,
                                          void *values, cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                          cusparseIndexBase_t base, cudaDataType type) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    *a = new cusparseSpMatDescr{CUSPARSE_FORMAT_CSC, rows, columns, entries, offsets, indices, values, offset_type, index_type, base, type};
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries, void *row_indices,
                                          void *indices, void *values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                          cudaDataType type) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    *a = new cusparseSpMatDescr{CUSPARSE_FORMAT_COO, rows, columns, entries, row_indices, indices, values, index_type, index_type, base, type};
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t a) { return delete a, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t a, void *offsets, void *indices, void *values) {
    a->offsets = offsets, a->indices = indices, a->values = values;
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCscSetPointers(cusparseSpMatDescr_t a, void *offsets, void *indices, void *values) {
    return cusparseCsrSetPointers(a, offsets, indices, values);
}
inline cusparseStatus_t cusparseCooSetPointers(cusparseSpMatDescr_t a, void *rows, void *columns, void *values) {
    return cusparseCsrSetPointers(a, rows, columns, values);
}
inline cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t a, int64_t *rows, int64_t *columns, int64_t *entries) {
    return *rows = a->rows, *columns = a->columns, *entries = a->entries, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseSpMatSetValues(cusparseSpMatDescr_t a, void *values) { return a->values = values, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSpMatGetValues(cusparseSpMatDescr_t a, void **values) { return *values = a->values, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSpMatSetAttribute(cusparseSpMatDescr_t a, cusparseSpMatAttribute_t which, const void *value, size_t) {
    if (which == CUSPARSE_SPMAT_FILL_MODE) a->fill = *static_cast<const cusparseFillMode_t *>(value);
    else a->diag = *static_cast<const cusparseDiagType_t *>(value);
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t *x, int64_t n, void *values, cudaDataType type) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return *x = new cusparseDnVecDescr{n, values, type}, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t x) { return delete x, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t x, void *values) { return x->values = values, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDnVecGetValues(cusparseDnVecDescr_t x, void **values) { return *values = x->values, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t *a, int64_t rows, int64_t columns, int64_t ld, void *values, cudaDataType type,
                                            cusparseOrder_t order) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return *a = new cusparseDnMatDescr{rows, columns, ld, values, type, order}, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t a) { return delete a, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDnMatSetValues(cusparseDnMatDescr_t a, void *values) { return a->values = values, CUSPARSE_STATUS_SUCCESS; }

inline cusparseStatus_t cusparseDnMatSetStridedBatch(cusparseDnMatDescr_t a, int batch, int64_t stride) {
    return a->batch = batch, a->stride = stride, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCsrSetStridedBatch(cusparseSpMatDescr_t a, int batch, int64_t offset_stride, int64_t stride) {
    return a->batch = batch, a->offset_stride = offset_stride, a->stride = stride, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCooSetStridedBatch(cusparseSpMatDescr_t a, int batch, int64_t stride) {
    return cusparseCsrSetStridedBatch(a, batch, stride, stride);
}
namespace sapwood_cuda {
inline void *moved(void *at, size_t bytes, int64_t n) { return static_cast<char *>(at) + int64_t(bytes) * n; }
inline size_t index_bytes(cusparseIndexType_t type) { return type == CUSPARSE_INDEX_64I ? 8 : type == CUSPARSE_INDEX_32I ? 4 : 2; }
// One matrix of a batch.
inline cusparseDnMatDescr batched(const cusparseDnMatDescr &a, int i) {
    cusparseDnMatDescr found = a;
    found.values = moved(a.values, bytes_of(a.type), i * a.stride);
    return found;
}
inline cusparseSpMatDescr batched(const cusparseSpMatDescr &a, int i) {
    cusparseSpMatDescr found = a;
    found.offsets = moved(a.offsets, index_bytes(a.offset_type), i * a.offset_stride);
    found.indices = moved(a.indices, index_bytes(a.index_type), i * a.stride);
    found.values = moved(a.values, bytes_of(a.type), i * a.stride);
    return found;
}
}

// Of each operation the functions that ask for memory and prepare take its arguments.
#define SAPWOOD_BYTES { return *bytes = 8, CUSPARSE_STATUS_SUCCESS; }
#define SAPWOOD_NOTHING { return CUSPARSE_STATUS_SUCCESS; }
#define SAPWOOD_SPARSE                                                                           \
    using namespace sapwood_cuda;                                                                \
    if (const cusparseStatus_t bad = sparse_state(handle)) return bad
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t how, const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, \
    const void *beta, cusparseDnVecDescr_t y, cudaDataType type, cusparseSpMVAlg_t
inline cusparseStatus_t cusparseSpMV_bufferSize(SAPWOOD_GIVEN, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpMV_preprocess(SAPWOOD_GIVEN, void *) SAPWOOD_NOTHING
inline cusparseStatus_t cusparseSpMV(SAPWOOD_GIVEN, void *) {
    SAPWOOD_SPARSE;
    const bool turned = how != CUSPARSE_OPERATION_NON_TRANSPOSE;
    if (x->size != (turned ? a->rows : a->columns) || y->size != (turned ? a->columns : a->rows)) return CUSPARSE_STATUS_INVALID_VALUE;
    times(*a, turned, loaded<double>(alpha, type, 0), [&](int64_t i) { return loaded<double>(x->values, x->type, i); },
          loaded<double>(beta, type, 0), [](int64_t i) { return i; }, y->values, y->type, y->size);
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t ta, cusparseOperation_t tb, const void *alpha, cusparseConstSpMatDescr_t a, \
    cusparseConstDnMatDescr_t b, const void *beta, cusparseDnMatDescr_t c, cudaDataType type, cusparseSpMMAlg_t
inline cusparseStatus_t cusparseSpMM_bufferSize(SAPWOOD_GIVEN, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpMM_preprocess(SAPWOOD_GIVEN, void *) SAPWOOD_NOTHING
inline cusparseStatus_t cusparseSpMM(SAPWOOD_GIVEN, void *) {
    SAPWOOD_SPARSE;
    const bool turned = tb != CUSPARSE_OPERATION_NON_TRANSPOSE;
    for (int at = 0; at < c->batch; at++) {
        const cusparseSpMatDescr left = batched(*a, at);
        const cusparseDnMatDescr right = batched(*b, at), to = batched(*c, at);
        for (int64_t j = 0; j < to.columns; j++)
            times(left, ta != CUSPARSE_OPERATION_NON_TRANSPOSE, loaded<double>(alpha, type, 0),
                  [&](int64_t i) { return loaded<double>(right.values, right.type, turned ? place(right, j, i) : place(right, i, j)); },
                  loaded<double>(beta, type, 0), [&](int64_t i) { return place(to, i, j); }, to.values, to.type, to.rows);
    }
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t ta, cusparseOperation_t tb, const void *alpha, cusparseConstDnMatDescr_t a, \
    cusparseConstDnMatDescr_t b, const void *beta, cusparseSpMatDescr_t c, cudaDataType type, cusparseSDDMMAlg_t
inline cusparseStatus_t cusparseSDDMM_bufferSize(SAPWOOD_GIVEN, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSDDMM_preprocess(SAPWOOD_GIVEN, void *) SAPWOOD_NOTHING
// C = (op(A) op(B)) at the places of C.
inline cusparseStatus_t cusparseSDDMM(SAPWOOD_GIVEN, void *) {
    SAPWOOD_SPARSE;
    const bool turn_a = ta != CUSPARSE_OPERATION_NON_TRANSPOSE, turn_b = tb != CUSPARSE_OPERATION_NON_TRANSPOSE;
    const double x = loaded<double>(alpha, type, 0), y = loaded<double>(beta, type, 0);
    for (int at = 0; at < c->batch; at++) {
        const cusparseDnMatDescr left = batched(*a, at), right = batched(*b, at);
        const cusparseSpMatDescr to = batched(*c, at);
        each_entry(to, [&](int64_t row, int64_t column, int64_t i) {
            double sum = 0;
            for (int64_t k = 0; k < (turn_a ? a->rows : a->columns); k++)
                sum += loaded<double>(left.values, left.type, turn_a ? place(left, k, row) : place(left, row, k)) *
                       loaded<double>(right.values, right.type, turn_b ? place(right, column, k) : place(right, k, column));
            stored(to.values, to.type, i, x * sum + (y == 0 ? 0 : y * entry(to, i)));
        });
    }
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
inline cusparseStatus_t cusparseSparseToDense_bufferSize(cusparseHandle_t, cusparseConstSpMatDescr_t, cusparseDnMatDescr_t,
                                                         cusparseSparseToDenseAlg_t, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSparseToDense(cusparseHandle_t handle, cusparseConstSpMatDescr_t a, cusparseDnMatDescr_t b,
                                              cusparseSparseToDenseAlg_t, void *) {
    SAPWOOD_SPARSE;
    for (int64_t i = 0; i < b->rows; i++)
        for (int64_t j = 0; j < b->columns; j++) stored(b->values, b->type, place(*b, i, j), 0.0);
    each_entry(*a, [&](int64_t row, int64_t column, int64_t i) { stored(b->values, b->type, place(*b, row, column), entry(*a, i)); });
    return CUSPARSE_STATUS_SUCCESS;
}
namespace sapwood_cuda {
// Writes entries in their order, and how many there are before each row or column.
inline void write_entries(cusparseSpMatDescr &a, const std::vector<Entry> &entries, bool with_values) {
    const bool by_rows = a.format != CUSPARSE_FORMAT_CSC;
    const int64_t lines = by_rows ? a.rows : a.columns;
    std::vector<int64_t> counts(size_t(lines) + 1, 0);
    for (const Entry &each : entries) counts[size_t(by_rows ? each.row : each.column) + 1]++;
    std::partial_sum(counts.begin(), counts.end(), counts.begin());
    for (int64_t i = 0; a.format != CUSPARSE_FORMAT_COO && i <= lines; i++)
        set_index(a.offsets, a.offset_type, i, counts[size_t(i)] + a.base);
    a.entries = int64_t(entries.size());
    for (size_t i = 0; with_values && i < entries.size(); i++) {
        if (a.format == CUSPARSE_FORMAT_COO) set_index(a.offsets, a.index_type, int64_t(i), entries[i].row + a.base);
        set_index(a.indices, a.index_type, int64_t(i), (by_rows ? entries[i].column : entries[i].row) + a.base);
        stored(a.values, a.type, int64_t(i), entries[i].value);
    }
}
inline std::vector<Entry> entries_of(const cusparseDnMatDescr &a, bool by_rows) {
    std::vector<Entry> found;
    for (int64_t i = 0; i < a.rows * a.columns; i++) {
        const int64_t row = by_rows ? i / a.columns : i % a.rows, column = by_rows ? i % a.columns : i / a.rows;
        const double value = loaded<double>(a.values, a.type, place(a, row, column));
        if (value != 0) found.push_back({row, column, value});
    }
    return found;
}
inline std::vector<Entry> product(const cusparseSpMatDescr &a, const cusparseSpMatDescr &b, double alpha) {
    std::vector<std::vector<std::pair<int64_t, double>>> rows(size_t(a.rows)), others(size_t(b.rows));
    each_entry(a, [&](int64_t row, int64_t column, int64_t i) { rows[size_t(row)].push_back({column, entry(a, i)}); });
    each_entry(b, [&](int64_t row, int64_t column, int64_t i) { others[size_t(row)].push_back({column, entry(b, i)}); });
    std::vector<Entry> found;
    std::vector<double> sums(size_t(b.columns), 0.0);
    std::vector<int64_t> seen(size_t(b.columns), -1), columns;
    for (int64_t row = 0; row < a.rows; row++) {
        columns.clear();
        for (const auto &[k, x] : rows[size_t(row)])
            for (const auto &[column, y] : others[size_t(k)]) {
                if (seen[size_t(column)] != row) seen[size_t(column)] = row, sums[size_t(column)] = 0, columns.push_back(column);
                sums[size_t(column)] += x * y;
            }
        std::sort(columns.begin(), columns.end());
        for (int64_t column : columns) found.push_back({row, column, alpha * sums[size_t(column)]});
    }
    return found;
}
} // namespace sapwood_cuda
inline cusparseStatus_t cusparseDenseToSparse_bufferSize(cusparseHandle_t, cusparseConstDnMatDescr_t, cusparseSpMatDescr_t,
                                                         cusparseDenseToSparseAlg_t, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseDenseToSparse_analysis(cusparseHandle_t handle, cusparseConstDnMatDescr_t a, cusparseSpMatDescr_t b,
                                                       cusparseDenseToSparseAlg_t, void *) {
    SAPWOOD_SPARSE;
    write_entries(*b, entries_of(*a, b->format != CUSPARSE_FORMAT_CSC), false);
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDenseToSparse_convert(cusparseHandle_t handle, cusparseConstDnMatDescr_t a, cusparseSpMatDescr_t b,
                                                      cusparseDenseToSparseAlg_t, void *) {
    SAPWOOD_SPARSE;
    write_entries(*b, entries_of(*a, b->format != CUSPARSE_FORMAT_CSC), true);
    return CUSPARSE_STATUS_SUCCESS;
}
// Products of two sparse matrices.
struct cusparseSpGEMMDescr { std::vector<sapwood_cuda::Entry> entries; };
typedef cusparseSpGEMMDescr *cusparseSpGEMMDescr_t;
inline cusparseStatus_t cusparseSpGEMM_createDescr(cusparseSpGEMMDescr_t *d) { return *d = new cusparseSpGEMMDescr, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSpGEMM_destroyDescr(cusparseSpGEMMDescr_t d) { return delete d, CUSPARSE_STATUS_SUCCESS; }
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t ta, cusparseOperation_t tb, const void *alpha, cusparseConstSpMatDescr_t a, \
    cusparseConstSpMatDescr_t b, const void *beta, cusparseSpMatDescr_t c, cudaDataType type, cusparseSpGEMMAlg_t, \
    cusparseSpGEMMDescr_t work
inline cusparseStatus_t cusparseSpGEMM_workEstimation(SAPWOOD_GIVEN, size_t *bytes, void *) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpGEMM_compute(SAPWOOD_GIVEN, size_t *bytes, void *buffer) {
    SAPWOOD_SPARSE;
    if (ta != CUSPARSE_OPERATION_NON_TRANSPOSE || tb != CUSPARSE_OPERATION_NON_TRANSPOSE) return CUSPARSE_STATUS_NOT_SUPPORTED;
    *bytes = 8;
    if (!buffer) return CUSPARSE_STATUS_SUCCESS;
    work->entries = product(*a, *b, loaded<double>(alpha, type, 0));
    c->entries = int64_t(work->entries.size());
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseSpGEMM_copy(SAPWOOD_GIVEN) {
    SAPWOOD_SPARSE;
    std::vector<Entry> sums = work->entries; // C has the places of the product
    if (const double factor = loaded<double>(beta, type, 0))
        for (size_t i = 0; i < sums.size(); i++) sums[i].value += factor * entry(*c, int64_t(i));
    write_entries(*c, sums, true);
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
// Triangles.
struct cusparseSpSVDescr {};
typedef cusparseSpSVDescr *cusparseSpSVDescr_t;
typedef cusparseSpSVDescr cusparseSpSMDescr;
typedef cusparseSpSVDescr *cusparseSpSMDescr_t;
inline cusparseStatus_t cusparseSpSV_createDescr(cusparseSpSVDescr_t *d) { return *d = new cusparseSpSVDescr, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSpSV_destroyDescr(cusparseSpSVDescr_t d) { return delete d, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseSpSM_createDescr(cusparseSpSMDescr_t *d) { return cusparseSpSV_createDescr(d); }
inline cusparseStatus_t cusparseSpSM_destroyDescr(cusparseSpSMDescr_t d) { return cusparseSpSV_destroyDescr(d); }
namespace sapwood_cuda {
template <class In, class Out>
void solve_sparse(const cusparseSpMatDescr &a, bool turned, double alpha, In in, Out out) {
    const int64_t n = a.rows;
    std::vector<std::vector<std::pair<int64_t, double>>> rows{size_t(n)};
    std::vector<double> diagonal(size_t(n), a.diag == CUSPARSE_DIAG_TYPE_UNIT ? 1.0 : 0.0), x(size_t(n), 0.0);
    const bool lower = (a.fill == CUSPARSE_FILL_MODE_LOWER) != turned;
    each_entry(a, [&](int64_t row, int64_t column, int64_t i) {
        if (turned) std::swap(row, column);
        if (row == column && a.diag == CUSPARSE_DIAG_TYPE_NON_UNIT) diagonal[size_t(row)] += entry(a, i);
        if (lower ? column < row : column > row) rows[size_t(row)].push_back({column, entry(a, i)});
    });
    for (int64_t s = 0; s < n; s++) {
        const int64_t i = lower ? s : n - 1 - s;
        double sum = alpha * in(i);
        for (const auto &[k, value] : rows[size_t(i)]) sum -= value * x[size_t(k)];
        x[size_t(i)] = sum / diagonal[size_t(i)];
    }
    for (int64_t i = 0; i < n; i++) out(i, x[size_t(i)]);
}
}
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t how, const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, \
    cusparseDnVecDescr_t y, cudaDataType type, cusparseSpSVAlg_t, cusparseSpSVDescr_t
inline cusparseStatus_t cusparseSpSV_bufferSize(SAPWOOD_GIVEN, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpSV_analysis(SAPWOOD_GIVEN, void *) SAPWOOD_NOTHING
inline cusparseStatus_t cusparseSpSV_solve(SAPWOOD_GIVEN) {
    SAPWOOD_SPARSE;
    solve_sparse(*a, how != CUSPARSE_OPERATION_NON_TRANSPOSE, loaded<double>(alpha, type, 0),
                 [&](int64_t i) { return loaded<double>(x->values, x->type, i); },
                 [&](int64_t i, double value) { stored(y->values, y->type, i, value); });
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
#define SAPWOOD_GIVEN \
    cusparseHandle_t handle, cusparseOperation_t ta, cusparseOperation_t tb, const void *alpha, cusparseConstSpMatDescr_t a, \
    cusparseConstDnMatDescr_t b, cusparseDnMatDescr_t c, cudaDataType type, cusparseSpSMAlg_t, cusparseSpSMDescr_t
inline cusparseStatus_t cusparseSpSM_bufferSize(SAPWOOD_GIVEN, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpSM_analysis(SAPWOOD_GIVEN, void *) SAPWOOD_NOTHING
inline cusparseStatus_t cusparseSpSM_solve(SAPWOOD_GIVEN) {
    SAPWOOD_SPARSE;
    const bool turned = tb != CUSPARSE_OPERATION_NON_TRANSPOSE;
    for (int64_t j = 0; j < c->columns; j++)
        solve_sparse(*a, ta != CUSPARSE_OPERATION_NON_TRANSPOSE, loaded<double>(alpha, type, 0),
                     [&](int64_t i) { return loaded<double>(b->values, b->type, turned ? place(*b, j, i) : place(*b, i, j)); },
                     [&](int64_t i, double value) { stored(c->values, c->type, place(*c, i, j), value); });
    return CUSPARSE_STATUS_SUCCESS;
}
#undef SAPWOOD_GIVEN
// Other forms of one matrix.
inline cusparseStatus_t cusparseCsr2cscEx2_bufferSize(cusparseHandle_t, int, int, int, const void *, const int *, const int *, void *, int *,
                                                      int *, cudaDataType, cusparseAction_t, cusparseIndexBase_t, cusparseCsr2CscAlg_t,
                                                      size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseCsr2cscEx2(cusparseHandle_t handle, int m, int n, int entries, const void *values, const int *offsets,
                                           const int *indices, void *csc_values, int *csc_offsets, int *csc_indices, cudaDataType type,
                                           cusparseAction_t, cusparseIndexBase_t base, cusparseCsr2CscAlg_t, void *) {
    SAPWOOD_SPARSE;
    if (!is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    const auto plain = [](const void *p) { return const_cast<void *>(p); };
    const cusparseSpMatDescr a{CUSPARSE_FORMAT_CSR, m, n, entries, plain(offsets), plain(indices), plain(values), CUSPARSE_INDEX_32I,
                               CUSPARSE_INDEX_32I, base, type};
    cusparseSpMatDescr b{CUSPARSE_FORMAT_CSC, m, n, entries, csc_offsets, csc_indices, csc_values, CUSPARSE_INDEX_32I,
                         CUSPARSE_INDEX_32I, base, type};
    std::vector<Entry> found;
    each_entry(a, [&](int64_t row, int64_t column, int64_t i) { found.push_back({row, column, entry(a, i)}); });
    std::stable_sort(found.begin(), found.end(), [](const Entry &x, const Entry &y) { return x.column < y.column; });
    write_entries(b, found, true);
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseXcoo2csr(cusparseHandle_t handle, const int *rows, int entries, int m, int *offsets, cusparseIndexBase_t base) {
    SAPWOOD_SPARSE;
    for (int r = 0, i = 0; r <= m; r++) {
        while (i < entries && rows[i] - base < r) i++;
        offsets[r] = i + base;
    }
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseXcsr2coo(cusparseHandle_t handle, const int *offsets, int, int m, int *rows, cusparseIndexBase_t base) {
    SAPWOOD_SPARSE;
    for (int r = 0; r < m; r++)
        for (int i = offsets[r] - base; i < offsets[r + 1] - base; i++) rows[i] = r + base;
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCreateIdentityPermutation(cusparseHandle_t handle, int n, int *p) {
    SAPWOOD_SPARSE;
    std::iota(p, p + n, 0);
    return CUSPARSE_STATUS_SUCCESS;
}
namespace sapwood_cuda {
// Sorts a part of two arrays by the first, and tells a third one where each came from.
inline void sort_indices(int *keys, int *others, int *from, int begin, int end) {
    std::vector<std::pair<std::pair<int, int>, int>> all;
    for (int i = begin; i < end; i++) all.push_back({{keys[i], others ? others[i] : 0}, from ? from[i] : 0});
    std::stable_sort(all.begin(), all.end(), [](const auto &a, const auto &b) { return a.first < b.first; });
    for (int i = begin; i < end; i++) {
        const auto &[key, place] = all[size_t(i - begin)];
        keys[i] = key.first;
        if (others) others[i] = key.second;
        if (from) from[i] = place;
    }
}
}
inline cusparseStatus_t cusparseXcsrsort_bufferSizeExt(cusparseHandle_t, int, int, int, const int *, const int *, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseXcsrsort(cusparseHandle_t handle, int m, int, int, const cusparseMatDescr_t a, const int *offsets, int *indices,
                                         int *from, void *) {
    SAPWOOD_SPARSE;
    for (int r = 0; r < m; r++) sort_indices(indices, nullptr, from, offsets[r] - a->base, offsets[r + 1] - a->base);
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseXcscsort_bufferSizeExt(cusparseHandle_t, int, int, int, const int *, const int *, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseXcscsort(cusparseHandle_t handle, int, int n, int, const cusparseMatDescr_t a, const int *offsets, int *indices,
                                         int *from, void *) {
    return cusparseXcsrsort(handle, n, 0, 0, a, offsets, indices, from, nullptr);
}
inline cusparseStatus_t cusparseXcoosort_bufferSizeExt(cusparseHandle_t, int, int, int, const int *, const int *, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseXcoosortByRow(cusparseHandle_t handle, int, int, int entries, int *rows, int *columns, int *from, void *) {
    SAPWOOD_SPARSE;
    sort_indices(rows, columns, from, 0, entries);
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseXcoosortByColumn(cusparseHandle_t handle, int, int, int entries, int *rows, int *columns, int *from, void *) {
    SAPWOOD_SPARSE;
    sort_indices(columns, rows, from, 0, entries);
    return CUSPARSE_STATUS_SUCCESS;
}
struct cusparseSpVecDescr { int64_t size, entries; void *indices, *values; cusparseIndexType_t index_type; cusparseIndexBase_t base; cudaDataType type; };
typedef cusparseSpVecDescr *cusparseSpVecDescr_t;
typedef const cusparseSpVecDescr *cusparseConstSpVecDescr_t;
inline cusparseStatus_t cusparseCreateSpVec(cusparseSpVecDescr_t *x, int64_t n, int64_t entries, void *indices, void *values,
                                            cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    if (!sapwood_cuda::is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
    return *x = new cusparseSpVecDescr{n, entries, indices, values, index_type, base, type}, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDestroySpVec(cusparseConstSpVecDescr_t x) { return delete x, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseGather(cusparseHandle_t handle, cusparseConstDnVecDescr_t y, cusparseSpVecDescr_t x) {
    SAPWOOD_SPARSE;
    for (int64_t i = 0; i < x->entries; i++)
        stored(x->values, x->type, i, loaded<double>(y->values, y->type, index_at(x->indices, x->index_type, i) - x->base));
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseScatter(cusparseHandle_t handle, cusparseConstSpVecDescr_t x, cusparseDnVecDescr_t y) {
    SAPWOOD_SPARSE;
    for (int64_t i = 0; i < x->entries; i++)
        stored(y->values, y->type, index_at(x->indices, x->index_type, i) - x->base, loaded<double>(x->values, x->type, i));
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseSpVV_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseConstSpVecDescr_t, cusparseConstDnVecDescr_t,
                                                const void *, cudaDataType, size_t *bytes) SAPWOOD_BYTES
inline cusparseStatus_t cusparseSpVV(cusparseHandle_t handle, cusparseOperation_t, cusparseConstSpVecDescr_t x, cusparseConstDnVecDescr_t y,
                                     void *found, cudaDataType type, void *) {
    SAPWOOD_SPARSE;
    double sum = 0;
    for (int64_t i = 0; i < x->entries; i++)
        sum += loaded<double>(x->values, x->type, i) * loaded<double>(y->values, y->type, index_at(x->indices, x->index_type, i) - x->base);
    stored(found, type, 0, sum);
    return CUSPARSE_STATUS_SUCCESS;
}
// Y = alpha X + beta Y.
inline cusparseStatus_t cusparseAxpby(cusparseHandle_t handle, const void *alpha, cusparseConstSpVecDescr_t x, const void *beta,
                                      cusparseDnVecDescr_t y) {
    SAPWOOD_SPARSE;
    const double a = loaded<double>(alpha, x->type, 0), b = loaded<double>(beta, x->type, 0);
    std::vector<double> sums(size_t(y->size), 0.0);
    for (int64_t i = 0; b != 0 && i < y->size; i++) sums[size_t(i)] = b * loaded<double>(y->values, y->type, i);
    for (int64_t i = 0; i < x->entries; i++)
        sums[size_t(index_at(x->indices, x->index_type, i) - x->base)] += a * loaded<double>(x->values, x->type, i);
    for (int64_t i = 0; i < y->size; i++) stored(y->values, y->type, i, sums[size_t(i)]);
    return CUSPARSE_STATUS_SUCCESS;
}
// X and Y turned: x' = c x + s y, y' = c y - s x.
inline cusparseStatus_t cusparseRot(cusparseHandle_t handle, const void *c_coeff, const void *s_coeff, cusparseSpVecDescr_t x,
                                    cusparseDnVecDescr_t y) {
    SAPWOOD_SPARSE;
    const double c = loaded<double>(c_coeff, x->type, 0), s = loaded<double>(s_coeff, x->type, 0);
    for (int64_t i = 0; i < x->entries; i++) {
        const int64_t at = index_at(x->indices, x->index_type, i) - x->base;
        const double in_x = loaded<double>(x->values, x->type, i), in_y = loaded<double>(y->values, y->type, at);
        stored(x->values, x->type, i, c * in_x + s * in_y), stored(y->values, y->type, at, c * in_y - s * in_x);
    }
    return CUSPARSE_STATUS_SUCCESS;
}
#include "sapwood/sparse_factors.h"
#include "sapwood/sparse_parts.h"
#include "sapwood/sparse_typed.h"
#undef SAPWOOD_SPARSE
#undef SAPWOOD_BYTES
#undef SAPWOOD_NOTHING
