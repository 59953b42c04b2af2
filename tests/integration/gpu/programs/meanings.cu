// Code whose text does not say what it means: indices reached through classes, variables that look
// like functions, members of parameters that each thread changes.
#include <cooperative_groups.h>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

#define N 64
int *out;
int failures;
void check(const char *what, int factor, int more) {
  int bad = cudaDeviceSynchronize() != cudaSuccess;
  for (int i = 0; i < N; i++) {
    bad += out[i] != factor * i + more;
    out[i] = -1;
  }
  if (bad) printf("%s: %d wrong\n", what, bad);
  failures += bad;
}

// Who asks for the index: everything but a plain function.
struct Functor {
  __device__ void operator()(int *o, int n) const {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) o[i] = i;
  }
};
struct Lane {
  int t;
  __device__ Lane() : t(threadIdx.x) {}
  __device__ void put(int *o) const { o[t] = t; }
};
struct Member { int t = threadIdx.x; };
struct Base { int t; __device__ Base() { t = threadIdx.x; } };
struct Derived : Base { int more = 1; };
struct Holder { Lane lane; int more; };
struct Method {
  int n;
  __device__ void put(int *o) const { if (threadIdx.x < n) o[threadIdx.x] = threadIdx.x; }
  __device__ static int own() { return threadIdx.x; }
};
struct Number {
  int v;
  __device__ Number operator+(int n) const { return {v + n + (int)threadIdx.x}; }
  __device__ Number &operator+=(int n) { v += n + threadIdx.x; return *this; }
  __device__ int operator[](int n) const { return n + threadIdx.x; }
  __device__ int operator*() const { return threadIdx.x; }
  __device__ bool operator<(int n) const { return (int)threadIdx.x < n; }
};
struct Converted { __device__ operator int() const { return threadIdx.x; } };
struct Last {
  int *o;
  __device__ ~Last() { o[threadIdx.x] = threadIdx.x; }
};
__device__ int own() { return threadIdx.x; }
__device__ int plus(int n, int t = threadIdx.x) { return n + t; }
template <int (*F)()> __device__ int called() { return F(); }
template <class F> __device__ int applied(F f) { return f(); }

template <class F, class... A> __global__ void apply(F f, A... a) { f(a...); }
__global__ void temporary(int *o) { Lane().put(o); }
__global__ void object(int *o) { Lane lane; lane.put(o); }
__global__ void member(int *o) { Member m; o[m.t] = m.t; }
__global__ void base(int *o) { Derived d; o[d.t] = d.t + d.more - 1; }
__global__ void holder(int *o) { Holder h; h.more = 3; o[h.lane.t] = h.lane.t; }
__global__ void method(Method m, int *o) { m.put(o); }
__global__ void unbound(int *o) { int t = Method::own(); o[t] = t; }
__global__ void sum(int *o, Number n) { Number m = n + 1; o[m.v - 1] = m.v - 1; }
__global__ void changed(int *o, Number n) { n += 1; o[n.v - 1] = n.v - 1; }
__global__ void element(int *o, Number n) { int t = n[0]; o[t] = t; }
__global__ void star(int *o, Number n) { o[*n] = *n; }
__global__ void less(int *o, Number n) {
  int upper = 0;
  if (n < 32) upper = 1;
  o[own()] = own() + upper - (own() < 32);
}
__global__ void converted(int *o) { Converted c; int t = c; o[t] = t; }
__global__ void destructor(int *o) { Last last{o}; }
__global__ void defaults(int *o) { int t = plus(0); o[t] = t; }
__global__ void argument(int *o) { int t = called<own>(); o[t] = t; }
__global__ void passed(int *o) { int t = applied(own); o[t] = t; }
__global__ void pointer(int *o) { int (*f)() = own; int t = f(); o[t] = t; }
// The same across a barrier, where the value has to be kept for each thread.
__global__ void kept(int *o) {
  Lane lane;
  int t = Converted();
  __syncthreads();
  o[t] = lane.t;
}
__global__ void decided(int *o, Number n) {
  bool first = n < 32;
  __syncthreads();
  o[own()] = own() + (first ? 0 : 1) - (own() >= 32);
}

// Variables with their first values in brackets.
__global__ void brackets(int *o, unsigned n, float scale) {
  __shared__ int s[N];
  unsigned x = threadIdx.x * 2;
  int a(x);
  float b(scale);
  const unsigned c(n);
  unsigned long long d(x);
  dim3 at(threadIdx.x + 1, n);
  int *p(o);
  s[threadIdx.x] = 0;
  __syncthreads();
  p[threadIdx.x] = a + 1000 * (int)b + 100000 * c + (int)d + at.x + at.y - s[0];
}

// What each thread changes for itself.
struct View { int *data; int stride; int offset[2]; };
__global__ void rows(View v) {
  v.data += blockIdx.x * v.stride;
  v.data[threadIdx.x] = blockIdx.x * 32 + threadIdx.x;
}
__global__ void offsets(View v) {
  v.offset[0] += 2;
  v.data[threadIdx.x] = threadIdx.x + v.offset[0];
}
__global__ void turns(int *o, int n) {
  __shared__ int s[N];
  int2 q = make_int2(n, 1);
  for (int i = 0; i < 3; i++) {
    s[threadIdx.x] = q.x;
    __syncthreads();
    q.x += 1;
    __syncthreads();
  }
  o[threadIdx.x] = threadIdx.x + q.x;
}
__global__ void pairs(int *o, int n) {
  int a = n, b = 0;
  __syncthreads();
  a += 1, b += 2;
  __syncthreads();
  o[threadIdx.x] = threadIdx.x + a + b;
}
__device__ void moved(int &v) { v += 1; }
__device__ int ticket(int *n) { return atomicAdd(n, 1); }
__global__ void tickets(int *o, int *n) {
  int own = ticket(n);
  __syncthreads();
  moved(own);
  __syncthreads();
  o[own - 1] = own - 1;
}
__global__ void ranged(int *o) {
  int list[3] = {1, 2, (int)threadIdx.x};
  int all = 0;
  for (int each : list) all += each;
  __syncthreads();
  o[threadIdx.x] = all;
}

// More for each thread than a stack holds for all of them.
__global__ void large(int *o, int n) {
  unsigned char seen[32768];
  memset(seen, 0, sizeof seen);
  seen[threadIdx.x * 37] = threadIdx.x;
  __syncthreads();
  o[threadIdx.x] = seen[threadIdx.x * 37];
}
// A tile by reference, and conversions that round to one side.
__device__ int total(cg::thread_block_tile<32> &warp, int v) {
  for (int i = warp.size() / 2; i > 0; i /= 2) v += warp.shfl_down(v, i);
  return warp.shfl(v, 0);
}
__global__ void tiles(int *o) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  o[threadIdx.x] = threadIdx.x + total(warp, 2);
}
__global__ void conversions(int *o, long long large, unsigned long long most) {
  int right = __ll2double_rz(large) < __ll2double_ru(large);
  right += __ll2double_rd(large) < __ll2double_ru(large);
  right += __ll2double_rz(-large) > __ll2double_rd(-large);
  right += __ull2double_ru(most) > __ull2double_rz(most);
  right += __ll2float_ru(16777217) == 16777218 && __ll2float_rd(16777217) == 16777216;
  right += __ull2float_rz(16777219) == 16777218 && __ull2float_ru(5) == 5;
  right += __int2float_rd(16777217) == 16777216 && __double2float_ru(0.1) > 0.1;
  o[threadIdx.x] = threadIdx.x + right;
}

// Lanes in step, by an index that counts by several terms and is moved.
__device__ int warp_scan(int v, volatile int *s) {
  int i = 2 * threadIdx.x - (threadIdx.x & 31);
  s[i] = 0;
  i += 32;
  s[i] = v;
  s[i] += s[i - 1];
  s[i] += s[i - 2];
  s[i] += s[i - 4];
  s[i] += s[i - 8];
  s[i] += s[i - 16];
  return s[i];
}
__global__ void in_step(int *o) {
  __shared__ int s[2 * N];
  o[threadIdx.x] = warp_scan(1, s) + threadIdx.x / 32 * 32;
}

int main() {
  cudaMallocManaged(&out, 2 * N * sizeof(int));
  int *count;
  cudaMallocManaged(&count, sizeof(int));
  *count = 0;
  apply<<<2, N / 2>>>(Functor(), out, N), check("functor", 1, 0);
  temporary<<<1, N>>>(out), check("temporary", 1, 0);
  object<<<1, N>>>(out), check("object", 1, 0);
  member<<<1, N>>>(out), check("member", 1, 0);
  base<<<1, N>>>(out), check("base", 1, 0);
  holder<<<1, N>>>(out), check("holder", 1, 0);
  method<<<1, N>>>(Method{N}, out), check("method", 1, 0);
  unbound<<<1, N>>>(out), check("static method", 1, 0);
  sum<<<1, N>>>(out, Number{0}), check("operator+", 1, 0);
  changed<<<1, N>>>(out, Number{0}), check("operator+=", 1, 0);
  element<<<1, N>>>(out, Number{0}), check("operator[]", 1, 0);
  star<<<1, N>>>(out, Number{0}), check("operator*", 1, 0);
  less<<<1, N>>>(out, Number{0}), check("operator<", 1, 0);
  converted<<<1, N>>>(out), check("conversion", 1, 0);
  destructor<<<1, N>>>(out), check("destructor", 1, 0);
  defaults<<<1, N>>>(out), check("default argument", 1, 0);
  argument<<<1, N>>>(out), check("template argument", 1, 0);
  passed<<<1, N>>>(out), check("function as argument", 1, 0);
  pointer<<<1, N>>>(out), check("pointer to function", 1, 0);
  kept<<<1, N>>>(out), check("kept", 1, 0);
  decided<<<1, N>>>(out, Number{0}), check("decided", 1, 0);
  brackets<<<1, N>>>(out, 3, 7), check("brackets", 5, 307004);
  View view = {out, 32, {1, 2}};
  rows<<<2, 32>>>(view), check("rows", 1, 0);
  offsets<<<1, N>>>(view), check("offsets", 1, 3);
  turns<<<1, N>>>(out, 3), check("turns", 1, 6);
  pairs<<<1, N>>>(out, 3), check("pairs", 1, 6);
  tickets<<<1, N>>>(out, count), check("tickets", 1, 0);
  ranged<<<1, N>>>(out), check("ranged", 1, 3);
  large<<<2, N>>>(out, 3), check("large", 1, 0);
  tiles<<<1, N>>>(out), check("tiles", 1, 64);
  conversions<<<1, N>>>(out, (1ll << 60) + 1, ~0ull), check("conversions", 1, 7);
  in_step<<<1, N>>>(out), check("in step", 1, 1);
  printf("%s\n", failures ? "FAILED" : "PASSED");
  return failures != 0;
}
