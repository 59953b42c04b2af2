// cuBLASLt: products of matrices that are described by attributes, with what follows a product.
#pragma once

#define CUBLASLT_H_

#include <cstring>

#include "cublas_v2.h"

enum cublasLtOrder_t {
    CUBLASLT_ORDER_COL, CUBLASLT_ORDER_ROW, CUBLASLT_ORDER_COL32, CUBLASLT_ORDER_COL4_4R2_8C, CUBLASLT_ORDER_COL32_2R_4R4
};
enum cublasLtPointerMode_t {
    CUBLASLT_POINTER_MODE_HOST, CUBLASLT_POINTER_MODE_DEVICE, CUBLASLT_POINTER_MODE_DEVICE_VECTOR,
    CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO, CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST
};
// Bits: 2 ReLU, 4 bias, 16 gradient of the bias, 32 GELU, 64 its derivative, 128 with a second matrix.
enum cublasLtEpilogue_t {
    CUBLASLT_EPILOGUE_DEFAULT = 1, CUBLASLT_EPILOGUE_RELU = 2, CUBLASLT_EPILOGUE_RELU_AUX = 130, CUBLASLT_EPILOGUE_BIAS = 4,
    CUBLASLT_EPILOGUE_RELU_BIAS = 6, CUBLASLT_EPILOGUE_RELU_AUX_BIAS = 134, CUBLASLT_EPILOGUE_DRELU = 136,
    CUBLASLT_EPILOGUE_DRELU_BGRAD = 152, CUBLASLT_EPILOGUE_GELU = 32, CUBLASLT_EPILOGUE_GELU_AUX = 160,
    CUBLASLT_EPILOGUE_GELU_BIAS = 36, CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164, CUBLASLT_EPILOGUE_DGELU = 192,
    CUBLASLT_EPILOGUE_DGELU_BGRAD = 208, CUBLASLT_EPILOGUE_BGRADA = 256, CUBLASLT_EPILOGUE_BGRADB = 512
};
enum cublasLtMatmulDescAttributes_t {
    CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLASLT_MATMUL_DESC_SCALE_TYPE, CUBLASLT_MATMUL_DESC_POINTER_MODE,
    CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSC, CUBLASLT_MATMUL_DESC_FILL_MODE,
    CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE = 10,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
    CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE = 22,
    CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE = 26
};
enum cublasLtMatrixLayoutAttribute_t {
    CUBLASLT_MATRIX_LAYOUT_TYPE, CUBLASLT_MATRIX_LAYOUT_ORDER, CUBLASLT_MATRIX_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_COLS,
    CUBLASLT_MATRIX_LAYOUT_LD, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
};
enum cublasLtMatmulPreferenceAttributes_t {
    CUBLASLT_MATMUL_PREF_SEARCH_MODE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
    CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES
};

namespace sapwood_cuda {
// One attribute of a description.
struct LtPart {
    void *at;
    size_t size;
    template <class T> LtPart(T &value) : at(&value), size(sizeof value) {}
    LtPart() : at(nullptr), size(0) {}
    cublasStatus_t set(const void *from, size_t bytes) const {
        if (!at || !from || bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
        return memcpy(at, from, size), CUBLAS_STATUS_SUCCESS;
    }
    cublasStatus_t get(void *to, size_t bytes, size_t *written) const {
        if (written) *written = size;
        if (!at || (bytes && (!to || bytes < size))) return CUBLAS_STATUS_INVALID_VALUE;
        if (bytes) memcpy(to, at, size);
        return CUBLAS_STATUS_SUCCESS;
    }
};
inline int lt_handle; // all handles are this one: they hold nothing
}
struct cublasLtMatmulDescOpaque_t {
    cublasComputeType_t compute;
    cudaDataType scale;
    int32_t pointer_mode = 0, turn_a = 0, turn_b = 0, turn_c = 0, fill = CUBLAS_FILL_MODE_FULL;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *second = nullptr;
    int64_t bias_stride = 0, second_ld = 0, second_stride = 0;
    int32_t bias_type = -1, second_type = -1; // those of the result
    sapwood_cuda::LtPart part(cublasLtMatmulDescAttributes_t which) {
        switch (which) {
            case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE: return compute;
            case CUBLASLT_MATMUL_DESC_SCALE_TYPE: return scale;
            case CUBLASLT_MATMUL_DESC_POINTER_MODE: return pointer_mode;
            case CUBLASLT_MATMUL_DESC_TRANSA: return turn_a;
            case CUBLASLT_MATMUL_DESC_TRANSB: return turn_b;
            case CUBLASLT_MATMUL_DESC_TRANSC: return turn_c;
            case CUBLASLT_MATMUL_DESC_FILL_MODE: return fill;
            case CUBLASLT_MATMUL_DESC_EPILOGUE: return epilogue;
            case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return bias;
            case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: return bias_stride;
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return second;
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return second_ld;
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE: return second_stride;
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE: return second_type;
            case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return bias_type;
        }
        return {};
    }
};
struct cublasLtMatrixLayoutOpaque_t {
    uint32_t type;
    int32_t order = CUBLASLT_ORDER_COL;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch = 1;
    int64_t stride = 0;
    sapwood_cuda::LtPart part(cublasLtMatrixLayoutAttribute_t which) {
        switch (which) {
            case CUBLASLT_MATRIX_LAYOUT_TYPE: return type;
            case CUBLASLT_MATRIX_LAYOUT_ORDER: return order;
            case CUBLASLT_MATRIX_LAYOUT_ROWS: return rows;
            case CUBLASLT_MATRIX_LAYOUT_COLS: return columns;
            case CUBLASLT_MATRIX_LAYOUT_LD: return ld;
            case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return batch;
            case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return stride;
        }
        return {};
    }
    int64_t place(int64_t row, int64_t column) const { return order == CUBLASLT_ORDER_ROW ? row * ld + column : row + column * ld; }
    bool is_known() const {
        return (order == CUBLASLT_ORDER_COL || order == CUBLASLT_ORDER_ROW) && sapwood_cuda::is_real(cudaDataType(type));
    }
    bool has_room() const { return ld >= int64_t(order == CUBLASLT_ORDER_ROW ? columns : rows) && batch > 0; }
};
struct cublasLtMatmulPreferenceOpaque_t {};
struct cublasLtMatmulAlgo_t { uint64_t data[8]; };
struct cublasLtMatmulHeuristicResult_t {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
};
typedef int *cublasLtHandle_t;
typedef cublasLtMatmulDescOpaque_t *cublasLtMatmulDesc_t;
typedef cublasLtMatrixLayoutOpaque_t *cublasLtMatrixLayout_t;
typedef cublasLtMatmulPreferenceOpaque_t *cublasLtMatmulPreference_t;

inline cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return *handle = &sapwood_cuda::lt_handle, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
inline size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
inline const char *cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }
inline const char *cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }
inline cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *description, cublasComputeType_t compute, cudaDataType scale) {
    return *description = new cublasLtMatmulDescOpaque_t{compute, scale}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
    return *layout = new cublasLtMatrixLayoutOpaque_t{uint32_t(type), CUBLASLT_ORDER_COL, rows, columns, ld}, CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    return *preference = new cublasLtMatmulPreferenceOpaque_t, CUBLAS_STATUS_SUCCESS;
}
#define SAPWOOD_DESCRIPTION(name, attribute)                                                     \
    inline cublasStatus_t cublasLt##name##Destroy(cublasLt##name##_t which) { return delete which, CUBLAS_STATUS_SUCCESS; } \
    inline cublasStatus_t cublasLt##name##SetAttribute(cublasLt##name##_t which, cublasLt##attribute part, const void *from, size_t bytes) { \
        return which->part(part).set(from, bytes);                                               \
    }                                                                                            \
    inline cublasStatus_t cublasLt##name##GetAttribute(cublasLt##name##_t which, cublasLt##attribute part, void *to, size_t bytes, \
                                                       size_t *written) {                        \
        return which->part(part).get(to, bytes, written);                                        \
    }
SAPWOOD_DESCRIPTION(MatmulDesc, MatmulDescAttributes_t)
SAPWOOD_DESCRIPTION(MatrixLayout, MatrixLayoutAttribute_t)
#undef SAPWOOD_DESCRIPTION
inline cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return delete preference, CUBLAS_STATUS_SUCCESS; }
inline cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t) {
    return CUBLAS_STATUS_SUCCESS; // of how to compute, not of what
}

namespace sapwood_cuda {
// Whether a product of these matrices is defined, and one that is computed here.
inline cublasStatus_t lt_state(const cublasLtMatmulDescOpaque_t *how, const cublasLtMatrixLayoutOpaque_t *a, const cublasLtMatrixLayoutOpaque_t *b,
                               const cublasLtMatrixLayoutOpaque_t *c, const cublasLtMatrixLayoutOpaque_t *d) {
    if (!how || !a || !b || !c || !d) return CUBLAS_STATUS_INVALID_VALUE;
    for (const cublasLtMatrixLayoutOpaque_t *each : {a, b, c, d}) {
        if (!each->is_known()) return CUBLAS_STATUS_NOT_SUPPORTED;
        if (!each->has_room() || each->batch != d->batch) return CUBLAS_STATUS_INVALID_VALUE;
    }
    const auto rows = [](const cublasLtMatrixLayoutOpaque_t *x, int turned) { return turned ? x->columns : x->rows; };
    if (rows(a, how->turn_a) != d->rows || rows(b, !how->turn_b) != d->columns || rows(a, !how->turn_a) != rows(b, how->turn_b) ||
        c->rows != d->rows || c->columns != d->columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (how->epilogue) {
        case CUBLASLT_EPILOGUE_DEFAULT: case CUBLASLT_EPILOGUE_RELU: case CUBLASLT_EPILOGUE_GELU: break;
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS: case CUBLASLT_EPILOGUE_DGELU_BGRAD: case CUBLASLT_EPILOGUE_GELU_AUX: case CUBLASLT_EPILOGUE_DGELU:
            if (!how->second || how->second_ld < int64_t(d->rows)) return CUBLAS_STATUS_INVALID_VALUE;
            if ((how->epilogue & 4 || how->epilogue & 16) && !how->bias) return CUBLAS_STATUS_INVALID_VALUE;
            break;
        case CUBLASLT_EPILOGUE_BIAS: case CUBLASLT_EPILOGUE_RELU_BIAS: case CUBLASLT_EPILOGUE_GELU_BIAS: case CUBLASLT_EPILOGUE_BGRADA:
        case CUBLASLT_EPILOGUE_BGRADB:
            if (!how->bias) return CUBLAS_STATUS_INVALID_VALUE;
            break;
        default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    const bool is_scaled_alike = how->pointer_mode == CUBLASLT_POINTER_MODE_HOST || how->pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    if (!is_scaled_alike || how->turn_c || how->fill != CUBLAS_FILL_MODE_FULL || !is_real(how->scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return state() ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
template <class T> T gelu(T x) { return T(0.5) * x * (T(1) + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x))); }
template <class T> T gelu_derivative(T x) {
    const T root = T(0.7978845608028654), t = std::tanh(root * (x + T(0.044715) * x * x * x));
    return T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * root * (T(1) + T(3 * 0.044715) * x * x);
}
// One product of a batch. Sums and what follows are in T; each result is rounded once.
template <class T>
void lt_product(const cublasLtMatmulDescOpaque_t &how, int64_t batch, T alpha, const void *a, const cublasLtMatrixLayoutOpaque_t &al,
                const void *b, const cublasLtMatrixLayoutOpaque_t &bl, T beta, const void *c, const cublasLtMatrixLayoutOpaque_t &cl, void *d,
                const cublasLtMatrixLayoutOpaque_t &dl) {
    const int64_t m = int64_t(dl.rows), n = int64_t(dl.columns), k = int64_t(how.turn_a ? al.rows : al.columns);
    const auto copied = [batch](const void *from, const cublasLtMatrixLayoutOpaque_t &layout, bool turned, int64_t rows, int64_t columns) {
        std::vector<T> found(size_t(rows * columns) + 1);
        for (int64_t j = 0; j < columns; j++)
            for (int64_t i = 0; i < rows; i++)
                found[size_t(i + j * rows)] = loaded<T>(from, cudaDataType(layout.type), batch * layout.stride + (turned ? layout.place(j, i) : layout.place(i, j)));
        return found;
    };
    const auto left = copied(a, al, how.turn_a, m, k), right = copied(b, bl, how.turn_b, k, n);
    std::vector<T> sums(size_t(m * n) + 1, T(0));
    if (beta != T(0)) sums = copied(c, cl, false, m, n);
    gemm<T>('N', 'N', m, n, k, alpha, left.data(), std::max<int64_t>(m, 1), right.data(), std::max<int64_t>(k, 1), beta, sums.data(), std::max<int64_t>(m, 1));
    const cudaDataType type = cudaDataType(dl.type), second_type = how.second_type < 0 ? type : cudaDataType(how.second_type);
    const cudaDataType bias_type = how.bias_type < 0 ? type : cudaDataType(how.bias_type);
    const auto set_bias = [&](int64_t i, T value) { stored(how.bias, bias_type, i + batch * how.bias_stride, value); };
    for (int64_t i = 0; i < m; i++) {
        const T bias = how.epilogue & 4 ? loaded<T>(how.bias, bias_type, i + batch * how.bias_stride) : T(0);
        T gradient(0);
        for (int64_t j = 0; j < n; j++) {
            T &value = sums[size_t(i + j * m)];
            const int64_t at = i + j * how.second_ld + batch * how.second_stride;
            value += bias;
            if (how.epilogue & 64) value *= gelu_derivative(loaded<T>(how.second, second_type, at));
            else if (how.epilogue & 128) stored(how.second, second_type, at, value);
            if (how.epilogue & 2) value = std::max(value, T(0));
            if (how.epilogue & 32) value = gelu(value);
            gradient += value;
            stored(d, type, batch * dl.stride + dl.place(i, j), value);
        }
        if (how.epilogue & 16) set_bias(i, gradient);
    }
    for (int64_t i = 0; how.epilogue == CUBLASLT_EPILOGUE_BGRADA && i < m; i++) {
        T sum(0);
        for (int64_t p = 0; p < k; p++) sum += left[size_t(i + p * m)];
        set_bias(i, sum);
    }
    for (int64_t j = 0; how.epilogue == CUBLASLT_EPILOGUE_BGRADB && j < n; j++) {
        T sum(0);
        for (int64_t p = 0; p < k; p++) sum += right[size_t(p + j * k)];
        set_bias(j, sum);
    }
}
} // namespace sapwood_cuda

inline cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, cublasLtMatrixLayout_t a,
                                                     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                                     cublasLtMatmulPreference_t, int wanted, cublasLtMatmulHeuristicResult_t *results,
                                                     int *found) {
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    *found = 0;
    if (wanted < 1 || !results) return CUBLAS_STATUS_INVALID_VALUE;
    if (cublasStatus_t bad = sapwood_cuda::lt_state(how, a, b, c, d)) return bad;
    results[0] = {}, results[0].wavesCount = 1, *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t how, const void *alpha, const void *a,
                                     cublasLtMatrixLayout_t al, const void *b, cublasLtMatrixLayout_t bl, const void *beta, const void *c,
                                     cublasLtMatrixLayout_t cl, void *d, cublasLtMatrixLayout_t dl, const cublasLtMatmulAlgo_t *, void *,
                                     size_t, cudaStream_t) {
    using namespace sapwood_cuda;
    if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (cublasStatus_t bad = lt_state(how, al, bl, cl, dl)) return bad;
    const bool in_double = how->scale == CUDA_R_64F || how->compute == CUBLAS_COMPUTE_32I || how->compute == CUBLAS_COMPUTE_32I_PEDANTIC;
    for (int64_t batch = 0; batch < dl->batch; batch++) { // sums of integers are exact in a double
        if (in_double)
            lt_product(*how, batch, loaded<double>(alpha, how->scale, 0), a, *al, b, *bl, loaded<double>(beta, how->scale, 0), c, *cl, d, *dl);
        else lt_product(*how, batch, loaded<float>(alpha, how->scale, 0), a, *al, b, *bl, loaded<float>(beta, how->scale, 0), c, *cl, d, *dl);
    }
    return CUBLAS_STATUS_SUCCESS;
}
