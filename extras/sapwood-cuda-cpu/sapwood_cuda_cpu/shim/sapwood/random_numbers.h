// cuRAND's generators XORWOW and Philox4x32-10, and what is made of their numbers.
#pragma once

#include <cmath>
#include <cstdint>

#include "../cuda_runtime.h"

namespace sapwood_cuda {

// Marsaglia's generator with five words and a counter.
struct XorWow {
    unsigned v0, v1, v2, v3, v4, d;
    unsigned next() {
        const unsigned t = v0 ^ (v0 >> 2);
        v0 = v1, v1 = v2, v2 = v3, v3 = v4;
        v4 = (v4 ^ (v4 << 4)) ^ (t ^ (t << 1));
        d += 362437;
        return v4 + d;
    }
};

// Steps of XORWOW's words are linear over bits: many are a product of matrices.
class Jump {
  public:
    static Jump step() {
        Jump found;
        for (int i = 0; i < 160; i++) {
            XorWow one{0, 0, 0, 0, 0, 0};
            (&one.v0)[i / 32] = 1u << (i % 32);
            one.next();
            for (int k = 0; k < 5; k++) found.column_[i][k] = (&one.v0)[k];
        }
        return found;
    }
    Jump twice() const {
        Jump found;
        for (int i = 0; i < 160; i++) apply(column_[i], found.column_[i]);
        return found;
    }
    void apply(XorWow &state) const {
        unsigned out[5];
        apply(&state.v0, out);
        for (int k = 0; k < 5; k++) (&state.v0)[k] = out[k];
    }

  private:
    void apply(const unsigned *in, unsigned *out) const {
        unsigned sum[5] = {0, 0, 0, 0, 0};
        for (int word = 0; word < 5; word++)
            for (unsigned rest = in[word]; rest; rest &= rest - 1) {
                const unsigned *column = column_[32 * word + __builtin_ctz(rest)];
                for (int k = 0; k < 5; k++) sum[k] ^= column[k];
            }
        for (int k = 0; k < 5; k++) out[k] = sum[k];
    }
    unsigned column_[160][5];
};
// 2^k steps, for k from 0 to 130.
struct Jumps {
    Jump of[131];
    Jumps() {
        of[0] = Jump::step();
        for (int k = 1; k < 131; k++) of[k] = of[k - 1].twice();
    }
    static const Jumps &all() {
        static const Jumps jumps;
        return jumps;
    }
};
constexpr int log_of_sequence = 67; // numbers of a sequence of XORWOW, and of Philox 66

inline void skip(XorWow &state, unsigned long long n, int shift) {
    if (shift == 0) state.d += 362437u * unsigned(n); // a sequence is a multiple of 2^32 numbers
    for (; n; n >>= 1, shift++)
        if (n & 1) Jumps::all().of[shift].apply(state);
}

// Salmon and others' generator: ten rounds on a counter.
struct Philox {
    unsigned counter[4], key[2], numbers[4];
    unsigned used;
    static void rounds(const unsigned *counter, const unsigned *key, unsigned *out) {
        unsigned c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
        for (int i = 0; i < 10; i++) {
            const unsigned long long a = 0xD2511F53ull * c0, b = 0xCD9E8D57ull * c2;
            c0 = unsigned(b >> 32) ^ c1 ^ k0, c2 = unsigned(a >> 32) ^ c3 ^ k1;
            c1 = unsigned(b), c3 = unsigned(a);
            k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
        }
        out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
    }
    void add(unsigned long long n) { // blocks of four numbers
        const unsigned long long low = counter[0] | (unsigned long long)counter[1] << 32, sum = low + n;
        counter[0] = unsigned(sum), counter[1] = unsigned(sum >> 32);
        if (sum < low) add_sequences(1);
    }
    void add_sequences(unsigned long long n) {
        const unsigned long long sum = (counter[2] | (unsigned long long)counter[3] << 32) + n;
        counter[2] = unsigned(sum), counter[3] = unsigned(sum >> 32);
    }
    unsigned next() {
        const unsigned found = numbers[used++];
        if (used == 4) used = 0, add(1), rounds(counter, key, numbers);
        return found;
    }
};

inline float uniform_of(unsigned x) { return float(x) * 2.3283064e-10f + 2.3283064e-10f / 2; }
inline double uniform_of(unsigned x, unsigned y) {
    const unsigned long long z = (unsigned long long)x ^ ((unsigned long long)y << (53 - 32));
    return double(z) * 1.1102230246251565e-16 + 1.1102230246251565e-16 / 2;
}
inline float2 normals_of(unsigned x, unsigned y) { // by Box and Muller
    const float u = float(x) * 2.3283064e-10f + 2.3283064e-10f / 2;
    const float v = float(y) * 1.46291807e-9f + 1.46291807e-9f / 2, s = std::sqrt(-2 * std::log(u));
    return {std::sin(v) * s, std::cos(v) * s};
}
inline double2 normals_of(unsigned x0, unsigned x1, unsigned y0, unsigned y1) {
    const double u = uniform_of(x0, x1), v = 2 * uniform_of(y0, y1), s = std::sqrt(-2 * std::log(u));
    return {std::sin(v * M_PI) * s, std::cos(v * M_PI) * s};
}

// Knuth's for small means; a rounded normal number for large ones, as cuRAND's.
template <class Uniform> unsigned poisson(double mean, Uniform uniform) {
    if (mean > 64) {
        const double x = std::sqrt(mean) * ::normcdfinv(uniform()) + mean + 0.5;
        return x < 0 ? 0 : unsigned(x);
    }
    unsigned found = 0;
    for (double product = uniform(); product > std::exp(-mean); product *= uniform()) found++;
    return found;
}

} // namespace sapwood_cuda
