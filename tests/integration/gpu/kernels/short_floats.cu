// Functions of 16-bit floats, applied to all values of a type and to pairs of chosen ones.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

template <class T> __device__ T of(unsigned short bits);
template <> __device__ __half of<__half>(unsigned short bits) { return __ushort_as_half(bits); }
template <> __device__ __nv_bfloat16 of<__nv_bfloat16>(unsigned short bits) { return __ushort_as_bfloat16(bits); }
__device__ unsigned short bits_of(__half x) { return __half_as_ushort(x); }
__device__ unsigned short bits_of(__nv_bfloat16 x) { return __bfloat16_as_ushort(x); }

template <class T> __global__ void to_floats(const unsigned short *in, float *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = float(of<T>(in[i]));
}
__global__ void half_from_doubles(const double *in, unsigned short *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = float(in[i]);
  out[i] = bits_of(__double2half(in[i]));
  out[n + i] = bits_of(__float2half_rn(x));
  out[2 * n + i] = bits_of(__float2half_rz(x));
  out[3 * n + i] = bits_of(__float2half_ru(x));
  out[4 * n + i] = bits_of(__float2half_rd(x));
}
__global__ void bfloat_from_doubles(const double *in, unsigned short *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float x = float(in[i]);
  out[i] = bits_of(__double2bfloat16(in[i]));
  out[n + i] = bits_of(__float2bfloat16_rn(x));
  out[2 * n + i] = bits_of(__float2bfloat16_rz(x));
  out[3 * n + i] = bits_of(__float2bfloat16_ru(x));
  out[4 * n + i] = bits_of(__float2bfloat16_rd(x));
}
__global__ void half_integers(const long long *in, unsigned short *out, const unsigned short *back, long long *whole, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = bits_of(__ll2half_rn(in[i]));
  out[n + i] = bits_of(__ll2half_rz(in[i]));
  out[2 * n + i] = bits_of(__ll2half_ru(in[i]));
  out[3 * n + i] = bits_of(__ll2half_rd(in[i]));
  __half h = of<__half>(back[i]);
  whole[i] = __half2int_rn(h);
  whole[n + i] = __half2int_rz(h);
  whole[2 * n + i] = __half2short_ru(h);
  whole[3 * n + i] = __half2ushort_rd(h);
}
__global__ void bfloat_integers(const long long *in, unsigned short *out, const unsigned short *back, long long *whole, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = bits_of(__ll2bfloat16_rn(in[i]));
  out[n + i] = bits_of(__ll2bfloat16_rz(in[i]));
  out[2 * n + i] = bits_of(__ll2bfloat16_ru(in[i]));
  out[3 * n + i] = bits_of(__ll2bfloat16_rd(in[i]));
  __nv_bfloat16 h = of<__nv_bfloat16>(back[i]);
  whole[i] = __bfloat162int_rn(h);
  whole[n + i] = __bfloat162int_rz(h);
  whole[2 * n + i] = __bfloat162short_ru(h);
  whole[3 * n + i] = __bfloat162ushort_rd(h);
}

template <class T>
__global__ void arithmetic(const unsigned short *a, const unsigned short *b, const unsigned short *c, unsigned short *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  T x = of<T>(a[i]), y = of<T>(b[i]), z = of<T>(c[i]), sum = x;
  sum += y;
  out[i] = bits_of(sum);
  out[n + i] = bits_of(x - y);
  out[2 * n + i] = bits_of(x * y);
  out[3 * n + i] = bits_of(x / y);
  out[4 * n + i] = bits_of(__hfma(x, y, z));
  out[5 * n + i] = bits_of(hsqrt(x));
  out[6 * n + i] = bits_of(__hmax(x, y));
  out[7 * n + i] = bits_of(__hmin_nan(x, y));
  out[8 * n + i] = bits_of(__hadd_sat(x, y));
  out[9 * n + i] = (x < y) | (x <= y) << 1 | (x == y) << 2 | (x != y) << 3 | __hne(x, y) << 4 | __hltu(x, y) << 5 |
                   __hequ(x, y) << 6 | __hisnan(x) << 7 | (__hisinf(x) != 0) << 8;
}

// Pairs, and 16-bit values through shared memory, shuffles and atomic operations.
__global__ void pairs(const unsigned short *in, unsigned short *out, float *total, int n) {
  __shared__ half2 held[128];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  half2 v = __halves2half2(of<__half>(in[2 * i]), of<__half>(in[2 * i + 1]));
  held[threadIdx.x] = __hfma2(v, __float2half2_rn(2.0f), make_half2(__float2half(1.0f), 0.5f));
  __syncthreads();
  half2 w = __lowhigh2highlow(held[127 - threadIdx.x]);
  out[2 * i] = bits_of(__low2half(w));
  out[2 * i + 1] = bits_of(__high2half(w));
  float2 f = __half22float2(w);
  atomicAdd(total, f.x + f.y);
}
__global__ void lanes(const unsigned short *in, unsigned short *out, __half *sum, __half2 *both, __nv_bfloat16 *brain) {
  __half v = of<__half>(in[threadIdx.x]);
  for (int d = 16; d > 0; d /= 2) v = __hadd(v, __shfl_xor_sync(0xffffffffu, v, d));
  out[threadIdx.x] = bits_of(v);
  atomicAdd(sum, __half(1.0f));
  atomicAdd(both, __floats2half2_rn(1.0f, 2.0f));
  atomicAdd(brain, __nv_bfloat16(0.5f));
}

static unsigned blocks(int n) { return (n + 127) / 128; }
extern "C" int to_floats_run(const unsigned short *in, float *half, float *brain, long n) {
  to_floats<__half><<<blocks(n), 128>>>(in, half, n);
  to_floats<__nv_bfloat16><<<blocks(n), 128>>>(in, brain, n);
  return cudaDeviceSynchronize();
}
extern "C" int from_doubles_run(const double *in, unsigned short *half, unsigned short *brain, long n) {
  half_from_doubles<<<blocks(n), 128>>>(in, half, n);
  bfloat_from_doubles<<<blocks(n), 128>>>(in, brain, n);
  return cudaDeviceSynchronize();
}
extern "C" int integers_run(const long long *in, unsigned short *half, unsigned short *brain, const unsigned short *back,
                            long long *whole, long long *whole_brain, long n) {
  half_integers<<<blocks(n), 128>>>(in, half, back, whole, n);
  bfloat_integers<<<blocks(n), 128>>>(in, brain, back, whole_brain, n);
  return cudaDeviceSynchronize();
}
extern "C" int arithmetic_run(const unsigned short *a, const unsigned short *b, const unsigned short *c, unsigned short *half,
                              unsigned short *brain, long n) {
  arithmetic<__half><<<blocks(n), 128>>>(a, b, c, half, n);
  arithmetic<__nv_bfloat16><<<blocks(n), 128>>>(a, b, c, brain, n);
  return cudaDeviceSynchronize();
}
extern "C" int pairs_run(const unsigned short *in, unsigned short *out, float *total, long n) {
  pairs<<<n / 256, 128>>>(in, out, total, n);
  return cudaDeviceSynchronize();
}
extern "C" int lanes_run(const unsigned short *in, unsigned short *out, __half *sum, __half2 *both, __nv_bfloat16 *brain) {
  lanes<<<1, 32>>>(in, out, sum, both, brain);
  return cudaDeviceSynchronize();
}
