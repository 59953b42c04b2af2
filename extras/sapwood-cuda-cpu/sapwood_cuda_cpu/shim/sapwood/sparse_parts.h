// What cuSPARSE's descriptions hold, and descriptions of what must not be changed.
#pragma once

#define SAPWOOD_GET(name, Of, T, member)                                                         \
    inline cusparseStatus_t name(Of of, T *value) { return *value = of->member, CUSPARSE_STATUS_SUCCESS; }
SAPWOOD_GET(cusparseGetPointerMode, cusparseHandle_t, cusparsePointerMode_t, mode)
SAPWOOD_GET(cusparseSpMatGetFormat, cusparseConstSpMatDescr_t, cusparseFormat_t, format)
SAPWOOD_GET(cusparseSpMatGetIndexBase, cusparseConstSpMatDescr_t, cusparseIndexBase_t, base)
SAPWOOD_GET(cusparseSpMatGetStridedBatch, cusparseConstSpMatDescr_t, int, batch)
SAPWOOD_GET(cusparseDnMatGetValues, cusparseDnMatDescr_t, void *, values)
SAPWOOD_GET(cusparseSpVecGetIndexBase, cusparseConstSpVecDescr_t, cusparseIndexBase_t, base)
SAPWOOD_GET(cusparseSpVecGetValues, cusparseSpVecDescr_t, void *, values)
#undef SAPWOOD_GET
inline cusparseMatrixType_t cusparseGetMatType(const cusparseMatDescr_t a) { return a->type; }
inline cusparseIndexBase_t cusparseGetMatIndexBase(const cusparseMatDescr_t a) { return a->base; }
inline cusparseFillMode_t cusparseGetMatFillMode(const cusparseMatDescr_t a) { return a->fill; }
inline cusparseDiagType_t cusparseGetMatDiagType(const cusparseMatDescr_t a) { return a->diag; }
inline cusparseStatus_t cusparseSpVecSetValues(cusparseSpVecDescr_t x, void *values) { return x->values = values, CUSPARSE_STATUS_SUCCESS; }
inline cusparseStatus_t cusparseDnMatGetStridedBatch(cusparseConstDnMatDescr_t a, int *batch, int64_t *stride) {
    return *batch = a->batch, *stride = a->stride, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseSpMatGetAttribute(cusparseConstSpMatDescr_t a, cusparseSpMatAttribute_t which, void *value, size_t) {
    if (which == CUSPARSE_SPMAT_FILL_MODE) *static_cast<cusparseFillMode_t *>(value) = a->fill;
    else *static_cast<cusparseDiagType_t *>(value) = a->diag;
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseCsrGet(cusparseSpMatDescr_t a, int64_t *rows, int64_t *columns, int64_t *entries, void **offsets, void **indices,
                                       void **values, cusparseIndexType_t *offset_type, cusparseIndexType_t *index_type,
                                       cusparseIndexBase_t *base, cudaDataType *type) {
    *offsets = a->offsets, *indices = a->indices, *values = a->values;
    *offset_type = a->offset_type, *index_type = a->index_type, *base = a->base, *type = a->type;
    return cusparseSpMatGetSize(a, rows, columns, entries);
}
inline cusparseStatus_t cusparseCscGet(cusparseSpMatDescr_t a, int64_t *rows, int64_t *columns, int64_t *entries, void **offsets, void **indices,
                                       void **values, cusparseIndexType_t *offset_type, cusparseIndexType_t *index_type,
                                       cusparseIndexBase_t *base, cudaDataType *type) {
    return cusparseCsrGet(a, rows, columns, entries, offsets, indices, values, offset_type, index_type, base, type);
}
inline cusparseStatus_t cusparseCooGet(cusparseSpMatDescr_t a, int64_t *rows, int64_t *columns, int64_t *entries, void **row_indices,
                                       void **indices, void **values, cusparseIndexType_t *index_type, cusparseIndexBase_t *base,
                                       cudaDataType *type) {
    return cusparseCsrGet(a, rows, columns, entries, row_indices, indices, values, index_type, index_type, base, type);
}
inline cusparseStatus_t cusparseDnMatGet(cusparseDnMatDescr_t a, int64_t *rows, int64_t *columns, int64_t *ld, void **values,
                                         cudaDataType *type, cusparseOrder_t *order) {
    *rows = a->rows, *columns = a->columns, *ld = a->ld, *values = a->values, *type = a->type, *order = a->order;
    return CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseDnVecGet(cusparseDnVecDescr_t x, int64_t *n, void **values, cudaDataType *type) {
    return *n = x->size, *values = x->values, *type = x->type, CUSPARSE_STATUS_SUCCESS;
}
inline cusparseStatus_t cusparseSpVecGet(cusparseSpVecDescr_t x, int64_t *n, int64_t *entries, void **indices, void **values,
                                         cusparseIndexType_t *index_type, cusparseIndexBase_t *base, cudaDataType *type) {
    *n = x->size, *entries = x->entries, *indices = x->indices, *values = x->values;
    return *index_type = x->index_type, *base = x->base, *type = x->type, CUSPARSE_STATUS_SUCCESS;
}

// The functions that take these descriptions do not change what they describe.
#define SAPWOOD_CONST(p) const_cast<void *>(p)
inline cusparseStatus_t cusparseCreateConstCsr(cusparseConstSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries,
                                               const void *offsets, const void *indices, const void *values, cusparseIndexType_t offset_type,
                                               cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    return cusparseCreateCsr(const_cast<cusparseSpMatDescr_t *>(a), rows, columns, entries, SAPWOOD_CONST(offsets), SAPWOOD_CONST(indices),
                             SAPWOOD_CONST(values), offset_type, index_type, base, type);
}
inline cusparseStatus_t cusparseCreateConstCsc(cusparseConstSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries,
                                               const void *offsets, const void *indices, const void *values, cusparseIndexType_t offset_type,
                                               cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    return cusparseCreateCsc(const_cast<cusparseSpMatDescr_t *>(a), rows, columns, entries, SAPWOOD_CONST(offsets), SAPWOOD_CONST(indices),
                             SAPWOOD_CONST(values), offset_type, index_type, base, type);
}
inline cusparseStatus_t cusparseCreateConstCoo(cusparseConstSpMatDescr_t *a, int64_t rows, int64_t columns, int64_t entries,
                                               const void *row_indices, const void *indices, const void *values,
                                               cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
    return cusparseCreateCoo(const_cast<cusparseSpMatDescr_t *>(a), rows, columns, entries, SAPWOOD_CONST(row_indices),
                             SAPWOOD_CONST(indices), SAPWOOD_CONST(values), index_type, base, type);
}
inline cusparseStatus_t cusparseCreateConstDnVec(cusparseConstDnVecDescr_t *x, int64_t n, const void *values, cudaDataType type) {
    return cusparseCreateDnVec(const_cast<cusparseDnVecDescr_t *>(x), n, SAPWOOD_CONST(values), type);
}
inline cusparseStatus_t cusparseCreateConstDnMat(cusparseConstDnMatDescr_t *a, int64_t rows, int64_t columns, int64_t ld, const void *values,
                                                 cudaDataType type, cusparseOrder_t order) {
    return cusparseCreateDnMat(const_cast<cusparseDnMatDescr_t *>(a), rows, columns, ld, SAPWOOD_CONST(values), type, order);
}
inline cusparseStatus_t cusparseCreateConstSpVec(cusparseConstSpVecDescr_t *x, int64_t n, int64_t entries, const void *indices,
                                                 const void *values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                                 cudaDataType type) {
    return cusparseCreateSpVec(const_cast<cusparseSpVecDescr_t *>(x), n, entries, SAPWOOD_CONST(indices), SAPWOOD_CONST(values), index_type,
                               base, type);
}
#undef SAPWOOD_CONST
