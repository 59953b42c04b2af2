// Conversions of 8-bit floats, of single numbers, pairs and fours.
#include <cuda_fp8.h>
#include <cuda_runtime.h>

template <class T> __global__ void from_numbers(const double *in, unsigned char *out, int n, __nv_fp8_interpretation_t kind) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const double x = in[i];
  out[i] = T(x).__x;
  out[n + i] = T(float(x)).__x;
  out[2 * n + i] = T(__float2half(float(x))).__x;
  out[3 * n + i] = T(__float2bfloat16(float(x))).__x;
  out[4 * n + i] = __nv_cvt_double_to_fp8(x, __NV_NOSAT, kind);
}
template <class T> __global__ void to_numbers(float *out, float *halves, int *whole, unsigned char *small, bool *some) {
  const int i = threadIdx.x;
  T x;
  x.__x = (unsigned char)i;
  out[i] = float(x);
  halves[i] = __half2float(__half(x));
  whole[i] = int(x);
  small[i] = (unsigned char)x;
  some[i] = bool(x);
}
template <class T2, class T4> __global__ void groups(const float *in, unsigned *out, float *back) {
  const int i = threadIdx.x;
  const float4 v = {in[4 * i], in[4 * i + 1], in[4 * i + 2], in[4 * i + 3]};
  const T4 four(v);
  const T4 halves(__floats2half2_rn(v.x, v.y), __floats2half2_rn(v.z, v.w));
  const T2 two(float2{v.z, v.w});
  out[i] = four.__x;
  out[64 + i] = halves.__x;
  out[128 + i] = two.__x;
  const float4 f = float4(four);
  const float2 s = __half22float2(__half2(two));
  back[6 * i] = f.x, back[6 * i + 1] = f.y, back[6 * i + 2] = f.z, back[6 * i + 3] = f.w;
  back[6 * i + 4] = s.x, back[6 * i + 5] = s.y;
}

#define BOTH(name, T, T2, T4, kind)                                                        \
  extern "C" int from_##name(const double *in, unsigned char *out, long n) {               \
    from_numbers<T><<<(n + 63) / 64, 64>>>(in, out, int(n), kind);                         \
    return cudaDeviceSynchronize();                                                        \
  }                                                                                        \
  extern "C" int to_##name(float *out, float *halves, int *whole, unsigned char *small, bool *some) { \
    to_numbers<T><<<1, 256>>>(out, halves, whole, small, some);                            \
    return cudaDeviceSynchronize();                                                        \
  }                                                                                        \
  extern "C" int groups_##name(const float *in, unsigned *out, float *back) {              \
    groups<T2, T4><<<1, 64>>>(in, out, back);                                              \
    return cudaDeviceSynchronize();                                                        \
  }
BOTH(e4m3, __nv_fp8_e4m3, __nv_fp8x2_e4m3, __nv_fp8x4_e4m3, __NV_E4M3)
BOTH(e5m2, __nv_fp8_e5m2, __nv_fp8x2_e5m2, __nv_fp8x4_e5m2, __NV_E5M2)
