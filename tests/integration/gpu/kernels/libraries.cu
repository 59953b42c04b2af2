// cuBLAS, cuBLASLt and cuSPARSE, called with what a test gives.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cusparse.h>

static cublasOperation_t operation(long how) { return how == 2 ? CUBLAS_OP_C : how ? CUBLAS_OP_T : CUBLAS_OP_N; }
template <class F> int with_blas(F function) {
  cublasHandle_t handle;
  if (cublasCreate(&handle) != CUBLAS_STATUS_SUCCESS) return 1;
  const int status = function(handle);
  cublasDestroy(handle);
  return status;
}
#define GEMM(X, T)                                                                               \
  extern "C" int gemm_##X(long ta, long tb, long m, long n, long k, const T *alpha, const T *a, const T *b, const T *beta, \
                          T *c, long batch) {                                                    \
    const int lda = max(1L, ta ? k : m), ldb = max(1L, tb ? n : k);                                             \
    return with_blas([&](cublasHandle_t h) {                                                     \
      return cublas##X##gemmStridedBatched(h, operation(ta), operation(tb), m, n, k, alpha, a, lda, m * k, b, ldb, k * n, \
                                           beta, c, m, m * n, batch);                            \
    });                                                                                          \
  }                                                                                              \
  extern "C" int others_##X(long n, T *a, T *b, T *c, T *x, T *y) {                              \
    const T one = *c, zero = T();\
    return with_blas([&](cublasHandle_t h) {                                                     \
      int bad = cublas##X##gemv(h, CUBLAS_OP_T, n, n, &one, a, n, x, 1, &zero, y, 1);            \
      bad |= cublas##X##trsm(h, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N, CUBLAS_DIAG_NON_UNIT, n, n, &one, a, \
                             n, b, n);                                                           \
      bad |= cublas##X##geam(h, CUBLAS_OP_T, CUBLAS_OP_N, n, n, &one, a, n, &one, a, n, c, n);   \
      return bad;                                                                                \
    });                                                                                          \
  }
GEMM(S, float)
GEMM(D, double)
GEMM(C, cuComplex)
GEMM(Z, cuDoubleComplex)

extern "C" int gemm_mixed(long m, long n, long k, const float *scale, const __half *a, const __half *b, __half *half, float *single,
                          const signed char *ai, const signed char *bi, int *whole) {
  return with_blas([&](cublasHandle_t h) {
    const int one = 1, none = 0;
    int bad = cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &scale[0], a, CUDA_R_16F, m, b, CUDA_R_16F, k, &scale[1], half,
                           CUDA_R_16F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    bad |= cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &scale[0], a, CUDA_R_16F, m, b, CUDA_R_16F, k, &scale[1], single,
                        CUDA_R_32F, m, CUDA_R_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    bad |= cublasGemmEx(h, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, ai, CUDA_R_8I, m, bi, CUDA_R_8I, k, &none, whole, CUDA_R_32I, m,
                        CUBLAS_COMPUTE_32I, CUBLAS_GEMM_DEFAULT);
    return bad;
  });
}
extern "C" int vectors(long n, double *x, double *y, double *out, int *where) {
  return with_blas([&](cublasHandle_t h) {
    const double two = 2;
    int bad = cublasDdot(h, n, x, 1, y, 1, out) | cublasDnrm2(h, n, x, 1, out + 1) | cublasDasum(h, n, x, 1, out + 2);
    bad |= cublasIdamax(h, n, x, 1, where) | cublasIdamin(h, n, x, 1, where + 1) | cublasDaxpy(h, n, &two, x, 1, y, 1);
    return bad | cublasDscal(h, n / 2, &two, x, 2);
  });
}
// The inverse and a solution by LU, of each matrix of a batch.
extern "C" int batched(long n, long count, double *a, double *inverse, double *b) {
  return with_blas([&](cublasHandle_t h) {
    double *from[8], *to[8], *right[8];
    int pivots[8 * 16], info[8];
    for (int i = 0; i < count; i++) from[i] = a + i * n * n, to[i] = inverse + i * n * n, right[i] = b + i * n;
    int bad = cublasDgetrfBatched(h, n, from, n, pivots, info, count);
    bad |= cublasDgetriBatched(h, n, from, n, pivots, to, n, info, count);
    return bad | cublasDgetrsBatched(h, CUBLAS_OP_N, n, 1, from, n, pivots, right, n, info, count);
  });
}
extern "C" int wrong_sizes(float *a) {
  return with_blas([&](cublasHandle_t h) {
    const float one = 1;
    return cublasSgemm(h, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, a, 3, a, 4, &one, a, 4) == CUBLAS_STATUS_INVALID_VALUE ? 0 : 1;
  });
}

extern "C" int sparse(long m, long k, long n, long entries, int *offsets, int *indices, float *values, float *x, float *y, float *b,
                      float *c, float *turned) {
  cusparseHandle_t handle;
  cusparseSpMatDescr_t a;
  cusparseDnVecDescr_t in, out, other;
  cusparseDnMatDescr_t db, dc;
  const float alpha = 2, beta = 0.5f, none = 0;
  size_t bytes = 0;
  int bad = cusparseCreate(&handle);
  bad |= cusparseCreateCsr(&a, m, k, entries, offsets, indices, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  bad |= cusparseCreateDnVec(&in, k, x, CUDA_R_32F) | cusparseCreateDnVec(&out, m, y, CUDA_R_32F) | cusparseCreateDnVec(&other, k, turned, CUDA_R_32F);
  bad |= cusparseCreateDnMat(&db, k, n, n, b, CUDA_R_32F, CUSPARSE_ORDER_ROW) | cusparseCreateDnMat(&dc, m, n, m, c, CUDA_R_32F, CUSPARSE_ORDER_COL);
  bad |= cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, in, &beta, out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &bytes);
  bad |= cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, in, &beta, out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, nullptr);
  bad |= cusparseSpMV(handle, CUSPARSE_OPERATION_TRANSPOSE, &alpha, a, out, &none, other, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, nullptr);
  bad |= cusparseSpMM(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, a, db, &none, dc, CUDA_R_32F, CUSPARSE_SPMM_ALG_DEFAULT, nullptr);
  bad |= cusparseDestroySpMat(a) | cusparseDestroyDnVec(in) | cusparseDestroyDnVec(out) | cusparseDestroyDnVec(other);
  return bad | cusparseDestroyDnMat(db) | cusparseDestroyDnMat(dc) | cusparseDestroy(handle);
}
// A dense matrix as a sparse one, its square, its transposed form, and a triangle that is solved.
extern "C" int sparse_forms(long n, double *dense, int *offsets, int *indices, double *values, int *square_offsets, int *square_indices,
                            double *square_values, long *square_entries, int *csc_offsets, int *csc_indices, double *csc_values,
                            double *b, double *x) {
  cusparseHandle_t handle;
  cusparseSpMatDescr_t a, c;
  cusparseDnMatDescr_t d;
  cusparseDnVecDescr_t vb, vx;
  cusparseSpGEMMDescr_t work;
  cusparseSpSVDescr_t solver;
  const double one = 1, none = 0;
  size_t bytes = 0;
  int64_t rows, columns, entries;
  char buffer[8];
  const auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  int bad = cusparseCreate(&handle) | cusparseCreateDnMat(&d, n, n, n, dense, CUDA_R_64F, CUSPARSE_ORDER_ROW);
  bad |= cusparseCreateCsr(&a, n, n, 0, offsets, nullptr, nullptr, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F);
  bad |= cusparseDenseToSparse_bufferSize(handle, d, a, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, &bytes);
  bad |= cusparseDenseToSparse_analysis(handle, d, a, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer);
  bad |= cusparseSpMatGetSize(a, &rows, &columns, &entries) | cusparseCsrSetPointers(a, offsets, indices, values);
  bad |= cusparseDenseToSparse_convert(handle, d, a, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer);
  bad |= cusparseCreateCsr(&c, n, n, 0, square_offsets, nullptr, nullptr, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F);
  bad |= cusparseSpGEMM_createDescr(&work);
  bad |= cusparseSpGEMM_workEstimation(handle, plain, plain, &one, a, a, &none, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work, &bytes, nullptr);
  bad |= cusparseSpGEMM_compute(handle, plain, plain, &one, a, a, &none, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work, &bytes, nullptr);
  bad |= cusparseSpGEMM_compute(handle, plain, plain, &one, a, a, &none, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work, &bytes, buffer);
  int64_t found;
  bad |= cusparseSpMatGetSize(c, &rows, &columns, &found) | cusparseCsrSetPointers(c, square_offsets, square_indices, square_values);
  bad |= cusparseSpGEMM_copy(handle, plain, plain, &one, a, a, &none, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work);
  bad |= cusparseSpGEMM_copy(handle, plain, plain, &one, a, a, &one, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work); // twice the square
  const auto turned = CUSPARSE_OPERATION_TRANSPOSE;
  bad |= cusparseSpGEMM_compute(handle, turned, plain, &one, a, a, &none, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, work, &bytes, buffer) !=
         CUSPARSE_STATUS_NOT_SUPPORTED;
  *square_entries = found;
  bad |= cusparseCsr2cscEx2(handle, n, n, entries, values, offsets, indices, csc_values, csc_offsets, csc_indices, CUDA_R_64F,
                            CUSPARSE_ACTION_NUMERIC, CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1, buffer);
  const cusparseFillMode_t lower = CUSPARSE_FILL_MODE_LOWER;
  bad |= cusparseSpMatSetAttribute(a, CUSPARSE_SPMAT_FILL_MODE, &lower, sizeof lower);
  bad |= cusparseCreateDnVec(&vb, n, b, CUDA_R_64F) | cusparseCreateDnVec(&vx, n, x, CUDA_R_64F) | cusparseSpSV_createDescr(&solver);
  bad |= cusparseSpSV_analysis(handle, plain, &one, a, vb, vx, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, solver, buffer);
  bad |= cusparseSpSV_solve(handle, plain, &one, a, vb, vx, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, solver);
  cusparseSpSV_destroyDescr(solver), cusparseSpGEMM_destroyDescr(work), cusparseDestroySpMat(a), cusparseDestroySpMat(c);
  cusparseDestroyDnMat(d), cusparseDestroyDnVec(vb), cusparseDestroyDnVec(vx), cusparseDestroy(handle);
  return bad;
}
// Products of dense matrices at the places of sparse ones, in a batch.
extern "C" int sampled(long batch, long m, long k, long n, long entries, float *a, float *b, int *offsets, int *indices, float *values) {
  cusparseHandle_t handle;
  cusparseDnMatDescr_t left, right;
  cusparseSpMatDescr_t to;
  const float one = 1, none = 0;
  const auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  int bad = cusparseCreate(&handle) | cusparseCreateDnMat(&left, m, k, k, a, CUDA_R_32F, CUSPARSE_ORDER_ROW);
  bad |= cusparseCreateDnMat(&right, k, n, n, b, CUDA_R_32F, CUSPARSE_ORDER_ROW);
  bad |= cusparseCreateCsr(&to, m, n, entries, offsets, indices, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  bad |= cusparseDnMatSetStridedBatch(left, batch, m * k) | cusparseDnMatSetStridedBatch(right, batch, k * n);
  bad |= cusparseCsrSetStridedBatch(to, batch, m + 1, entries);
  bad |= cusparseSDDMM(handle, plain, plain, &one, left, right, &none, to, CUDA_R_32F, CUSPARSE_SDDMM_ALG_DEFAULT, nullptr);
  return bad | cusparseDestroyDnMat(left) | cusparseDestroyDnMat(right) | cusparseDestroySpMat(to) | cusparseDestroy(handle);
}
extern "C" int nearest(long m, long n, double *a, double *b, cuDoubleComplex *ca, cuDoubleComplex *cb) {
  return with_blas([&](cublasHandle_t h) {
    int info;
    return cublasDgelsBatched(h, CUBLAS_OP_N, m, n, 1, &a, m, &b, m, &info, nullptr, 1) |
           cublasZgelsBatched(h, CUBLAS_OP_N, m, n, 1, &ca, m, &cb, m, &info, nullptr, 1);
  });
}

// A product that attributes describe: numbers are type, turned a, turned b, order of d, m, n, k, epilogue, batch.
extern "C" int described(const long *numbers, const float *scale, void *a, void *b, void *c, void *d, void *bias, void *second) {
  const long type = numbers[0], ta = numbers[1], tb = numbers[2], order = numbers[3], m = numbers[4], n = numbers[5], k = numbers[6],
             epilogue = numbers[7], batch = numbers[8];
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t how;
  cublasLtMatrixLayout_t la, lb, lc, ld;
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulHeuristicResult_t best;
  int count = 0;
  const cudaDataType kind = cudaDataType(type);
  const bool is_double = kind == CUDA_R_64F;
  const cublasOperation_t turn_a = operation(ta), turn_b = operation(tb);
  const cublasLtEpilogue_t after = cublasLtEpilogue_t(epilogue);
  int bad = cublasLtCreate(&handle);
  bad |= cublasLtMatmulDescCreate(&how, is_double ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, is_double ? CUDA_R_64F : CUDA_R_32F);
  bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &turn_a, sizeof turn_a);
  bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSB, &turn_b, sizeof turn_b);
  bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE, &after, sizeof after);
  if (bias) bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
  if (second) {
    const int64_t second_ld = m, second_stride = m * n;
    bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &second, sizeof second);
    bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &second_ld, sizeof second_ld);
    bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &second_stride, sizeof second_stride);
  }
  bad |= cublasLtMatrixLayoutCreate(&la, kind, ta ? k : m, ta ? m : k, ta ? k : m);
  bad |= cublasLtMatrixLayoutCreate(&lb, kind, tb ? n : k, tb ? k : n, tb ? n : k);
  bad |= cublasLtMatrixLayoutCreate(&lc, kind, m, n, m) | cublasLtMatrixLayoutCreate(&ld, kind, m, n, order ? n : m);
  const cublasLtOrder_t order_d = order ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
  bad |= cublasLtMatrixLayoutSetAttribute(ld, CUBLASLT_MATRIX_LAYOUT_ORDER, &order_d, sizeof order_d);
  const int32_t all = batch;
  const int64_t sizes[] = {m * k, k * n, m * n, m * n};
  const cublasLtMatrixLayout_t layouts[] = {la, lb, lc, ld};
  for (int i = 0; i < 4; i++) {
    const cublasLtMatrixLayout_t layout = layouts[i];
    bad |= cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &all, sizeof all);
    bad |= cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &sizes[i], sizeof sizes[i]);
  }
  bad |= cublasLtMatmulPreferenceCreate(&preference);
  if (const int refused = cublasLtMatmulAlgoGetHeuristic(handle, how, la, lb, lc, ld, preference, 1, &best, &count)) return refused;
  const double wide[] = {scale[0], scale[1]};
  const void *alpha = is_double ? (const void *)&wide[0] : &scale[0], *beta = is_double ? (const void *)&wide[1] : &scale[1];
  bad |= cublasLtMatmul(handle, how, alpha, a, la, b, lb, beta, c, lc, d, ld, &best.algo, nullptr, 0, 0);
  int32_t kept = 0;
  size_t written = 0;
  bad |= cublasLtMatmulDescGetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &kept, sizeof kept, &written) | (kept != turn_a) | (written != 4);
  bad |= cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &kept, 8) != CUBLAS_STATUS_INVALID_VALUE;
  cublasLtMatmulPreferenceDestroy(preference), cublasLtMatmulDescDestroy(how);
  for (cublasLtMatrixLayout_t layout : {la, lb, lc, ld}) cublasLtMatrixLayoutDestroy(layout);
  return bad | (count != 1) | cublasLtDestroy(handle);
}

// Counts of a matrix in columns, a sum of two sparse matrices, and systems of three diagonals, in two layouts.
extern "C" int typed(long m, long n, float *dense, int *of_rows, int *of_columns, int *total, const int *a_offsets, const int *a_indices,
                     const float *a_values, const int *b_offsets, const int *b_indices, const float *b_values, int *offsets, int *indices,
                     float *values) {
  cusparseHandle_t handle;
  cusparseMatDescr_t a;
  const float two = 2, three = 3;
  size_t bytes;
  int all;
  int bad = cusparseCreate(&handle) | cusparseCreateMatDescr(&a);
  bad |= cusparseSnnz(handle, CUSPARSE_DIRECTION_ROW, m, n, a, dense, m, of_rows, total);
  bad |= cusparseSnnz(handle, CUSPARSE_DIRECTION_COLUMN, m, n, a, dense, m, of_columns, total + 1);
  bad |= cusparseScsrgeam2_bufferSizeExt(handle, m, n, &two, a, 0, a_values, a_offsets, a_indices, &three, a, 0, b_values, b_offsets,
                                         b_indices, a, values, offsets, indices, &bytes);
  bad |= cusparseXcsrgeam2Nnz(handle, m, n, a, 0, a_offsets, a_indices, a, 0, b_offsets, b_indices, a, offsets, &all, nullptr);
  bad |= cusparseScsrgeam2(handle, m, n, &two, a, 0, a_values, a_offsets, a_indices, &three, a, 0, b_values, b_offsets, b_indices, a,
                           values, offsets, indices, nullptr);
  return bad | (all != offsets[m]) | cusparseDestroyMatDescr(a) | cusparseDestroy(handle);
}
extern "C" int diagonals(long m, long n, double *lower, double *middle, double *upper, double *b, double *strided, double *interleaved) {
  cusparseHandle_t handle;
  size_t bytes;
  int bad = cusparseCreate(&handle) | cusparseDgtsv2_bufferSizeExt(handle, m, n, lower, middle, upper, b, m, &bytes);
  bad |= cusparseDgtsv2(handle, m, n, lower, middle, upper, b, m, nullptr);
  bad |= cusparseDgtsv2StridedBatch(handle, m, lower, middle, upper, strided, n, m, nullptr);
  bad |= cusparseDgtsvInterleavedBatch(handle, 0, m, lower, middle, upper, interleaved, n, nullptr);
  return bad | cusparseDestroy(handle);
}
// Y = 2 X + 3 Y, and X and Y turned.
extern "C" int with_vectors(long n, long entries, long *places, float *x, float *y, float *turned_x, float *turned_y) {
  cusparseHandle_t handle;
  cusparseSpVecDescr_t sparse, other;
  cusparseDnVecDescr_t dense, to;
  const float two = 2, three = 3, c = 0.6f, s = 0.8f;
  int bad = cusparseCreate(&handle) | cusparseCreateDnVec(&dense, n, y, CUDA_R_32F) | cusparseCreateDnVec(&to, n, turned_y, CUDA_R_32F);
  bad |= cusparseCreateSpVec(&sparse, n, entries, places, x, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  bad |= cusparseCreateSpVec(&other, n, entries, places, turned_x, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  bad |= cusparseAxpby(handle, &two, sparse, &three, dense) | cusparseRot(handle, &c, &s, other, to);
  bad |= cusparseDestroySpVec(sparse) | cusparseDestroySpVec(other) | cusparseDestroyDnVec(dense) | cusparseDestroyDnVec(to);
  return bad | cusparseDestroy(handle);
}
// Incomplete factors in place of the values, with numbers of rows and columns from 1; `places` are the zero pivots,
// and x is replaced by the solution of L U.
extern "C" int incomplete(long m, long entries, int *offsets, int *indices, double *lu, float *cholesky, int *places, double *boosted,
                          double *x) {
  cusparseHandle_t handle;
  cusparseMatDescr_t a;
  csrilu02Info_t info, raised;
  csric02Info_t lower;
  const auto policy = CUSPARSE_SOLVE_POLICY_USE_LEVEL;
  int bytes;
  double below = 1e-9, to = 0.5;
  int bad = cusparseCreate(&handle) | cusparseCreateMatDescr(&a) | cusparseSetMatIndexBase(a, CUSPARSE_INDEX_BASE_ONE);
  bad |= cusparseCreateCsrilu02Info(&info) | cusparseCreateCsrilu02Info(&raised) | cusparseCreateCsric02Info(&lower);
  bad |= cusparseDcsrilu02_bufferSize(handle, m, entries, a, lu, offsets, indices, info, &bytes);
  bad |= cusparseDcsrilu02_analysis(handle, m, entries, a, lu, offsets, indices, info, policy, nullptr);
  cusparseXcsrilu02_zeroPivot(handle, info, places);
  bad |= cusparseDcsrilu02(handle, m, entries, a, lu, offsets, indices, info, policy, nullptr);
  const int status = cusparseXcsrilu02_zeroPivot(handle, info, places + 1);
  bad |= (status == CUSPARSE_STATUS_ZERO_PIVOT) != (places[1] >= 0);
  bad |= cusparseScsric02_bufferSize(handle, m, entries, a, cholesky, offsets, indices, lower, &bytes);
  bad |= cusparseScsric02_analysis(handle, m, entries, a, cholesky, offsets, indices, lower, policy, nullptr);
  bad |= cusparseScsric02(handle, m, entries, a, cholesky, offsets, indices, lower, policy, nullptr);
  cusparseXcsric02_zeroPivot(handle, lower, places + 2);
  bad |= cusparseDcsrilu02_numericBoost(handle, raised, 1, &below, &to);
  bad |= cusparseDcsrilu02(handle, m, entries, a, boosted, offsets, indices, raised, policy, nullptr);
  for (const bool upper : {false, true}) {
    cusparseSpMatDescr_t half;
    cusparseDnVecDescr_t vector;
    cusparseSpSVDescr_t solution;
    const double one = 1;
    const cusparseFillMode_t fill = upper ? CUSPARSE_FILL_MODE_UPPER : CUSPARSE_FILL_MODE_LOWER;
    const cusparseDiagType_t diagonal = upper ? CUSPARSE_DIAG_TYPE_NON_UNIT : CUSPARSE_DIAG_TYPE_UNIT;
    bad |= cusparseCreateCsr(&half, m, m, entries, offsets, indices, lu, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                             CUSPARSE_INDEX_BASE_ONE, CUDA_R_64F);
    bad |= cusparseSpMatSetAttribute(half, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof fill);
    bad |= cusparseSpMatSetAttribute(half, CUSPARSE_SPMAT_DIAG_TYPE, &diagonal, sizeof diagonal);
    bad |= cusparseCreateDnVec(&vector, m, x, CUDA_R_64F) | cusparseSpSV_createDescr(&solution);
    bad |= cusparseSpSV_solve(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, half, vector, vector, CUDA_R_64F,
                              CUSPARSE_SPSV_ALG_DEFAULT, solution);
    bad |= cusparseSpSV_destroyDescr(solution) | cusparseDestroyDnVec(vector) | cusparseDestroySpMat(half);
  }
  bad |= cusparseDestroyCsrilu02Info(info) | cusparseDestroyCsrilu02Info(raised) | cusparseDestroyCsric02Info(lower);
  return bad | cusparseDestroyMatDescr(a) | cusparseDestroy(handle);
}

// A product with a matrix that must not be changed, and what descriptions hold.
extern "C" int constant(long m, long n, const int *offsets, const int *indices, const float *values, long entries, const float *x, float *y) {
  cusparseHandle_t handle;
  cusparseConstSpMatDescr_t a;
  cusparseConstDnVecDescr_t in;
  cusparseDnVecDescr_t out;
  cusparseSpMatDescr_t own;
  cusparseDnMatDescr_t dense;
  const float one = 1, none = 0;
  const auto plain = CUSPARSE_OPERATION_NON_TRANSPOSE;
  int bad = cusparseCreate(&handle) | cusparseCreateConstDnVec(&in, n, x, CUDA_R_32F) | cusparseCreateDnVec(&out, m, y, CUDA_R_32F);
  bad |= cusparseCreateConstCsr(&a, m, n, entries, offsets, indices, values, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F);
  bad |= cusparseSpMV(handle, plain, &one, a, in, &none, out, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, nullptr);
  cusparseFormat_t format;
  cusparseIndexBase_t base;
  bad |= cusparseSpMatGetFormat(a, &format) | cusparseSpMatGetIndexBase(a, &base);
  bad |= (format != CUSPARSE_FORMAT_CSR) | (base != CUSPARSE_INDEX_BASE_ZERO);
  int64_t rows, columns, count, ld;
  void *at[3];
  cusparseIndexType_t types[2];
  cudaDataType type;
  bad |= cusparseCreateCoo(&own, m, n, 0, at, at + 1, at + 2, CUSPARSE_INDEX_64I, CUSPARSE_INDEX_BASE_ONE, CUDA_R_64F);
  bad |= cusparseCooGet(own, &rows, &columns, &count, &at[0], &at[1], &at[2], types, &base, &type);
  bad |= rows != m || columns != n || count || at[1] != at + 1 || types[0] != CUSPARSE_INDEX_64I || base != CUSPARSE_INDEX_BASE_ONE;
  bad |= type != CUDA_R_64F;
  cusparseOrder_t order;
  cusparseFillMode_t fill = CUSPARSE_FILL_MODE_UPPER, found = CUSPARSE_FILL_MODE_LOWER;
  bad |= cusparseSpMatSetAttribute(own, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof fill);
  bad |= cusparseSpMatGetAttribute(own, CUSPARSE_SPMAT_FILL_MODE, &found, sizeof found) | (found != fill);
  bad |= cusparseCreateDnMat(&dense, m, n, m + 1, y, CUDA_R_32F, CUSPARSE_ORDER_ROW);
  bad |= cusparseDnMatGet(dense, &rows, &columns, &ld, at, &type, &order) | (ld != m + 1) | (order != CUSPARSE_ORDER_ROW) | (at[0] != y);
  bad |= cusparseDestroySpMat(a) | cusparseDestroySpMat(own) | cusparseDestroyDnVec(in) | cusparseDestroyDnVec(out);
  return bad | cusparseDestroyDnMat(dense) | cusparseDestroy(handle);
}
// How many functions take numbers of a type that cannot be computed with here.
extern "C" int taken_types(long type) {
  cublasHandle_t handle;
  cusparseHandle_t sparse;
  cusparseDnVecDescr_t vector;
  cusparseDnMatDescr_t matrix;
  cusparseSpVecDescr_t entries;
  const cudaDataType given = cudaDataType(type);
  const float one = 1;
  double x[16] = {}, y[16] = {};
  int offsets[3] = {}, taken = cublasCreate(&handle) | cusparseCreate(&sparse);
  taken += cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, x, given, 1, x, given, 1, &one, y, given, 1, CUBLAS_COMPUTE_32F,
                        CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_SUCCESS;
  taken += cublasDotEx(handle, 2, x, given, 1, x, given, 1, y, CUDA_R_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
  taken += cublasNrm2Ex(handle, 2, x, given, 1, y, CUDA_R_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
  taken += cublasAxpyEx(handle, 2, &one, CUDA_R_32F, x, given, 1, y, given, 1, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
  taken += cublasScalEx(handle, 2, &one, CUDA_R_32F, x, given, 1, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS;
  taken += cusparseCreateDnVec(&vector, 2, x, given) == CUSPARSE_STATUS_SUCCESS;
  taken += cusparseCreateDnMat(&matrix, 2, 2, 2, x, given, CUSPARSE_ORDER_COL) == CUSPARSE_STATUS_SUCCESS;
  taken += cusparseCreateSpVec(&entries, 2, 0, offsets, x, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, given) == CUSPARSE_STATUS_SUCCESS;
  taken += cusparseCsr2cscEx2(sparse, 2, 2, 0, x, offsets, offsets, y, offsets, offsets, given, CUSPARSE_ACTION_NUMERIC,
                              CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1, nullptr) == CUSPARSE_STATUS_SUCCESS;
  return taken | cublasDestroy(handle) | cusparseDestroy(sparse);
}
// A dot product and a sum of vectors of halves; both read x from its end.
extern "C" int turned_vectors(long n, __half *x, __half *y, float *dot) {
  cublasHandle_t handle;
  const float two = 2;
  int bad = cublasCreate(&handle) | cublasDotEx(handle, n, x, CUDA_R_16F, -1, y, CUDA_R_16F, 1, dot, CUDA_R_32F, CUDA_R_32F);
  bad |= cublasAxpyEx(handle, n, &two, CUDA_R_32F, x, CUDA_R_16F, -1, y, CUDA_R_16F, 1, CUDA_R_32F);
  return bad | cublasDestroy(handle);
}
