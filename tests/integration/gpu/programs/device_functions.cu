// Inline PTX of one instruction, as public programs have it, and functions that C libraries lack.
#include <stdio.h>
#include <cuda_runtime.h>

#define LANE(to)                    \
  asm volatile("mov.u32 %0, %%laneid;" \
               : "=r"(to))

__device__ __forceinline__ unsigned lanes_below() {
  unsigned mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}
__device__ unsigned bits(unsigned x, unsigned from, unsigned n) {
  unsigned result;
  asm("bfe.u32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(from), "r"(n));
  return result;
}
__device__ unsigned with_bits(unsigned x, unsigned own, unsigned from, unsigned n) {
  unsigned result;
  asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(result) : "r"(own), "r"(x), "r"(from), "r"(n));
  return result;
}
__device__ float loaded(const float *from) {
  float value;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(value) : "l"(from));
  return value;
}

// Where each thread is, asked in PTX, across a barrier.
__global__ void places(unsigned *out) {
  __shared__ unsigned lanes[128];
  unsigned lane, warp, block;
  LANE(lane);
  lanes[threadIdx.x] = lane;
  __syncthreads();
  asm("mov.u32 %0, %%warpid;" : "=r"(warp));
  asm("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  unsigned below = __popc(lanes_below());
  out[blockIdx.x * blockDim.x + threadIdx.x] = lanes[127 - threadIdx.x] + 100 * (warp != 9) + 1000 * below + 100000 * block;
}

// A block hands a value to the next one; the last one says what came.
__global__ void handed(int *flag, int *value, int *out) {
  if (threadIdx.x == 0) {
    *value += 5;
    asm volatile("membar.gl;" ::: "memory");
    asm volatile("st.release.gpu.global.s32 [%1], %0;" ::"r"(1), "l"(flag) : "memory");
  }
  if (threadIdx.x == 1) {
    int seen;
    do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
    while (!seen);
    *out = *value;
  }
}

// Several registers at once, bits of floats, and functions that are instructions.
__global__ void registers(const int4 *in, const float *bits, int4 *out, float *copied, float *functions, unsigned *whole) {
  const int i = threadIdx.x;
  unsigned a, b, c, d;
  const int4 *next = in + i;
  asm volatile("ld.cg.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(next++));
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(&out[i].z), "r"(b), "r"(a) : "memory");
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(&out[i].x), "r"(d), "r"(c) : "memory");
  float value;
  asm volatile("ld.global.b32 %0, [%1];" : "=f"(value) : "l"(bits + i));
  asm volatile("st.global.b32 [%0], %1;" ::"l"(copied + (next - in - 1)), "f"(value) : "memory");
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(value));
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(functions[2 * i]) : "f"(y), "f"(2.0f), "f"(1.0f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(functions[2 * i + 1]) : "f"(value + 8));
  int rounded;
  asm("cvt.rni.sat.s8.f32 %0, %1;" : "=r"(rounded) : "f"(value * 100));
  unsigned product;
  asm("mad.lo.u32 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(0x10001u), "r"(b));
  asm("shf.l.wrap.b32 %0, %1, %2, %3;" : "=r"(whole[2 * i]) : "r"(product), "r"(a), "r"(i));
  whole[2 * i + 1] = rounded;
}

__global__ void numbers(int *out, float *real) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(real));
  out[0] = bits(0xabcd, 4, 8);
  out[1] = with_bits(0xffffffff, 0, 8, 8);
  out[2] = __dp4a(0x01020304, 0x01010101, 5) + __dp4a(-1, 0x02020202, 0);
  out[3] = __double2hiint(1.0);
  out[4] = __hiloint2double(0x40080000, 0) == 3.0 && __double2loint(3.0) == 0;
  out[5] = __rhadd(3, 4) + __uhadd(0xffffffffu, 1u) / 0x40000000u + __usad(2u, 7u, 1u);
  out[6] = __mul64hi(-1ll << 62, 8) == -2;
  out[7] = __float2ull_rd(3.9e10f) == 38999998464ull;
  real[1] = loaded(real);
  real[2] = __int2float_rz(16777217);
  real[3] = __int2float_ru(16777217);
  real[4] = __double2float_rd(0.1) < 0.1 && __double2float_ru(0.1) > 0.1;
  real[5] = __int2float_rz(-16777217);
}

// What the C library lacks of CUDA's functions, held to what it has.
__global__ void inverses(double *worst) {
  double x = (threadIdx.x - 63.5) / 64, off = 0, s, c;
  off = fmax(off, fabs(erf(erfinv(x)) - x) + fabs(erfc(erfcinv(x + 1)) - x - 1));
  off = fmax(off, fabs(normcdf(normcdfinv(x / 2 + 0.5)) - x / 2 - 0.5) + fabs(erf((double)erfinvf(x)) - x) / 1e7);
  off = fmax(off, fabs(erfc(erfcinv(exp(30 * x - 30))) / exp(30 * x - 30) - 1));
  off = fmax(off, fabs(erfcx(25 + x / 1e12) / 0.022549572432641357 - 1));
  sincospi(x, &s, &c);
  off = fmax(off, fabs(s * s + c * c - 1) + fabs(rnorm3d(x, 2.0, 3.0) * norm4d(x, 2.0, 3.0, 0.0) - 1));
  worst[threadIdx.x] = off;
}

int main() {
  unsigned *where;
  int *out;
  float *real;
  cudaMallocManaged(&where, 512 * sizeof(unsigned));
  cudaMallocManaged(&out, 16 * sizeof(int));
  cudaMallocManaged(&real, 8 * sizeof(float));
  places<<<4, 128>>>(where);
  bool ok = cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 512; i++)
    ok = ok && where[i] == (127 - i % 128) % 32 + 100 + 1000 * (i % 32) + 100000 * (i / 128);

  out[8] = 0, out[9] = 2, out[10] = 0;
  handed<<<1, 64>>>(out + 8, out + 9, out + 10);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess && out[10] == 7;

  real[0] = 2.5f;
  numbers<<<1, 1>>>(out, real);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  const int wanted[8] = {0xbc, (int)0xffff00ff, 15 - 8, 0x3ff00000, 1, 4 + 2 + 6, 1, 1};
  for (int i = 0; i < 8; i++) ok = ok && out[i] == wanted[i];
  ok = ok && real[1] == 2.5f && real[2] == 16777216 && real[3] == 16777218 && real[4] == 1 && real[5] == -16777216;
  double *worst;
  cudaMallocManaged(&worst, 128 * sizeof(double));
  inverses<<<1, 128>>>(worst);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 128; i++) ok = ok && worst[i] < 1e-12;

  int4 *in, *swapped;
  float *bits, *copied, *functions;
  cudaMallocManaged(&in, 32 * sizeof(int4));
  cudaMallocManaged(&swapped, 32 * sizeof(int4));
  cudaMallocManaged(&bits, 32 * sizeof(float));
  cudaMallocManaged(&copied, 32 * sizeof(float));
  cudaMallocManaged(&functions, 64 * sizeof(float));
  for (int i = 0; i < 32; i++) in[i] = {i * 123457, 3 * i + 1, -i, 0x7fffffff - i}, bits[i] = (i - 4) * 0.5f;
  registers<<<1, 32>>>(in, bits, swapped, copied, functions, where);
  ok = ok && cudaDeviceSynchronize() == cudaSuccess;
  for (int i = 0; i < 32; i++) {
    ok = ok && swapped[i].x == in[i].w && swapped[i].y == in[i].z && swapped[i].z == in[i].y && swapped[i].w == in[i].x;
    const double value = (i - 4) * 0.5, power = 2 * exp2(value) + 1, inverse = 1 / (value + 8);
    ok = ok && copied[i] == bits[i] && fabs(functions[2 * i] - power) < 1e-6 * power && fabs(functions[2 * i + 1] - inverse) < 1e-6;
    const unsigned product = unsigned(in[i].x) * 0x10001u + unsigned(in[i].y);
    const unsigned long long both = (unsigned long long)unsigned(in[i].x) << 32 | product;
    ok = ok && where[2 * i] == unsigned(both << i >> 32);
    const int rounded = (i - 4) * 50;
    ok = ok && int(where[2 * i + 1]) == (rounded > 127 ? 127 : rounded < -128 ? -128 : rounded);
  }
  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
