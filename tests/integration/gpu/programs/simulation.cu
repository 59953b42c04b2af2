// HeCBench-like mixture: structs of arrays, lambdas in host code, operators of vectors, curried launches.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cusolverDn.h> // unused, as are many includes of real programs
#include <cusolverDn.h>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <string>
#include <type_traits>
#include <vector>
#include <cuda.h>
#include <vector_types.h>

#define GPU_CHECK(ans) { gpuAssert((ans), __FILE__, __LINE__); }
inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true) {
  if (code != cudaSuccess) {
    fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
    if (abort) exit(code);
  }
}
#define KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define CUDA_1D_KERNEL_LOOP(i, n) for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += blockDim.x * gridDim.x)
#define LAUNCH(kernel, n, ...)                                 \
  do {                                                         \
    kernel<<<((n) + 127) / 128, 128>>>(__VA_ARGS__);           \
    GPU_CHECK(cudaGetLastError());                             \
  } while (0)

inline __host__ __device__ float3 operator+(float3 a, float3 b) { return make_float3(a.x + b.x, a.y + b.y, a.z + b.z); }
inline __host__ __device__ float3 operator-(const float3 &a, const float3 &b) { return make_float3(a.x - b.x, a.y - b.y, a.z - b.z); }
inline __host__ __device__ float3 operator*(float3 a, float s) { return make_float3(a.x * s, a.y * s, a.z * s); }
inline __host__ __device__ void operator+=(float3 &a, float3 b) { a.x += b.x; a.y += b.y; a.z += b.z; }
inline __host__ __device__ float dot(float3 a, float3 b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

template <typename T> struct vec3 { typedef float Type; };
template <> struct vec3<float> { typedef float3 Type; };
template <> struct vec3<double> { typedef double3 Type; };

template <typename T>
__device__ T rsqrt_T(T x) { return rsqrt(x); }
template <>
__device__ float rsqrt_T<float>(float x) { return rsqrtf(x); }
template <>
__device__ double rsqrt_T<double>(double x) { return rsqrt(x); }

__constant__ float softeningSquared;
__constant__ double softeningSquared_fp64;

template <typename T> struct SharedMemory {
  __device__ inline operator T *() { extern __shared__ int __smem[]; return (T *)__smem; }
};

template <typename T>
__device__ float3 bodyBodyInteraction(float3 ai, float4 bi, float4 bj) {
  float3 r = {bj.x - bi.x, bj.y - bi.y, bj.z - bi.z};
  T distSqr = r.x * r.x + r.y * r.y + r.z * r.z;
  distSqr += softeningSquared;
  T invDist = rsqrt_T(distSqr);
  T invDistCube = invDist * invDist * invDist;
  T s = bj.w * invDistCube;
  ai.x += r.x * s;
  ai.y += r.y * s;
  ai.z += r.z * s;
  return ai;
}

template <typename T>
__device__ float3 computeBodyAccel(float4 bodyPos, float4 *positions, int numTiles) {
  float4 *sharedPos = SharedMemory<float4>();
  float3 acc = {0.0f, 0.0f, 0.0f};
  for (int tile = 0; tile < numTiles; tile++) {
    sharedPos[threadIdx.x] = positions[tile * blockDim.x + threadIdx.x];
    __syncthreads();
// This is the "tile_calculation" from the GPUG3 article.
#pragma unroll 128
    for (unsigned int counter = 0; counter < blockDim.x; counter++) {
      acc = bodyBodyInteraction<T>(acc, bodyPos, sharedPos[counter]);
    }
    __syncthreads();
  }
  return acc;
}

template <typename T>
__global__ void __launch_bounds__(256, 2)
integrateBodies(float4 *__restrict__ newPos, float4 *__restrict__ oldPos, float4 *vel, unsigned int numBodies,
                float deltaTime, float damping, int numTiles) {
  int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= numBodies) {
    return;
  }
  float4 position = oldPos[index];
  float3 accel = computeBodyAccel<T>(position, oldPos, numTiles);
  float4 velocity = vel[index];
  velocity.x += accel.x * deltaTime;
  velocity.y += accel.y * deltaTime;
  velocity.z += accel.z * deltaTime;
  velocity.x *= damping, velocity.y *= damping, velocity.z *= damping;
  position.x += velocity.x * deltaTime;
  position.y += velocity.y * deltaTime;
  position.z += velocity.z * deltaTime;
  newPos[index] = position;
  vel[index] = velocity;
}

struct Particles {
  float3 *position;
  float3 *velocity;
  int n;
};

__global__ void advance(Particles p, const float dt) {
  KERNEL_LOOP(i, p.n) {
    float3 v = p.velocity[i];
    p.position[i] += v * dt;
    if (dot(p.position[i], p.position[i]) > 100.0f) p.velocity[i] = v * -1.0f;
  }
}

// Monte Carlo with a generator of its own; each thread keeps its state.
__host__ __device__ static inline unsigned xorshift(unsigned &s) {
  s ^= s << 13;
  s ^= s >> 17;
  s ^= s << 5;
  return s;
}
__global__ void count_hits(unsigned long long *hits, int tries) {
  unsigned state = 1234567u + (blockIdx.x * blockDim.x + threadIdx.x) * 7919u;
  unsigned found = 0;
  for (int i = 0; i < tries; i++) {
    float x = xorshift(state) * (1.0f / 4294967296.0f), y = xorshift(state) * (1.0f / 4294967296.0f);
    found += x * x + y * y < 1.0f;
  }
  atomicAdd(hits, (unsigned long long)found);
}

// A kernel in a class template, as a static device function, called by a plain kernel.
template <class T, int N> class Polynomial {
  T c[N];
 public:
  __host__ __device__ Polynomial() { for (int i = 0; i < N; i++) c[i] = T(i + 1); }
  __host__ __device__ T operator()(T x) const {
    T y = 0;
#pragma unroll
    for (int i = N - 1; i >= 0; --i) y = y * x + c[i];
    return y;
  }
};
template <class F> __global__ void evaluate(F f, const double *x, double *y, size_t n) {
  size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}

enum class Mode : int { Plus, Minus, Times };
template <Mode mode> __global__ void combine(const int *a, const int *b, int *c, int n) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if constexpr (mode == Mode::Plus) c[i] = a[i] + b[i];
  else if constexpr (mode == Mode::Minus) c[i] = a[i] - b[i];
  else c[i] = a[i] * b[i];
}

__global__ void print_from_device(int n) {
  if (threadIdx.x < n && blockIdx.x == 0) printf("[%d, %d]:\t\tValue is:\t\t%d\n", blockIdx.y, (int)threadIdx.x, n);
}

__global__ void switch_kernel(int *out, int n) {
  int tid = blockDim.x * blockIdx.x + threadIdx.x;
  if (tid >= n) return;
  switch (tid & 3) {
    case 0: { out[tid] = 10; break; }
    case 1:
    case 2: out[tid] = 20; break;
    default: out[tid] = 30;
  }
  for (int k = 0;; k++) {
    if (k > tid % 5) break;
    if (k == 2) continue;
    out[tid] += k;
  }
  do { out[tid]++; } while (out[tid] % 7);
}

int main(int argc, char *argv[]) {
  const int repeat = argc > 1 ? atoi(argv[1]) : 2;
  std::map<std::string, std::function<bool()>> tests;
  tests["bodies"] = [=] {
    const int n = 256, block = 64;
    float4 *p, *q, *v;
    GPU_CHECK(cudaMallocManaged(&p, n * sizeof(float4)));
    GPU_CHECK(cudaMallocManaged(&q, n * sizeof(float4)));
    GPU_CHECK(cudaMallocManaged(&v, n * sizeof(float4)));
    for (int i = 0; i < n; i++) p[i] = make_float4(i % 7, i % 5, i % 3, 1.0f), v[i] = {0, 0, 0, 0};
    float soft = 0.01f;
    GPU_CHECK(cudaMemcpyToSymbol(softeningSquared, &soft, sizeof(float)));
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeat; i++)
      integrateBodies<float><<<n / block, block, block * sizeof(float4)>>>(q, p, v, n, 0.01f, 1.0f, n / block);
    GPU_CHECK(cudaDeviceSynchronize());
    auto end = std::chrono::steady_clock::now();
    std::cout << std::setprecision(3) << std::chrono::duration<double>(end - start).count() << " s\n";
    double worst = 0;
    for (int i = 0; i < n; i++) {
      double a = 0;
      for (int j = 0; j < n; j++) {
        double x = p[j].x - p[i].x, y = p[j].y - p[i].y, z = p[j].z - p[i].z;
        a += x / pow(x * x + y * y + z * z + 0.01, 1.5);
      }
      worst = std::max(worst, std::fabs(a * 0.01 * repeat - v[i].x));
    }
    return worst < 1e-2;
  };
  tests["particles"] = [] {
    Particles p;
    p.n = 1000;
    GPU_CHECK(cudaMallocManaged(&p.position, p.n * sizeof(float3)));
    GPU_CHECK(cudaMallocManaged(&p.velocity, p.n * sizeof(float3)));
    for (int i = 0; i < p.n; i++) p.position[i] = {0, 0, 0}, p.velocity[i] = {float(i), 1, 0};
    LAUNCH(advance, p.n, p, 0.5f);
    GPU_CHECK(cudaDeviceSynchronize());
    return p.position[10].x == 5.0f && p.velocity[10].x == 10.0f && p.velocity[999].x == -999.0f;
  };
  tests["pi"] = [] {
    unsigned long long *hits;
    GPU_CHECK(cudaMallocManaged(&hits, sizeof *hits));
    *hits = 0;
    count_hits<<<8, 128>>>(hits, 500);
    GPU_CHECK(cudaDeviceSynchronize());
    return std::fabs(4.0 * *hits / (8 * 128 * 500) - M_PI) < 0.02;
  };
  tests["polynomial"] = [] {
    double *x, *y;
    GPU_CHECK(cudaMallocManaged(&x, 100 * sizeof *x)); GPU_CHECK(cudaMallocManaged(&y, 100 * sizeof *y));
    for (int i = 0; i < 100; i++) x[i] = i / 50.0;
    evaluate<<<2, 64>>>(Polynomial<double, 4>(), x, y, 100);
    evaluate<Polynomial<double, 4>><<<dim3(2), dim3{64, 1, 1}, 0, nullptr>>>(Polynomial<double, 4>{}, x, y, 100);
    GPU_CHECK(cudaDeviceSynchronize());
    return std::fabs(y[50] - 10) < 1e-12;
  };
  tests["combine"] = [] {
    std::vector<int> a(100, 6), b(100, 3), c(100);
    int *d[3];
    for (auto **p : {&d[0], &d[1], &d[2]}) GPU_CHECK(cudaMalloc(p, 100 * sizeof(int)));
    GPU_CHECK(cudaMemcpy(d[0], a.data(), 400, cudaMemcpyHostToDevice));
    GPU_CHECK(cudaMemcpy(d[1], b.data(), 400, cudaMemcpyHostToDevice));
    int total = 0;
    using Kernel = void (*)(const int *, const int *, int *, int);
    for (Kernel k : {(Kernel)combine<Mode::Plus>, (Kernel)combine<Mode::Minus>, (Kernel)combine<Mode::Times>}) {
      k<<<4, 32>>>(d[0], d[1], d[2], 100);
      GPU_CHECK(cudaMemcpy(c.data(), d[2], 400, cudaMemcpyDeviceToHost));
      total = total * 100 + c[99];
    }
    return total == 90318;
  };
  tests["switch"] = [] {
    int *out, wrong = 0;
    GPU_CHECK(cudaMallocManaged(&out, 50 * sizeof(int)));
    switch_kernel<<<2, 32>>>(out, 50);
    print_from_device<<<dim3(1, 2), 4>>>(2);
    GPU_CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 50; i++) {
      int v = (i & 3) == 0 ? 10 : (i & 3) == 3 ? 30 : 20;
      for (int k = 0; k <= i % 5; k++) v += k == 2 ? 0 : k;
      do v++; while (v % 7);
      wrong += v != out[i];
    }
    return wrong == 0;
  };
  bool good = true;
  for (auto &[name, test] : tests) {
    bool right = test();
    std::cout << name << (right ? " right" : " WRONG") << std::endl;
    good &= right;
  }
  puts(good ? "PASSED" : "FAILED");
  return !good;
}
