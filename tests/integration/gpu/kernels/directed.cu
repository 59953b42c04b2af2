// Arithmetic with a direction of rounding, beside what the processor gives in that mode.
#include <cfenv>
#include <cmath>
#include <cuda_runtime.h>

#define SAME(T, how, prefix, fma_name)                                                           \
  out[0 * n + i] = prefix##add_##how(x, y);                                                      \
  out[1 * n + i] = prefix##sub_##how(x, y);                                                      \
  out[2 * n + i] = prefix##mul_##how(x, y);                                                      \
  out[3 * n + i] = prefix##div_##how(x, y);                                                      \
  out[4 * n + i] = prefix##rcp_##how(x);                                                         \
  out[5 * n + i] = prefix##sqrt_##how(fabs(x));                                                  \
  out[6 * n + i] = fma_name##_##how(x, y, z);
#define KERNEL(T, name, how, prefix, fma_name)                                                   \
  __global__ void name(const T *a, const T *b, const T *c, T *out, int n) {                      \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                               \
    if (i >= n) return;                                                                          \
    const T x = a[i], y = b[i], z = c[i];                                                        \
    SAME(T, how, prefix, fma_name)                                                               \
  }
#define KERNELS(T, prefix, fma_name)                                                             \
  KERNEL(T, T##_rn, rn, prefix, fma_name)                                                        \
  KERNEL(T, T##_rz, rz, prefix, fma_name)                                                        \
  KERNEL(T, T##_ru, ru, prefix, fma_name)                                                        \
  KERNEL(T, T##_rd, rd, prefix, fma_name)
KERNELS(float, __f, __fmaf)
KERNELS(double, __d, __fma)

template <class T> void wanted(const T *a, const T *b, const T *c, T *out, long n) {
  const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
  for (int mode : modes) {
    fesetround(mode);
    for (long i = 0; i < n; i++) {
      volatile T x = a[i], y = b[i], z = c[i], one = 1, size = std::fabs(x);
      volatile T found[] = {x + y, x - y, x * y, x / y, one / x, std::sqrt(size), std::fma(x, y, z)};
      for (int k = 0; k < 7; k++) out[k * n + i] = found[k];
    }
    out += 7 * n;
  }
  fesetround(FE_TONEAREST);
}
#define RUN(T)                                                                                   \
  extern "C" int T##_run(const T *a, const T *b, const T *c, T *out, T *reference, long n) {     \
    const unsigned blocks = (n + 127) / 128;                                                     \
    T##_rn<<<blocks, 128>>>(a, b, c, out, n);                                                    \
    T##_rz<<<blocks, 128>>>(a, b, c, out + 7 * n, n);                                            \
    T##_ru<<<blocks, 128>>>(a, b, c, out + 14 * n, n);                                           \
    T##_rd<<<blocks, 128>>>(a, b, c, out + 21 * n, n);                                           \
    wanted(a, b, c, reference, n);                                                               \
    return cudaDeviceSynchronize();                                                              \
  }
RUN(float)
RUN(double)

__global__ void others(const double *in, double *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double v[3] = {in[i], 2, -3};
  const float w[3] = {float(in[i]), 2, -3};
  out[i] = cyl_bessel_i0(in[i]);
  out[n + i] = cyl_bessel_i1(in[i]);
  out[2 * n + i] = norm(3, v);
  out[3 * n + i] = rnormf(3, w);
  out[4 * n + i] = fdividef(w[0], 3.0f);
  out[5 * n + i] = double(__double2ull_rn(in[0] - in[0] == 0 ? __builtin_nan("") : 0));
}
extern "C" int others_run(const double *in, double *out, long n) {
  others<<<(n + 127) / 128, 128>>>(in, out, n);
  return cudaDeviceSynchronize();
}
