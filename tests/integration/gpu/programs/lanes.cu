// The SIMD intrinsics, DPX functions and dot products against sums in wide numbers, one lane after the other.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

#define FUNCTIONS(each, lanes)                                                                              \
    each(__vabs##lanes, true, wrap(x < 0 ? -x : x)) each(__vabsss##lanes, true, clamp(x < 0 ? -x : x))      \
    each(__vneg##lanes, true, wrap(-x)) each(__vnegss##lanes, true, clamp(-x))
#define PAIRS(each, lanes)                                                                                  \
    each(__vadd##lanes, true, wrap(x + y)) each(__vsub##lanes, true, wrap(x - y))                           \
    each(__vaddss##lanes, true, clamp(x + y)) each(__vaddus##lanes, false, clamp(x + y))                    \
    each(__vsubss##lanes, true, clamp(x - y)) each(__vsubus##lanes, false, clamp(x - y))                    \
    each(__vabsdiffs##lanes, true, wrap(llabs(x - y))) each(__vabsdiffu##lanes, false, llabs(x - y))        \
    each(__vavgs##lanes, true, x + y < 0 ? -((1 - x - y) / 2) : (x + y + 1) / 2) \
    each(__vavgu##lanes, false, (x + y + 1) / 2) each(__vhaddu##lanes, false, (x + y) / 2)                  \
    each(__vmaxs##lanes, true, x > y ? x : y) each(__vmaxu##lanes, false, x > y ? x : y)                    \
    each(__vmins##lanes, true, x < y ? x : y) each(__vminu##lanes, false, x < y ? x : y)                    \
    each(__vcmpeq##lanes, true, -(x == y)) each(__vcmpne##lanes, true, -(x != y))                           \
    each(__vcmpges##lanes, true, -(x >= y)) each(__vcmpgeu##lanes, false, -(x >= y))                        \
    each(__vcmpgts##lanes, true, -(x > y)) each(__vcmpgtu##lanes, false, -(x > y))                          \
    each(__vcmples##lanes, true, -(x <= y)) each(__vcmpleu##lanes, false, -(x <= y))                        \
    each(__vcmplts##lanes, true, -(x < y)) each(__vcmpltu##lanes, false, -(x < y))                          \
    each(__vseteq##lanes, true, x == y) each(__vsetne##lanes, true, x != y)                                 \
    each(__vsetges##lanes, true, x >= y) each(__vsetgeu##lanes, false, x >= y)                              \
    each(__vsetgts##lanes, true, x > y) each(__vsetgtu##lanes, false, x > y)                                \
    each(__vsetles##lanes, true, x <= y) each(__vsetleu##lanes, false, x <= y)                              \
    each(__vsetlts##lanes, true, x < y) each(__vsetltu##lanes, false, x < y)
#define SUMS(each, lanes)                                                                                   \
    each(__vsads##lanes, true, llabs(x - y)) each(__vsadu##lanes, false, llabs(x - y))
#define HALVES(each)                                                                                        \
    each(__vimax_s16x2, true, x > y ? x : y) each(__vimin_u16x2, false, x < y ? x : y)                      \
    each(__vimax_s16x2_relu, true, x > y ? (x > 0 ? x : 0) : (y > 0 ? y : 0))                               \
    each(__vimin_s16x2_relu, true, (x < y ? x : y) < 0 ? 0 : (x < y ? x : y))
#define MOST 200

__global__ void apply(unsigned *out, unsigned *count, unsigned a, unsigned b) {
    unsigned n = 0;
#define ONE(name, is_signed, wanted) out[n++] = name(a);
#define TWO(name, is_signed, wanted) out[n++] = name(a, b);
    FUNCTIONS(ONE, 2) FUNCTIONS(ONE, 4) PAIRS(TWO, 2) PAIRS(TWO, 4) HALVES(TWO) SUMS(TWO, 2) SUMS(TWO, 4)
    *count = n;
}

static int bits, failed;
static bool is_signed;
static long long lane(unsigned word, int at) {
    const long long value = word >> at & ((1ll << bits) - 1);
    return is_signed && value >> (bits - 1) ? value - (1ll << bits) : value;
}
static long long wrap(long long x) { return x; } // the lowest bits are taken anyway
static long long clamp(long long x) {
    const long long least = is_signed ? -(1ll << (bits - 1)) : 0, most = is_signed ? -least - 1 : (1ll << bits) - 1;
    return x < least ? least : x > most ? most : x;
}
static void compare(const char *name, unsigned a, unsigned b, unsigned found, unsigned wanted) {
    if (found != wanted && failed++ < 20) printf("%s(%08x, %08x) is %08x, not %08x\n", name, a, b, found, wanted);
}
template <class F> unsigned all_lanes(unsigned a, unsigned b, int width, bool with_sign, bool sum, F function) {
    unsigned found = 0;
    bits = width, is_signed = with_sign;
    for (int at = 0; at < 32; at += width) {
        const long long value = function(lane(a, at), lane(b, at));
        found += sum ? unsigned(value) : unsigned(value & ((1ll << width) - 1)) << at;
    }
    return found;
}

__global__ void words(int *out, int a, int b, int c) {
    bool first = false, high = false, low = false;
    const unsigned u = a, v = b, w = c;
    out[0] = __viaddmax_s32(a, b, c), out[1] = __viaddmin_u32(u, v, w), out[2] = __vimax3_s32(a, b, c);
    out[3] = __vimin3_u32(u, v, w), out[4] = __viaddmax_s32_relu(a, b, c), out[5] = __vimin_s32_relu(a, b);
    out[6] = __vibmax_s32(a, b, &first), out[7] = first;
    out[8] = __vibmin_u16x2(u, v, &high, &low), out[9] = 2 * high + low;
    out[10] = __viaddmin_s16x2(u, v, w), out[11] = __dp2a_lo(a, b, c), out[12] = __dp2a_hi(u, v, w);
    out[13] = __funnelshift_lc(u, v, w & 63), out[14] = __funnelshift_rc(u, v, w & 63), out[15] = __fns(u, v & 31, c % 9);
}
static int find_bit(unsigned mask, int base, int n) {
    int seen = 0;
    if (n == 0) return mask >> base & 1 ? base : -1;
    for (int at = base; at >= 0 && at < 32; at += n > 0 ? 1 : -1)
        if (mask >> at & 1 && ++seen == abs(n)) return at;
    return -1;
}
static void check_words(int *out, int a, int b, int c) {
    const unsigned u = a, v = b, w = c;
    const int sum = int(u + v);
    auto most = [](long long x, long long y) { return x > y ? x : y; };
    auto least = [](long long x, long long y) { return x < y ? x : y; };
    auto half = [](unsigned x, int at) { return (long long)(short)(x >> at); };
    auto byte = [](unsigned x, int at) { return (long long)(signed char)(x >> at); };
    const unsigned long long wide = (unsigned long long)v << 32 | u;
    const int shift = int(least(w & 63, 32));
    unsigned sums = 0, lesser = 0;
    for (int at = 0; at < 32; at += 16) {
        sums |= unsigned(least(short(half(u, at) + half(v, at)), half(w, at)) & 0xffff) << at;
        lesser |= unsigned(least(u >> at & 0xffff, v >> at & 0xffff)) << at;
    }
    const int wanted[] = {
        int(most(sum, c)), int(least(unsigned(sum), w)), int(most(most(a, b), c)),
        int(least(least(u, v), w)), int(most(most(sum, c), 0)), int(most(least(a, b), 0)),
        int(most(a, b)), a >= b, int(lesser), 2 * (u >> 16 <= v >> 16) + ((u & 0xffff) <= (v & 0xffff)), int(sums),
        int(unsigned(c + half(u, 0) * byte(v, 0) + half(u, 16) * byte(v, 8))),
        int(unsigned(w + (u & 0xffffull) * (v >> 16 & 0xff) + (u >> 16) * 1ull * (v >> 24))),
        int(wide << shift >> 32), int(unsigned(wide >> shift)), find_bit(u, v & 31, c % 9),
    };
    for (int i = 0; i < 16; i++) {
        char name[20];
        snprintf(name, sizeof name, "words %d", i);
        compare(name, u, v, out[i], wanted[i]);
    }
}

int main() {
    unsigned *out, *count;
    cudaMallocManaged(&out, MOST * sizeof *out);
    cudaMallocManaged(&count, sizeof *count);
    const unsigned edges[] = {0, ~0u, 0x80008000, 0x80808080, 0x7fff8000, 0x7f807f80, 0x00010001, 0xffff0001, 0x01ff8001};
    unsigned state = 12345;
    for (int turn = 0; turn < 400; turn++) {
        unsigned given[3];
        for (int i = 0; i < 3; i++) {
            state = state * 1664525u + 1013904223u;
            given[i] = turn < 81 && i < 2 ? edges[i ? turn / 9 : turn % 9] : state ^ state >> 15;
        }
        const unsigned a = given[0], b = given[1];
        apply<<<1, 1>>>(out, count, a, b);
        if (cudaDeviceSynchronize() != cudaSuccess || *count > MOST) return 1;
        unsigned n = 0;
#define WIDTH 16
#define WANTED(name, with_sign, wanted)                                                                     \
    compare(#name, a, b, out[n++], all_lanes(a, b, WIDTH, with_sign, SUM, [](long long x, long long y) { return (void)y, (long long)(wanted); }));
#define SUM false
        FUNCTIONS(WANTED, 2)
#undef WIDTH
#define WIDTH 8
        FUNCTIONS(WANTED, 4)
#undef WIDTH
#define WIDTH 16
        PAIRS(WANTED, 2)
#undef WIDTH
#define WIDTH 8
        PAIRS(WANTED, 4)
#undef WIDTH
#define WIDTH 16
        HALVES(WANTED)
#undef SUM
#define SUM true
        SUMS(WANTED, 2)
#undef WIDTH
#define WIDTH 8
        SUMS(WANTED, 4)
        if (n != *count) return 1;
        words<<<1, 1>>>((int *)out, int(a), int(b), int(given[2]));
        cudaDeviceSynchronize();
        check_words((int *)out, int(a), int(b), int(given[2]));
    }
    printf(failed ? "FAILED\n" : "PASSED\n");
    return failed != 0;
}
