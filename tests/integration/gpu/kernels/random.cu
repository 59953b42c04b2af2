// Random numbers of kernels and of the host.
#include <cuda_runtime.h>
#include <curand.h>
#include <curand_kernel.h>

template <class State>
__global__ void first_numbers(unsigned *out, unsigned long long seed, unsigned long long sequence, unsigned long long offset, int n) {
  State state;
  curand_init(seed, sequence, offset, &state);
  for (int i = 0; i < n; i++) out[i] = curand(&state);
}
__global__ void prepare(curandState *states, unsigned long long seed) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  curand_init(seed, i, 0, &states[i]);
}
__global__ void draws(curandState *states, float *uniform, float *normal, double *wide, unsigned *poisson, int each) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  curandState own = states[i];
  for (int k = 0; k < each; k++) {
    uniform[i * each + k] = curand_uniform(&own);
    normal[i * each + k] = curand_normal(&own);
    wide[i * each + k] = curand_normal_double(&own);
    poisson[i * each + k] = curand_poisson(&own, 3.0);
  }
  states[i] = own;
}
// 2^67 numbers, as a whole sequence and as sixteen parts of it.
__global__ void long_jumps(unsigned *out) {
  curandState a, b;
  curand_init(5, 1, 7, &a);
  curand_init(5, 0, 7, &b);
  for (int k = 0; k < 16; k++) skipahead(1ull << 63, &b);
  out[0] = curand(&a), out[1] = curand(&b);
  curandStatePhilox4_32_10_t p, q;
  curand_init(5, 2, 9, &p);
  curand_init(5, 0, 0, &q);
  for (int k = 0; k < 8; k++) skipahead(1ull << 63, &q); // 2^66
  skipahead_sequence(1, &q);
  for (int k = 0; k < 9; k++) curand(&q);
  out[2] = curand(&p), out[3] = curand(&q);
}

extern "C" int first_numbers_run(unsigned *wow, unsigned *philox, unsigned long long seed, unsigned long long sequence,
                                 unsigned long long offset, long n) {
  first_numbers<curandState><<<1, 1>>>(wow, seed, sequence, offset, n);
  first_numbers<curandStatePhilox4_32_10_t><<<1, 1>>>(philox, seed, sequence, offset, n);
  return cudaDeviceSynchronize();
}
extern "C" int draws_run(float *uniform, float *normal, double *wide, unsigned *poisson, long threads, long each) {
  curandState *states;
  cudaMalloc(&states, threads * sizeof *states);
  prepare<<<threads / 64, 64>>>(states, 1234);
  draws<<<threads / 64, 64>>>(states, uniform, normal, wide, poisson, each);
  cudaFree(states);
  return cudaDeviceSynchronize();
}
extern "C" int long_jumps_run(unsigned *out) {
  long_jumps<<<1, 1>>>(out);
  return cudaDeviceSynchronize();
}
extern "C" int host_run(long type, unsigned long long seed, unsigned *words, float *uniform, double *wide, float *normal, long n) {
  curandGenerator_t generator;
  if (curandCreateGenerator(&generator, curandRngType_t(type)) != CURAND_STATUS_SUCCESS) return 1;
  curandSetPseudoRandomGeneratorSeed(generator, seed);
  int bad = curandGenerate(generator, words, n) || curandGenerateUniform(generator, uniform, n) ||
            curandGenerateUniformDouble(generator, wide, n) || curandGenerateNormal(generator, normal, n, 2.0f, 0.5f);
  bad = bad || curandGenerateNormal(generator, normal, 3, 0, 1) != CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  curandDestroyGenerator(generator);
  return bad;
}
