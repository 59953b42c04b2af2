// Guards of types that wrap, narrow and round, and shifts by more than a type has bits.
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstring>

typedef unsigned char tiny;
typedef float real;

__global__ void wrapped(int *o, unsigned n, int off) { unsigned g = blockIdx.x * blockDim.x + threadIdx.x; unsigned i = blockIdx.x * blockDim.x + threadIdx.x + off; if (i < n) o[g] = 1; }
__global__ void wrapped_inside(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i + off < n) o[i] = 1; }
__global__ void wrapped_size(int *o, size_t n, int off) { size_t i = blockIdx.x * blockDim.x + threadIdx.x; if (i + off < n) o[i] = 1; }
__global__ void wrapped_number(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i + off < 100u) o[i] = 1; }
__global__ void hashed(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; unsigned h = i * 2654435761u; if (h < 4000000000u) o[i] = 1; }
__global__ void hashed_choice(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; unsigned h = i * 2654435761u; o[i] = h < 4000000000u ? 1 : 2; }
__global__ void narrow(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; unsigned char c = threadIdx.x + 200; if (c < 100) o[i] = 1; }
__global__ void narrow_16(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; uint16_t c = threadIdx.x + 65500; if (c < 100) o[i] = 1; }
__global__ void narrow_named(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; tiny c = threadIdx.x * 16; if (c < 100) o[i] = 1; }
__global__ void narrow_bool(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; bool c = threadIdx.x; if (c < 1) o[i] = 1; }
__global__ void narrow_equal(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; tiny c = threadIdx.x; if (c == 44) o[i] = 1; }
__global__ void rounded(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; real c = threadIdx.x + 16777216; if (c < 16777220.f) o[i] = 1; }
__global__ void rounded_int(int *o, unsigned n, int off) { int i = threadIdx.x + -0.5f; o[blockIdx.x * blockDim.x + threadIdx.x] = i; }
__global__ void leaves(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (i + off >= n) return; o[i] = 1; }
__global__ void divides(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x; if (off == 0) return; if (i < n / off) o[i] = 1; }
__global__ void rounds(int *o, unsigned n, int off) { unsigned i = blockIdx.x * blockDim.x + threadIdx.x + off; for (; i < n; i += blockDim.x * gridDim.x) o[i]++; }
__global__ void rounds_wrapped(int *o, unsigned n, int off) { for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x + off; i < n; i += blockDim.x * gridDim.x) o[i]++; }
__global__ void rounds_narrow(int *o, unsigned n, int off) { unsigned g = blockIdx.x * blockDim.x + threadIdx.x; for (tiny i = threadIdx.x; i < 250; i += 3) o[g]++; }
__global__ void rounds_float(int *o, unsigned n, int off) { unsigned g = blockIdx.x * blockDim.x + threadIdx.x; for (float i = threadIdx.x; i < 3; i += 0.1f) o[g]++; }
__global__ void rounds_falling(int *o, unsigned n, int off) { unsigned g = blockIdx.x * blockDim.x + threadIdx.x; for (int i = threadIdx.x * off; i < 3; i += 1) o[g]++; }
__device__ unsigned rotated(unsigned x, int by) { return (x << by) | (x >> (32 - by)); }
__global__ void shifted(int *o, unsigned n, int off) {
    int t = threadIdx.x, sum = -100;
    sum >>= t;
    sum += (1u << t) + (1 << (t - 5)) + (-5 >> t) + int(1ull << t) + rotated(n, t % 33);
    o[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

static int *o, failed;
template <class Wanted> void check(const char *name, int count, Wanted wanted) {
    cudaDeviceSynchronize();
    for (int g = 0; g < 1280; g++) {
        if (g < count && o[g] != wanted(unsigned(g), unsigned(g % 320))) {
            printf("%s: o[%d] is %d, not %d\n", name, g, o[g], wanted(unsigned(g), unsigned(g % 320)));
            failed = 1;
            break;
        }
    }
    memset(o, 0, 4096 * sizeof(int));
}
static unsigned left(unsigned x, long by) { return by < 0 || by > 31 ? 0 : unsigned(uint64_t(x) << by); }
static unsigned right(unsigned x, long by) { return by > 31 ? 0 : x >> by; }
#define CHECK(kernel, n, off, wanted) \
    kernel<<<4, 320>>>(o, n, off);    \
    check(#kernel, 1280, [](unsigned g, unsigned t) -> int { return wanted; });

int main() {
    cudaMallocManaged(&o, 4096 * sizeof(int));
    memset(o, 0, 4096 * sizeof(int));
    CHECK(wrapped, 100, -10, g >= 10 && g < 110)
    CHECK(wrapped_inside, 100, -10, g >= 10 && g < 110)
    CHECK(wrapped_size, 100, -10, g >= 10 && g < 110)
    CHECK(wrapped_number, 100, -10, g >= 10 && g < 110)
    CHECK(hashed, 1, 1, g * 2654435761u < 4000000000u)
    CHECK(hashed_choice, 1, 1, g * 2654435761u < 4000000000u ? 1 : 2)
    CHECK(narrow, 1, 1, (t + 200) % 256 < 100)
    CHECK(narrow_16, 1, 1, (t + 65500) % 65536 < 100)
    CHECK(narrow_named, 1, 1, t * 16 % 256 < 100)
    CHECK(narrow_bool, 1, 1, t == 0)
    CHECK(narrow_equal, 1, 1, t % 256 == 44)
    CHECK(rounded, 1, 1, t <= 2)
    CHECK(rounded_int, 1, 1, t == 0 ? 0 : int(t) - 1)
    CHECK(leaves, 100, -10, g >= 10 && g < 110)
    CHECK(divides, 100, 0, 0 * int(g))
    CHECK(divides, 100, 3, g < 33)
    CHECK(rounds, 1000, -10, g < 1000)
    CHECK(rounds_wrapped, 1000, -10, g < 1000)
    CHECK(rounds_narrow, 1, 1, [](tiny i) { int n = 0; for (; i < 250; i += 3) n++; return n; }(tiny(t)))
    CHECK(rounds_float, 1, 1, [](float i) { int n = 0; for (; i < 3; i += 0.1f) n++; return n; }(float(t)))
    CHECK(rounds_falling, 1, -2, 3 + 2 * int(t))
    CHECK(shifted, 12345, 1, int((-100 >> (t < 31 ? t : 31)) + left(1, t) + left(1, long(t) - 5) + (-5 >> (t < 31 ? t : 31)) +
                                 left(1, t) + (left(12345, t % 33) | right(12345, 32 - t % 33))))
    puts(failed ? "FAILED" : "PASSED");
    return failed;
}
