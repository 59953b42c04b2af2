// cuRAND's generators for the host.
#pragma once

#include "curand_kernel.h"

#define CURAND_H_
#define CURAND_VERSION 10300
#define CURAND_VER_MAJOR 10
#define CURAND_VER_MINOR 3
#define CURAND_VER_PATCH 0
#define CURANDAPI

enum curandStatus {
    CURAND_STATUS_SUCCESS = 0, CURAND_STATUS_VERSION_MISMATCH = 100, CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102, CURAND_STATUS_TYPE_ERROR = 103, CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105, CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201, CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203, CURAND_STATUS_ARCH_MISMATCH = 204, CURAND_STATUS_INTERNAL_ERROR = 999
};
typedef curandStatus curandStatus_t;
enum curandRngType {
    CURAND_RNG_TEST = 0, CURAND_RNG_PSEUDO_DEFAULT = 100, CURAND_RNG_PSEUDO_XORWOW = 101, CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141, CURAND_RNG_PSEUDO_MT19937 = 142, CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    CURAND_RNG_QUASI_DEFAULT = 200, CURAND_RNG_QUASI_SOBOL32 = 201, CURAND_RNG_QUASI_SCRAMBLED_SOBOL32 = 202,
    CURAND_RNG_QUASI_SOBOL64 = 203, CURAND_RNG_QUASI_SCRAMBLED_SOBOL64 = 204
};
typedef curandRngType curandRngType_t;
enum curandOrdering {
    CURAND_ORDERING_PSEUDO_BEST = 100, CURAND_ORDERING_PSEUDO_DEFAULT = 101, CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103, CURAND_ORDERING_PSEUDO_DYNAMIC = 104, CURAND_ORDERING_QUASI_DEFAULT = 201
};
typedef curandOrdering curandOrdering_t;
typedef struct curandGenerator_st *curandGenerator_t;

struct curandGenerator_st {
    curandRngType type;
    unsigned long long seed = 0, offset = 0;
    curandStateXORWOW wow[64]; // numbers come from these in turn
    curandStatePhilox4_32_10 philox;
    bool ready = false;
    unsigned turn = 0;
    unsigned next() {
        if (!ready) {
            ready = true, turn = 0;
            if (type == CURAND_RNG_PSEUDO_PHILOX4_32_10) curand_init(seed, 0, offset, &philox);
            else
                for (unsigned i = 0; i < 64; i++) curand_init(seed, i, offset / 64, &wow[i]);
        }
        return type == CURAND_RNG_PSEUDO_PHILOX4_32_10 ? philox.next() : wow[turn++ % 64].next();
    }
};
namespace sapwood_cuda {
template <class T, class Make> curandStatus_t draw(curandGenerator_t generator, T *to, size_t n, Make make) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    if (state()) return CURAND_STATUS_PREEXISTING_FAILURE;
    if (n && !memory().holds(to, n * sizeof(T))) return CURAND_STATUS_LAUNCH_FAILURE;
    for (size_t i = 0; i < n; i++) to[i] = make();
    return CURAND_STATUS_SUCCESS;
}
template <class T, class Two> curandStatus_t draw_pairs(curandGenerator_t generator, T *to, size_t n, Two two) {
    if (n % 2) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
    bool second = false;
    decltype(two()) both{};
    return draw(generator, to, n, [&] {
        if (!second) both = two();
        second = !second;
        return second ? both.x : both.y;
    });
}
}
inline curandStatus_t curandCreateGenerator(curandGenerator_t *generator, curandRngType_t type) {
    if (type >= CURAND_RNG_QUASI_DEFAULT) return CURAND_STATUS_TYPE_ERROR; // quasi-random numbers are not here
    *generator = new curandGenerator_st{};
    (*generator)->type = type;
    return CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandCreateGeneratorHost(curandGenerator_t *generator, curandRngType_t type) {
    return curandCreateGenerator(generator, type);
}
inline curandStatus_t curandDestroyGenerator(curandGenerator_t generator) { return delete generator, CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
    return generator->seed = seed, generator->ready = false, CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
    return generator->offset = offset, generator->ready = false, CURAND_STATUS_SUCCESS;
}
inline curandStatus_t curandSetGeneratorOrdering(curandGenerator_t, curandOrdering_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandSetStream(curandGenerator_t, cudaStream_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGenerateSeeds(curandGenerator_t) { return CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGetVersion(int *version) { return *version = CURAND_VERSION, CURAND_STATUS_SUCCESS; }
inline curandStatus_t curandGenerate(curandGenerator_t g, unsigned *to, size_t n) {
    return sapwood_cuda::draw(g, to, n, [&] { return g->next(); });
}
inline curandStatus_t curandGenerateLongLong(curandGenerator_t g, unsigned long long *to, size_t n) {
    return sapwood_cuda::draw(g, to, n, [&] { return (unsigned long long)g->next() << 32 | g->next(); });
}
inline curandStatus_t curandGenerateUniform(curandGenerator_t g, float *to, size_t n) {
    return sapwood_cuda::draw(g, to, n, [&] { return sapwood_cuda::uniform_of(g->next()); });
}
inline curandStatus_t curandGenerateUniformDouble(curandGenerator_t g, double *to, size_t n) {
    return sapwood_cuda::draw(g, to, n, [&] {
        const unsigned x = g->next(), y = g->next();
        return sapwood_cuda::uniform_of(x, y);
    });
}
namespace sapwood_cuda {
inline float2 next_normals(curandGenerator_t g) {
    const unsigned x = g->next(), y = g->next();
    return normals_of(x, y);
}
inline double2 next_wide_normals(curandGenerator_t g) {
    const unsigned a = g->next(), b = g->next(), c = g->next(), d = g->next();
    return normals_of(a, b, c, d);
}
}
inline curandStatus_t curandGenerateNormal(curandGenerator_t g, float *to, size_t n, float mean, float deviation) {
    return sapwood_cuda::draw_pairs(g, to, n, [&] {
        const float2 v = sapwood_cuda::next_normals(g);
        return float2{mean + deviation * v.x, mean + deviation * v.y};
    });
}
inline curandStatus_t curandGenerateNormalDouble(curandGenerator_t g, double *to, size_t n, double mean, double deviation) {
    return sapwood_cuda::draw_pairs(g, to, n, [&] {
        const double2 v = sapwood_cuda::next_wide_normals(g);
        return double2{mean + deviation * v.x, mean + deviation * v.y};
    });
}
inline curandStatus_t curandGenerateLogNormal(curandGenerator_t g, float *to, size_t n, float mean, float deviation) {
    const curandStatus_t status = curandGenerateNormal(g, to, n, mean, deviation);
    for (size_t i = 0; !status && i < n; i++) to[i] = expf(to[i]);
    return status;
}
inline curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t g, double *to, size_t n, double mean, double deviation) {
    const curandStatus_t status = curandGenerateNormalDouble(g, to, n, mean, deviation);
    for (size_t i = 0; !status && i < n; i++) to[i] = exp(to[i]);
    return status;
}
inline curandStatus_t curandGeneratePoisson(curandGenerator_t g, unsigned *to, size_t n, double mean) {
    return sapwood_cuda::draw(g, to, n, [&] {
        return sapwood_cuda::poisson(mean, [&] {
            const unsigned x = g->next(), y = g->next();
            return sapwood_cuda::uniform_of(x, y);
        });
    });
}
