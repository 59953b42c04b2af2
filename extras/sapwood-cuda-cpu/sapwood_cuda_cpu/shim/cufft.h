// cuFFT: plans for one device, computed in double and rounded once.
#pragma once

#define _CUFFT_H_
#define CUFFT_VER_MAJOR 11
#define CUFFT_VER_MINOR 0
#define CUFFT_VER_PATCH 0
#define CUFFT_VER_BUILD 0
#define CUFFT_VERSION 11000

#include <memory>
#include <mutex>

#include "cuComplex.h"
#include "library_types.h"
#include "sapwood/fourier.h"

#define CUFFT_FORWARD -1
#define CUFFT_INVERSE 1
#define CUFFTAPI

enum cufftResult_t {
    CUFFT_SUCCESS, CUFFT_INVALID_PLAN, CUFFT_ALLOC_FAILED, CUFFT_INVALID_TYPE, CUFFT_INVALID_VALUE, CUFFT_INTERNAL_ERROR,
    CUFFT_EXEC_FAILED, CUFFT_SETUP_FAILED, CUFFT_INVALID_SIZE, CUFFT_UNALIGNED_DATA, CUFFT_INCOMPLETE_PARAMETER_LIST,
    CUFFT_INVALID_DEVICE, CUFFT_PARSE_ERROR, CUFFT_NO_WORKSPACE, CUFFT_NOT_IMPLEMENTED, CUFFT_LICENSE_ERROR, CUFFT_NOT_SUPPORTED
};
typedef cufftResult_t cufftResult;
enum cufftType_t {
    CUFFT_R2C = 0x2a, CUFFT_C2R = 0x2c, CUFFT_C2C = 0x29, CUFFT_D2Z = 0x6a, CUFFT_Z2D = 0x6c, CUFFT_Z2Z = 0x69
};
typedef cufftType_t cufftType;
enum cufftCompatibility_t { CUFFT_COMPATIBILITY_FFTW_PADDING = 1 };
typedef cufftCompatibility_t cufftCompatibility;
#define CUFFT_COMPATIBILITY_DEFAULT CUFFT_COMPATIBILITY_FFTW_PADDING
typedef float cufftReal;
typedef double cufftDoubleReal;
typedef cuComplex cufftComplex;
typedef cuDoubleComplex cufftDoubleComplex;
typedef int cufftHandle;

namespace sapwood_cuda {

// Where the elements of a transform are: of each dimension the size in memory, and the steps between elements
// and between transforms. Without sizes they follow each other.
struct FftLayout {
    std::vector<int64_t> sizes;
    int64_t step = 1, distance = 0;
    int64_t place(const std::vector<int64_t> &at, int64_t batch) const {
        int64_t found = 0;
        for (size_t axis = 0; axis < at.size(); axis++) found = found * sizes[axis] + at[axis];
        return batch * distance + found * step;
    }
};
struct FftPlan {
    bool made = false;
    cufftType type = CUFFT_C2C;
    std::vector<int64_t> shape;
    bool is_plain = true;
    FftLayout in, out;
    int64_t batch = 1;
    FourierOfArrays fourier;

    // The layout of one side; real numbers that a transform in place replaces leave room for the complex ones.
    FftLayout layout(const FftLayout &given, bool is_real, bool is_half, bool in_place) const {
        if (!is_plain) return given;
        FftLayout found{shape, 1, 1};
        if (is_half) found.sizes.back() = shape.back() / 2 + 1;
        if (is_real && in_place) found.sizes.back() = 2 * (shape.back() / 2 + 1);
        for (int64_t size : found.sizes) found.distance *= size;
        return found;
    }
};
struct FftPlans {
    std::mutex mutex;
    std::map<cufftHandle, std::unique_ptr<FftPlan>> plans;
    cufftHandle last = 0;
    static FftPlans &all() {
        static FftPlans all;
        return all;
    }
};
inline FftPlan *fft_plan(cufftHandle handle) {
    FftPlans &all = FftPlans::all();
    const std::lock_guard<std::mutex> hold(all.mutex);
    const auto found = all.plans.find(handle);
    return found == all.plans.end() ? nullptr : found->second.get();
}
inline cufftResult fft_known(cufftHandle handle) { return fft_plan(handle) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN; }
// Calls a function with each index of an array, and its place among those that follow each other.
template <class F> void each_index(const std::vector<int64_t> &shape, F function) {
    std::vector<int64_t> at(shape.size(), 0);
    for (int64_t i = 0;; i++) {
        function(at, size_t(i));
        size_t axis = shape.size();
        while (axis > 0 && ++at[axis - 1] == shape[axis - 1]) at[--axis] = 0;
        if (axis == 0) return;
    }
}
template <class R> Wave fft_read(const R *from, int64_t i) { return Wave(double(from[i]), 0); }
inline Wave fft_read(const cuComplex *from, int64_t i) { return Wave(from[i].x, from[i].y); }
inline Wave fft_read(const cuDoubleComplex *from, int64_t i) { return Wave(from[i].x, from[i].y); }
template <class R> void fft_write(R *to, int64_t i, Wave value) { to[i] = R(value.real()); }
inline void fft_write(cuComplex *to, int64_t i, Wave value) { to[i] = {float(value.real()), float(value.imag())}; }
inline void fft_write(cuDoubleComplex *to, int64_t i, Wave value) { to[i] = {value.real(), value.imag()}; }

template <class From, class To> cufftResult fft_run(cufftHandle handle, cufftType type, const From *from, To *to, bool inverse) {
    FftPlan *plan = fft_plan(handle);
    if (!plan || !plan->made) return CUFFT_INVALID_PLAN;
    if (plan->type != type) return CUFFT_INVALID_TYPE;
    if (!from || !to) return CUFFT_INVALID_VALUE;
    if (state()) return CUFFT_EXEC_FAILED;
    const bool to_half = type == CUFFT_R2C || type == CUFFT_D2Z, from_half = type == CUFFT_C2R || type == CUFFT_Z2D;
    const bool in_place = static_cast<const void *>(from) == static_cast<void *>(to);
    const FftLayout in = plan->layout(plan->in, to_half, from_half, in_place);
    const FftLayout out = plan->layout(plan->out, from_half, to_half, in_place);
    const std::vector<int64_t> &shape = plan->shape;
    std::vector<int64_t> written = shape, mirrored = shape;
    if (to_half) written.back() = shape.back() / 2 + 1;
    int64_t count = 1;
    for (int64_t size : shape) count *= size;
    std::vector<std::vector<Wave>> all;
    for (int64_t batch = 0; batch < plan->batch; batch++) {
        std::vector<Wave> x(static_cast<size_t>(count));
        each_index(shape, [&](const std::vector<int64_t> &at, size_t i) {
            const bool given = !from_half || at.back() <= shape.back() / 2;
            for (size_t axis = 0; axis < at.size(); axis++)
                mirrored[axis] = given ? at[axis] : (shape[axis] - at[axis]) % shape[axis];
            const Wave value = fft_read(from, in.place(mirrored, batch));
            x[i] = given ? value : std::conj(value);
        });
        plan->fourier.run(x, shape, inverse);
        all.push_back(std::move(x));
    }
    for (int64_t batch = 0; batch < plan->batch; batch++) // after all are read: it may be the same memory
        each_index(shape, [&](const std::vector<int64_t> &at, size_t i) {
            if (at.back() < written.back()) fft_write(to, out.place(at, batch), all[size_t(batch)][i]);
        });
    return CUFFT_SUCCESS;
}
template <class N>
cufftResult fft_make(cufftHandle handle, int rank, const N *n, const N *in, N in_step, N in_distance, const N *out, N out_step,
                     N out_distance, cufftType type, N batch) {
    FftPlan *plan = fft_plan(handle);
    if (!plan || plan->made) return CUFFT_INVALID_PLAN;
    if (rank < 1 || rank > 3 || !n || batch < 1) return CUFFT_INVALID_VALUE;
    for (int axis = 0; axis < rank; axis++)
        if (n[axis] < 1) return CUFFT_INVALID_SIZE;
    for (cufftType known : {CUFFT_R2C, CUFFT_C2R, CUFFT_C2C, CUFFT_D2Z, CUFFT_Z2D, CUFFT_Z2Z}) plan->made |= known == type;
    if (!plan->made) return CUFFT_INVALID_TYPE;
    plan->type = type, plan->batch = int64_t(batch), plan->shape.assign(n, n + rank);
    plan->is_plain = !in || !out;
    if (!plan->is_plain) {
        plan->in = {std::vector<int64_t>(in, in + rank), int64_t(in_step), int64_t(in_distance)};
        plan->out = {std::vector<int64_t>(out, out + rank), int64_t(out_step), int64_t(out_distance)};
    }
    return CUFFT_SUCCESS;
}
} // namespace sapwood_cuda

inline cufftResult cufftCreate(cufftHandle *handle) {
    if (!handle) return CUFFT_INVALID_VALUE;
    sapwood_cuda::FftPlans &all = sapwood_cuda::FftPlans::all();
    const std::lock_guard<std::mutex> hold(all.mutex);
    all.plans[*handle = ++all.last] = std::make_unique<sapwood_cuda::FftPlan>();
    return CUFFT_SUCCESS;
}
inline cufftResult cufftDestroy(cufftHandle handle) {
    sapwood_cuda::FftPlans &all = sapwood_cuda::FftPlans::all();
    const std::lock_guard<std::mutex> hold(all.mutex);
    return all.plans.erase(handle) ? CUFFT_SUCCESS : CUFFT_INVALID_PLAN;
}
inline cufftResult cufftMakePlanMany(cufftHandle handle, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                                     int odist, cufftType type, int batch, size_t *bytes) {
    if (bytes) *bytes = 0;
    return sapwood_cuda::fft_make(handle, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch);
}
inline cufftResult cufftMakePlanMany64(cufftHandle handle, int rank, long long int *n, long long int *inembed, long long int istride,
                                       long long int idist, long long int *onembed, long long int ostride, long long int odist,
                                       cufftType type, long long int batch, size_t *bytes) {
    if (bytes) *bytes = 0;
    return sapwood_cuda::fft_make(handle, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch);
}
inline cufftResult cufftMakePlan1d(cufftHandle handle, int nx, cufftType type, int batch, size_t *bytes) {
    return cufftMakePlanMany(handle, 1, &nx, nullptr, 1, 0, nullptr, 1, 0, type, batch, bytes);
}
inline cufftResult cufftMakePlan2d(cufftHandle handle, int nx, int ny, cufftType type, size_t *bytes) {
    int n[] = {nx, ny};
    return cufftMakePlanMany(handle, 2, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, bytes);
}
inline cufftResult cufftMakePlan3d(cufftHandle handle, int nx, int ny, int nz, cufftType type, size_t *bytes) {
    int n[] = {nx, ny, nz};
    return cufftMakePlanMany(handle, 3, n, nullptr, 1, 0, nullptr, 1, 0, type, 1, bytes);
}
namespace sapwood_cuda {
template <class Make> cufftResult fft_created(cufftHandle *handle, Make make) {
    if (cufftResult bad = cufftCreate(handle)) return bad;
    const cufftResult bad = make(*handle);
    if (bad) cufftDestroy(*handle);
    return bad;
}
}
inline cufftResult cufftPlan1d(cufftHandle *handle, int nx, cufftType type, int batch) {
    return sapwood_cuda::fft_created(handle, [&](cufftHandle plan) { return cufftMakePlan1d(plan, nx, type, batch, nullptr); });
}
inline cufftResult cufftPlan2d(cufftHandle *handle, int nx, int ny, cufftType type) {
    return sapwood_cuda::fft_created(handle, [&](cufftHandle plan) { return cufftMakePlan2d(plan, nx, ny, type, nullptr); });
}
inline cufftResult cufftPlan3d(cufftHandle *handle, int nx, int ny, int nz, cufftType type) {
    return sapwood_cuda::fft_created(handle, [&](cufftHandle plan) { return cufftMakePlan3d(plan, nx, ny, nz, type, nullptr); });
}
inline cufftResult cufftPlanMany(cufftHandle *handle, int rank, int *n, int *inembed, int istride, int idist, int *onembed, int ostride,
                                 int odist, cufftType type, int batch) {
    return sapwood_cuda::fft_created(handle, [&](cufftHandle plan) {
        return cufftMakePlanMany(plan, rank, n, inembed, istride, idist, onembed, ostride, odist, type, batch, nullptr);
    });
}

#define SAPWOOD_FFT(name, From, To)                                                              \
    inline cufftResult cufftExec##name(cufftHandle handle, From *from, To *to) {                 \
        return sapwood_cuda::fft_run(handle, CUFFT_##name, from, to, CUFFT_##name == CUFFT_C2R || CUFFT_##name == CUFFT_Z2D); \
    }
SAPWOOD_FFT(R2C, cufftReal, cufftComplex)
SAPWOOD_FFT(C2R, cufftComplex, cufftReal)
SAPWOOD_FFT(D2Z, cufftDoubleReal, cufftDoubleComplex)
SAPWOOD_FFT(Z2D, cufftDoubleComplex, cufftDoubleReal)
#undef SAPWOOD_FFT
#define SAPWOOD_FFT(name, T)                                                                     \
    inline cufftResult cufftExec##name(cufftHandle handle, T *from, T *to, int direction) {      \
        if (direction != CUFFT_FORWARD && direction != CUFFT_INVERSE) return CUFFT_INVALID_VALUE; \
        return sapwood_cuda::fft_run(handle, CUFFT_##name, from, to, direction == CUFFT_INVERSE); \
    }
SAPWOOD_FFT(C2C, cufftComplex)
SAPWOOD_FFT(Z2Z, cufftDoubleComplex)
#undef SAPWOOD_FFT

inline cufftResult cufftSetStream(cufftHandle handle, cudaStream_t) { return sapwood_cuda::fft_known(handle); }
inline cufftResult cufftSetAutoAllocation(cufftHandle handle, int) { return sapwood_cuda::fft_known(handle); }
inline cufftResult cufftSetWorkArea(cufftHandle handle, void *) { return sapwood_cuda::fft_known(handle); }
inline cufftResult cufftGetSize(cufftHandle handle, size_t *bytes) { return *bytes = 0, sapwood_cuda::fft_known(handle); }
inline cufftResult cufftEstimate1d(int, cufftType, int, size_t *bytes) { return *bytes = 0, CUFFT_SUCCESS; }
inline cufftResult cufftEstimate2d(int, int, cufftType, size_t *bytes) { return *bytes = 0, CUFFT_SUCCESS; }
inline cufftResult cufftEstimate3d(int, int, int, cufftType, size_t *bytes) { return *bytes = 0, CUFFT_SUCCESS; }
inline cufftResult cufftGetVersion(int *version) { return *version = CUFFT_VERSION, CUFFT_SUCCESS; }
