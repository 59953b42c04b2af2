// Random numbers of kernels: curand_init, curand, curand_uniform, curand_normal and their like.
#pragma once

#include "sapwood/random_numbers.h"

struct curandStateXORWOW : sapwood_cuda::XorWow {
    float extra;
    double extra_double;
    int flags; // 1: there is a normal number left, 2: one of double precision
};
struct curandStatePhilox4_32_10 : sapwood_cuda::Philox {
    float extra;
    double extra_double;
    int flags;
};
typedef curandStateXORWOW curandStateXORWOW_t;
typedef curandStateXORWOW curandState_t;
typedef curandStateXORWOW curandState;
typedef curandStatePhilox4_32_10 curandStatePhilox4_32_10_t;
// Other generators give the numbers of XORWOW.
typedef curandStateXORWOW curandStateMRG32k3a;
typedef curandStateXORWOW curandStateMRG32k3a_t;

static inline void skipahead(unsigned long long n, curandStateXORWOW *state) { sapwood_cuda::skip(*state, n, 0); }
static inline void skipahead_sequence(unsigned long long n, curandStateXORWOW *state) {
    sapwood_cuda::skip(*state, n, sapwood_cuda::log_of_sequence);
}
static inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset,
                               curandStateXORWOW *state) {
    const unsigned s0 = unsigned(seed) ^ 0xaad26b49u, s1 = unsigned(seed >> 32) ^ 0xf7dcefddu;
    const unsigned t0 = 1099087573u * s0, t1 = 2591861531u * s1;
    state->d = 6615241u + t1 + t0;
    state->v0 = 123456789u + t0, state->v1 = 362436069u ^ t0, state->v2 = 521288629u + t1;
    state->v3 = 88675123u ^ t1, state->v4 = 5783321u + t0;
    state->flags = 0, state->extra = 0, state->extra_double = 0;
    skipahead_sequence(sequence, state);
    skipahead(offset, state);
}
static inline void skipahead(unsigned long long n, curandStatePhilox4_32_10 *state) {
    const unsigned rest = unsigned(n & 3) + state->used;
    state->add((n >> 2) + (rest >> 2));
    state->used = rest & 3;
    state->rounds(state->counter, state->key, state->numbers);
}
static inline void skipahead_sequence(unsigned long long n, curandStatePhilox4_32_10 *state) {
    state->add_sequences(n);
    state->rounds(state->counter, state->key, state->numbers);
}
static inline void curand_init(unsigned long long seed, unsigned long long sequence, unsigned long long offset,
                               curandStatePhilox4_32_10 *state) {
    for (int i = 0; i < 4; i++) state->counter[i] = 0;
    state->key[0] = unsigned(seed), state->key[1] = unsigned(seed >> 32);
    state->used = 0, state->flags = 0, state->extra = 0, state->extra_double = 0;
    state->add_sequences(sequence);
    skipahead(offset, state);
}

template <class State> static inline unsigned curand(State *state) { return state->next(); }
template <class State> static inline uint4 curand4(State *state) {
    uint4 found;
    found.x = curand(state), found.y = curand(state), found.z = curand(state), found.w = curand(state);
    return found;
}
template <class State> static inline float curand_uniform(State *state) { return sapwood_cuda::uniform_of(curand(state)); }
template <class State> static inline float4 curand_uniform4(State *state) {
    const uint4 x = curand4(state);
    return {sapwood_cuda::uniform_of(x.x), sapwood_cuda::uniform_of(x.y), sapwood_cuda::uniform_of(x.z),
            sapwood_cuda::uniform_of(x.w)};
}
template <class State> static inline double curand_uniform_double(State *state) {
    const unsigned x = curand(state), y = curand(state);
    return sapwood_cuda::uniform_of(x, y);
}
template <class State> static inline double2 curand_uniform2_double(State *state) {
    double2 found;
    found.x = curand_uniform_double(state), found.y = curand_uniform_double(state);
    return found;
}
template <class State> static inline float2 curand_normal2(State *state) {
    const unsigned x = curand(state), y = curand(state);
    return sapwood_cuda::normals_of(x, y);
}
template <class State> static inline float4 curand_normal4(State *state) {
    const float2 a = curand_normal2(state), b = curand_normal2(state);
    return {a.x, a.y, b.x, b.y};
}
template <class State> static inline float curand_normal(State *state) {
    if (state->flags & 1) return state->flags &= ~1, state->extra;
    const float2 both = curand_normal2(state);
    state->extra = both.y, state->flags |= 1;
    return both.x;
}
template <class State> static inline double2 curand_normal2_double(State *state) {
    const unsigned a = curand(state), b = curand(state), c = curand(state), d = curand(state);
    return sapwood_cuda::normals_of(a, b, c, d);
}
template <class State> static inline double curand_normal_double(State *state) {
    if (state->flags & 2) return state->flags &= ~2, state->extra_double;
    const double2 both = curand_normal2_double(state);
    state->extra_double = both.y, state->flags |= 2;
    return both.x;
}
template <class State> static inline float curand_log_normal(State *state, float mean, float deviation) {
    return expf(mean + deviation * curand_normal(state));
}
template <class State> static inline double curand_log_normal_double(State *state, double mean, double deviation) {
    return exp(mean + deviation * curand_normal_double(state));
}
template <class State> static inline unsigned curand_poisson(State *state, double mean) {
    return sapwood_cuda::poisson(mean, [=] { return curand_uniform_double(state); });
}
