// Kernels of forms that the generator of random kernels does not make. Each takes 192 numbers for its
// results, one for each thread, 64 inputs, 64 numbers for atomic operations, and a number.

namespace cg = cooperative_groups;
template <class T> struct Wrap { T v; __device__ T get() const { return v; } template <class U> __device__ U as() const { return U(v) + threadIdx.x; } };
template <template <class> class W, class T> __device__ T unwrap(W<T> w) { return w.get() + w.template as<T>(); }
template <int N> struct Fact { static constexpr unsigned value = N * Fact<N - 1>::value; };
template <> struct Fact<0> { static constexpr unsigned value = 1; };
template <template <class> class W> __global__ void k_templates(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, at = blockIdx.x * 64 + t;
  W<unsigned> w{in[t]};
  s[t] = unwrap(w);
  __syncthreads();
  w.v += s[(t + 1) % 64] * Fact<4>::value;
  __syncthreads();
  out[at] = unwrap<W, unsigned>(w) + s[63 - t];
}
// call k_templates: k_templates<Wrap>
template <bool B, int K> __device__ unsigned chosen(unsigned v) {
  if constexpr (B && K > 2) { return v * K + threadIdx.x; } else if constexpr (K == 1) return v; else { return v ^ threadIdx.x; }
}
template <bool B> __global__ void k_constexpr(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  if constexpr (B) { s[t] = chosen<B, 3>(v); __syncthreads(); v += s[63 - t]; __syncthreads(); }
  else { s[t] = 1; }
  s[t] = v;
  __syncthreads();
  if constexpr (!B) __syncthreads();
  out[blockIdx.x * 64 + t] = chosen<!B, 1>(s[t ^ 1]) + chosen<B, 0>(v);
}
// call k_constexpr: k_constexpr<true>
__device__ unsigned place(unsigned v = threadIdx.x * 3 + blockIdx.x, unsigned w = blockDim.x) { return v * w; }
struct Def { unsigned a; __device__ unsigned f(unsigned v = threadIdx.x + 1) const { return a * v; } __device__ Def(unsigned b = threadIdx.x) : a(b + 2) {} };
__global__ void k_defaults(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  Def d, e(n), g = Def();
  s[t] = place() + place(n) + d.f();
  __syncthreads();
  unsigned r = s[t ^ 5] + d.f() * 3 + e.f() + g.f(n);
  d = Def();
  __syncthreads();
  out[blockIdx.x * 64 + t] = r + d.a + place();
}
__global__ void k_lambdas(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  auto add = [&](unsigned by) { auto inner = [&]() { v += by + t; return v; }; return inner() * 2; };
  s[t] = add(3);
  __syncthreads();
  v += s[63 - t];
  s[t + 0] += 0;
  unsigned w = add(n);
  __syncthreads();
  s[t] = w;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[t ^ 7] + v + add(1);
}
union Bits { unsigned u; float f; struct { unsigned short lo, hi; } h; unsigned char c[4]; };
__global__ void k_unions(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ Bits s[64];
  unsigned t = threadIdx.x;
  Bits b; b.u = in[t] * 2654435761u;
  s[t].h.lo = b.h.hi; s[t].h.hi = b.h.lo;
  __syncthreads();
  b.h.lo ^= s[63 - t].h.hi;
  b.c[t & 3] += 7;
  __syncthreads();
  s[t] = b;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[t ^ 9].u + b.u;
}
struct Field { unsigned a : 5, b : 11; int c : 7; unsigned : 0; unsigned d : 3; };
__global__ void k_bitfields(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ Field s[64];
  unsigned t = threadIdx.x;
  Field f; f.a = in[t]; f.b = in[t] >> 3; f.c = int(in[t] & 63) - 32; f.d = t;
  s[t] = f;
  __syncthreads();
  f.b += s[63 - t].b; f.c -= s[t ^ 1].c & 15; f.d++;
  __syncthreads();
  s[t].d = f.d; s[t].a ^= f.a + t;
  __syncthreads();
  out[blockIdx.x * 64 + t] = f.a + f.b * 3 + unsigned(f.c) * 5 + s[(t + 5) % 64].a * 7 + s[(t + 5) % 64].d;
}
__global__ void k_tiles(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  cg::thread_block block = cg::this_thread_block();
  auto warp = cg::tiled_partition<32>(block);
  auto tile = cg::tiled_partition<8>(warp);
  __shared__ unsigned s[64];
  unsigned t = block.thread_rank(), v = in[t];
  for (unsigned o = tile.size() / 2; o > 0; o /= 2) v += tile.shfl_down(v, o);
  s[t] = v + tile.meta_group_rank();
  block.sync();
  v = s[t ^ 32] + warp.shfl_xor(v, 3) + tile.ballot(v & 1) + tile.any(v == 3) * 2;
  cg::sync(block);
  out[blockIdx.x * 64 + t] = v + tile.thread_rank() + tile.shfl(t, 2);
}
__global__ void k_counts(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = threadIdx.x, v = in[t], r = 0;
  while (int c = __syncthreads_count(v > 100)) { r += c; v /= 3; if (__syncthreads_or(v == 7)) r ^= 5; }
  for (int i = 0; i < 4 && !__syncthreads_and(v >> i == 0); i++) r += v * i;
  do { v++; r++; } while (__syncthreads_count(v < 70) > 0);
  out[blockIdx.x * 64 + t] = r * 64 + v;
}
__global__ void k_early(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  s[t] = in[t];
  out[blockIdx.x * 64 + t] = 77;
  if (in[t] & 1) { if (t > 20) { out[blockIdx.x * 64 + t] = 5; return; } }
  __syncthreads();
  unsigned c = __syncthreads_count(t & 1);
  for (unsigned i = 0; i < 3; i++) {
    s[t] += i + c;
    __syncthreads();
    if (t == 11 + i) return;
    unsigned v = s[(t + 1) % 64];
    __syncthreads();
    s[t] = v;
    __syncthreads();
  }
  out[blockIdx.x * 64 + t] = s[t] + __syncthreads_count(1);
}
__global__ void k_volatile(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ volatile unsigned s[64];
  volatile unsigned v = in[threadIdx.x];
  const volatile unsigned *p = in;
  volatile unsigned *vs = s;
  unsigned t = threadIdx.x;
  s[t] = v; v = v + 1;
  __syncthreads();
  unsigned r = vs[63 - t] + p[t];
  __syncthreads();
  vs[t] = r + v;
  __syncthreads();
  v = v + s[(t + 3) % 64];
  out[blockIdx.x * 64 + t] = v + r;
}
struct Stat { unsigned count, sum; unsigned cells[4]; };
__global__ void k_shared_struct(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ Stat st, many[2];
  unsigned t = threadIdx.x;
  if (t == 0) { st = Stat{1, 2, {3, 4, 5, 6}}; many[0] = many[1] = Stat(); }
  __syncthreads();
  atomicAdd(&st.count, 1u); atomicAdd(&st.cells[t & 3], in[t]); atomicMax(&many[t & 1].sum, in[t]);
  Stat *p = &many[t >> 5]; atomicXor(&p->cells[1], t * 3);
  __syncthreads();
  out[blockIdx.x * 64 + t] = st.count + st.cells[t & 3] * 3 + many[t & 1].sum + many[0].cells[1] * 5;
}
__device__ unsigned meet(unsigned *s, unsigned t, unsigned v) { s[t] = v; __syncthreads(); unsigned r = s[63 - t]; __syncthreads(); return r; }
__global__ void k_ternary(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  n > 3 ? (void)(s[t] = v) : (void)0;
  n > 3 ? __syncthreads() : (void)0;
  v += blockIdx.x == 1 ? meet(s, t, v) : meet(s, t, v * 3);
  n & 1 && __syncthreads_or(v == 9) ? v++ : v--;
  out[blockIdx.x * 64 + t] = v;
}
__device__ unsigned fib(unsigned k) { return k < 2 ? k + (threadIdx.x & 1) : fib(k - 1) + fib(k - 2); }
__device__ unsigned down(unsigned *s, unsigned t, unsigned depth) { if (!depth) return t; s[t] = depth * t; __syncthreads(); unsigned v = s[t ^ depth]; __syncthreads(); return v + down(s, t, depth - 1); }
__global__ void k_recursion(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  unsigned v = fib(t % 8);
  out[blockIdx.x * 64 + t] = v + down(s, t, 3);
}
__device__ unsigned f0(unsigned v) { return v + threadIdx.x; }
__device__ unsigned f1(unsigned v) { return v * 3 ^ blockIdx.x; }
typedef unsigned (*Fn)(unsigned);
__device__ Fn table_d[2] = {f0, f1};
__constant__ Fn table_c[2] = {f1, f0};
__global__ void k_pointers(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  Fn f = t & 1 ? table_c[0] : table_c[1];
  s[t] = f(in[t]);
  __syncthreads();
  Fn g = table_d[n & 1];
  unsigned v = (*g)(s[t ^ 3]) + f(1);
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + table_c[t >> 5](s[t]);
}
__global__ void k_switch(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  s[t] = v;
  switch (blockIdx.x) {
    case 0: __syncthreads(); v += s[63 - t]; break;
    case 1: v ^= 3; 
    case 2: s[t] = v + 1; __syncthreads(); v = s[t ^ 2]; __syncthreads(); break;
    default: v = 0;
  }
  __syncthreads();
  s[t] = v;
  switch (t & 3) { case 0: v += 1; break; case 1: case 2: v += n; default: v *= 3; }
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + s[(t + 9) % 64];
}
struct Acc { unsigned v; __device__ Acc &operator<<(unsigned w) { v = v * 31 + w + threadIdx.x; return *this; } __device__ unsigned &ref() { return v; } };
__global__ void k_chained(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  Acc a{n};
  a << t << in[t];
  a.ref() += 5;
  s[t] = a.v;
  __syncthreads();
  (a << s[63 - t]).ref() ^= 3;
  unsigned &r = a.ref();
  r++;
  __syncthreads();
  out[blockIdx.x * 64 + t] = a.v + s[t ^ 1];
}
__global__ void k_shadow(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  { unsigned v = t * 2; s[t] = v; { unsigned n = v + 1; s[t] += n; } }
  __syncthreads();
  for (unsigned v = 0; v < 3; v++) { unsigned t2 = s[(t + v) % 64]; __syncthreads(); s[t] = t2 + v; __syncthreads(); }
  unsigned w = v + n;
  { unsigned n = w; unsigned w = n * 2; v += w; __syncthreads(); v += w + s[t ^ 1]; }
  out[blockIdx.x * 64 + t] = v + w + n;
}
__global__ void k_struct_array(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  struct Local { unsigned x[2]; unsigned sum() const { return x[0] + x[1] * 3; } };
  __shared__ Local s[64];
  unsigned t = threadIdx.x;
  Local l[2] = {{{t, n}}, {{in[t], 1}}};
  s[t] = l[t & 1];
  __syncthreads();
  l[0] = s[63 - t]; l[1].x[t & 1] += l[0].x[1];
  __syncthreads();
  out[blockIdx.x * 64 + t] = l[0].sum() + l[1].sum() * 5 + s[t].sum();
}

__global__ void k_null(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  const unsigned *p = blockIdx.x == 1 ? nullptr : in;
  unsigned t = threadIdx.x;
  s[t] = t;
  if (p == nullptr) return;
  __syncthreads();
  unsigned count = p[0] & 3;
  for (unsigned i = 0; i <= count; i++) { s[t] += i; __syncthreads(); }
  out[blockIdx.x * 64 + t] = s[63 - t] / 1;
}
__global__ void k_null2(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  const unsigned *p = blockIdx.x == 1 ? nullptr : in;
  unsigned t = threadIdx.x, d = blockIdx.x;
  s[t] = t;
  if (t < 64 && blockIdx.x == 1) return;
  __syncthreads();
  unsigned count = *p & 3, q = 10 / (d - 1);
  for (unsigned i = 0; i <= count; i++) { s[t] += i * q; __syncthreads(); }
  unsigned w = p[q & 1];
  if (w & 1) { s[t]++; __syncthreads(); }
  out[blockIdx.x * 64 + t] = s[63 - t];
}
__global__ void k_trap(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, b = blockIdx.x;
  unsigned r = 0;
  if (b) { unsigned q = n / b, m = n % b; for (unsigned i = 0; i < q; i++) { s[t] = i + m; __syncthreads(); r += s[t ^ 3]; __syncthreads(); } }
  unsigned z = b ? n / b : 3;
  if (t) r += 1000 / t;
  __syncthreads();
  out[b * 64 + t] = r + z;
}
__device__ unsigned which(int v) { return v * 2 + 1; }
__device__ unsigned which(unsigned v) { return v * 3; }
__device__ unsigned which(long long v) { return v * 5; }
template <class T> __device__ unsigned kind(T v) { return T(-1) < T(0) ? 7 + sizeof(T) : 1 + sizeof(T); }
__global__ void k_signs(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned r = 0;
  int m = n;
  r = r * 31 + (threadIdx.x - 5) / 2;
  r = r * 31 + (threadIdx.x - 5 > 0);
  unsigned long long q = threadIdx.x - 5; r = r * 31 + unsigned(q >> 32) + unsigned(q);
  long long l = blockIdx.x * blockDim.x - 1; r = r * 31 + unsigned(l >> 32) + unsigned(l);
  r = r * 31 + which(threadIdx.x) + which(blockIdx.x + 1) + which(threadIdx.x - m) + which(blockDim.x) + which(int(threadIdx.x));
  r = r * 31 + kind(threadIdx.x) + kind(blockIdx.x * 2) + kind(-threadIdx.x) + kind(threadIdx.x + 1ll);
  r = r * 31 + (threadIdx.x - 1 < n) * 2 + (threadIdx.x - m < 0);
  r = r * 31 + (~threadIdx.x >> 3) + (-threadIdx.x >> 4);
  long long c = m > 3 ? threadIdx.x - 9 : -1; r = r * 31 + unsigned(c >> 32) + unsigned(c);
  r = r * 31 + min(threadIdx.x - 3, n) + (threadIdx.x * -1) % 7;
  int d = threadIdx.x - blockDim.x; r = r * 31 + d / 2 + (d >> 1);
  float f = blockIdx.x - 1.0f; r = r * 31 + unsigned(f * 4 + 8);
  double e = threadIdx.x - 40; r = r * 31 + unsigned(e / 65536);
  auto a = threadIdx.x - 7; r = r * 31 + a / 3 + sizeof(a);
  const auto bb = blockIdx.x * -3; r = r * 31 + bb / 5;
  r = r * 31 + (threadIdx.x < m - 20) + ((int)threadIdx.x < m - 20) * 2;
  for (int i = threadIdx.x - 3; i < m; i += 2) r = r * 3 + i;
  for (unsigned i = threadIdx.x - 3; i < 70u; i += 20) r = r * 3 + i;
  r = r * 31 + (threadIdx.x - 8) % 5 + (unsigned char)(threadIdx.x - 8) + (short)(blockIdx.x - 1);
  r = r * 31 + in[(threadIdx.x - 1) & 63] + in[(threadIdx.x + 1) % blockDim.x] + *(in + 63 - threadIdx.x);
  r = r * 31 + unsigned((threadIdx.x - 2ull) >> 40) + unsigned(threadIdx.x - 2l);
  out[blockIdx.x * blockDim.x + threadIdx.x] = r;
}
__global__ void k_signs_cut(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  int m = n;
  auto a = threadIdx.x - 7;
  long long l = threadIdx.x - 5;
  const unsigned char c = threadIdx.x * 9;
  short h = (blockIdx.x - 2) * 40000;
  float f = threadIdx.x - 70;
  bool p = threadIdx.x - 9 > 50;
  int d = (threadIdx.x - blockDim.x) / 2;
  double e = d;
  unsigned long long w = a * 3000000000u;
  s[threadIdx.x] = a / 2;
  __syncthreads();
  unsigned r = s[63 - threadIdx.x] + a / 3 + unsigned(l >> 31) + c * 5 + h * 7 + unsigned(f / 1024) + p + unsigned(d) * 11 + unsigned(e) + unsigned(w >> 16);
  out[blockIdx.x * blockDim.x + threadIdx.x] = r + (m - a) / 2;
}
__device__ unsigned of(uint3 t, dim3 b) { return t.x + b.x * 2 + t.y + b.z; }
__device__ unsigned of_ref(const uint3 &t) { return t.x * 3; }
__device__ unsigned of_ptr(const uint3 *t) { return t->x * 5 + t->z; }
__global__ void k_index_objects(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  uint3 t = threadIdx; dim3 b = blockDim; auto id = blockIdx;
  const uint3 &ref = threadIdx;
  const uint3 *ptr = &threadIdx;
  s[t.x] = of(threadIdx, blockDim) + of_ref(threadIdx) + of_ptr(&threadIdx) + ref.x;
  __syncthreads();
  t.x += s[63 - t.x];
  __syncthreads();
  out[id.x * b.x + threadIdx.x] = t.x + of(t, gridDim) + ptr->x + ref.x + (&threadIdx)->x;
}
__global__ void k_buffers(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned a[64], b[64];
  unsigned *from = a, *to = b, t = threadIdx.x;
  from[t] = in[t];
  __syncthreads();
  for (unsigned d = 1; d < 64; d *= 2) {
    to[t] = t >= d ? from[t] + from[t - d] : from[t];
    __syncthreads();
    unsigned *x = from; from = to; to = x;
  }
  for (unsigned d = 0; d < 3; d++) {
    to[t] = from[t ^ 1] + d;
    __syncthreads();
    auto x = to; to = from, from = x;
    if (d == 1) { auto y = from; from = y; }
  }
  out[blockIdx.x * 64 + t] = from[t];
}
__global__ void k_private(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, a[4] = {t, n, 3}, (&ra)[4] = a, m[2][3] = {{1, t}, {n}};
  unsigned *p = &a[t & 3], **pp = &p;
  s[t] = **pp;
  (*p)++;
  __syncthreads();
  *p += s[63 - t]; ++*pp; m[t & 1][2] += *(t % 4 == 3 ? a : p);
  p = a;
  __syncthreads();
  unsigned *row = m[1];
  row[1] += ra[2];
  s[t] = *p + m[1][1];
  __syncthreads();
  out[blockIdx.x * 64 + t] = a[0] + a[1] * 3 + a[2] * 5 + a[3] * 7 + s[t ^ 9] + row[2] + m[0][2];
}
__global__ void k_private2(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, a[4] = {t, n, 3};
  unsigned *p = &a[t & 3];
  s[t] = *p;
  __syncthreads();
  *p += s[63 - t];
  p = t & 1 ? a : p;
  __syncthreads();
  s[t] = *p;
  __syncthreads();
  out[blockIdx.x * 64 + t] = a[0] + a[1] * 3 + a[2] * 5 + a[3] * 7 + s[t ^ 9];
}
struct Lnk { unsigned v; Lnk *next; };
__global__ void k_links(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  Lnk x{t, nullptr}, y{n, &x}, z{in[t], &y};
  s[t] = z.next->next->v;
  __syncthreads();
  z.next->next->v += s[t ^ 4];
  x.next = &z;
  __syncthreads();
  unsigned r = 0; Lnk *l = &z;
  for (int i = 0; i < 7; i++) { r = r * 3 + l->v; l = l->next; }
  out[blockIdx.x * 64 + t] = r;
}
__global__ void k_modern(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  uint2 v2 = make_uint2(t, n);
  auto [x, y] = v2;
  unsigned arr[3] = {x, y, in[t]};
  unsigned r = 0;
  for (auto e : arr) r = r * 7 + e;
  for (auto &e : arr) e += r;
  s[t] = r;
  __syncthreads();
  for (unsigned e : arr) r = r * 3 + e;
  if (unsigned q = s[63 - t]; q > 9) r += q; else r ^= q;
  r += x * y;
  __syncthreads();
  using Arr = unsigned[2];
  Arr z = {r, t};
  s[t] = z[1] + z[0];
  __syncthreads();
  decltype(t) w = s[t ^ 1];
  alignas(16) unsigned aligned[4] = {w};
  static const unsigned fixed_[3] = {5, 6, 7};
  constexpr unsigned cs[] = {9, 8};
  out[blockIdx.x * 64 + t] = w + aligned[0] + z[0] + fixed_[t % 3] + cs[t & 1];
}
__global__ void k_jumps(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  for (unsigned i = 0; ; i++) {
    if (i == 2) continue;
    s[t] = v + i;
    for (unsigned j = 0; j < 9; j++) { if (j == (t & 7)) break; if (j & 1) continue; v += j; }
    __syncthreads();
    v ^= s[63 - t];
    switch (t & 1) { case 0: v++; break; default: v--; }
    __syncthreads();
    if (i > n / 2) break;
  }
  unsigned k = 0;
  while (true) { k++; s[t] += k; __syncthreads(); if (k == 3) { continue; } v += s[t ^ 1]; __syncthreads(); if (k >= 5) { break; } }
  out[blockIdx.x * 64 + t] = v;
}
__global__ void k_goto(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t];
  if (t & 1) goto odd;
  v += 5;
odd:
  s[t] = v;
  __syncthreads();
  unsigned i; i = 0;
again:
  v += s[63 - t];
  __syncthreads();
  s[t] = v;
  __syncthreads();
  if (++i < 3) goto again;
  out[blockIdx.x * 64 + t] = v;
}
__global__ void k_done(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64]; __shared__ bool done; __shared__ unsigned rounds;
  unsigned t = threadIdx.x;
  if (t == 0) done = false, rounds = 0;
  s[t] = in[t] & 63;
  __syncthreads();
  while (!done) {
    unsigned v = s[t];
    __syncthreads();
    s[(t + 7) % 64] = v + 1;
    if (t == 5 && ++rounds > 4) done = true;
    __syncthreads();
  }
  do { s[t]++; __syncthreads(); if (t == 0) rounds--; __syncthreads(); } while (rounds);
  out[blockIdx.x * 64 + t] = s[t] + rounds;
}
__global__ void k_bool(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = threadIdx.x; bool b = in[t] & 1; char c = in[t]; short h = in[t] * 3; long long l = (long long)in[t] << 20;
  float f = in[t] & 255; double d = f / 3;
  __syncthreads();
  b = !b || (in[63 - t] & 2); c += t; h -= 300; l *= -3; f *= 0.5f; d -= 7;
  __syncthreads();
  out[blockIdx.x * 64 + t] = b + c * 3 + h * 5 + unsigned(l >> 12) + int(f) + int(d * 16);
}

__global__ void k_shuffles(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = threadIdx.x, v = in[t];
  float f = v & 1023; double d = f / 4; long long l = (long long)v << 24; int i = int(v) - 500; unsigned long long u = l ^ t;
  unsigned k = t;
  unsigned r = __shfl_sync(~0u, k++, 3); r += __shfl_sync(~0u, ++k, t + 1);
  f += __shfl_down_sync(~0u, f, 4); d -= __shfl_xor_sync(~0u, d, 5) * 2; l += __shfl_up_sync(~0u, l, 2, 8); i = __shfl_sync(~0u, i * 3, i & 31); u ^= __shfl_xor_sync(~0u, u, 17);
  r += __shfl_sync(~0u, __shfl_up_sync(~0u, v, 1), k & 31) * (__any_sync(~0u, v == 3) ? 2 : 5);
  if (__any_sync(~0u, r & 1) && n > 3) r += __shfl_xor_sync(~0u, r, 1);
  r = n > 4 ? __shfl_down_sync(~0u, r, 1) : __shfl_up_sync(~0u, r, 1);
  for (int o = 16; o; o >>= 1) { unsigned q = __shfl_xor_sync(~0u, r, o); r = r > q ? r * 3 + q : q * 3 + r; }
  const unsigned m = __ballot_sync(~0u, t & 1) & __ballot_sync(~0u, v & 4);
  while (__any_sync(~0u, v > 1000)) { v /= 2; r++; }
  do { r += 3; } while (!__all_sync(~0u, (r & 3) == (t & 0)) && r++ % 50 < 40 && n > 100);
  out[blockIdx.x * 64 + t] = r + unsigned(f) * 3 + unsigned(int(d * 4)) + unsigned(l >> 20) + i + unsigned(u >> 22) + __popc(m) + k;
}
__global__ void k_conditional_shuffles(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = threadIdx.x, v = in[t], r = 0;
  if (t < 32) { r = __shfl_down_sync(~0u, v, 3); v += r; r += __ballot_sync(~0u, v & 1); } else { r = v; }
  if (t >= 32) r += __shfl_xor_sync(~0u, v, 8);
  __syncthreads();
  if (blockIdx.x & 1) { v = __shfl_sync(~0u, r, t ^ 1); } 
  if (t / 32 == 1) for (int o = 16; o > 0; o /= 2) r += __shfl_down_sync(~0u, r, o);
  out[blockIdx.x * 64 + t] = r + v * 3;
}
struct Tile {
  unsigned *s; unsigned t;
  __device__ Tile(unsigned *s) : s(s), t(threadIdx.x) {}
  __device__ unsigned &at(unsigned i) { return s[i & 63]; }
  __device__ void sync() const { __syncthreads(); }
  __device__ unsigned turn(unsigned v) { at(t) = v; sync(); unsigned r = at(t + 1); sync(); return r; }
};
__global__ void k_methods(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  Tile tile(s);
  unsigned v = tile.turn(in[tile.t]);
  v = tile.turn(v * 3 + n);
  out[blockIdx.x * 64 + tile.t] = v + tile.turn(tile.t);
}
struct Shape { unsigned k; __device__ Shape(unsigned k) : k(k) {} __device__ virtual unsigned area(unsigned v) const { return v * k; } };
struct Square : Shape { __device__ Square(unsigned k) : Shape(k) {} __device__ unsigned area(unsigned v) const override { return v * v + k + threadIdx.x; } };
__global__ void k_virtual(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  Square q(n); Shape h(t);
  const Shape *p = t & 1 ? &h : &q;
  s[t] = p->area(in[t]);
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[63 - t] + p->area(t) + h.area(2);
}
#define SYNC() do { __syncthreads(); } while (0)
#define LOAD(S, I) S[I] = in[I]; SYNC();
#define GID (blockIdx.x * blockDim.x + threadIdx.x)
#define EACH(i, m) for (unsigned i = threadIdx.x; i < (m); i += blockDim.x)
#define SWAP(a, b) { auto c_ = a; a = b; b = c_; }
#define RETURN_IF(c) if (c) { out[GID] = 3; return; }
__global__ void k_macros(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[128];
  unsigned t = threadIdx.x, a = t, b = n;
  LOAD(s, t)
  SWAP(a, b)
  EACH(i, 128) { if (i >= 64) s[i] = i + a; }
  SYNC();
  RETURN_IF(t == 9)
  EACH(i, 100) a += s[127 - i];
  SYNC();
  EACH(i, 128) s[i] += b;
  SYNC();
  out[GID] = a + s[t + 32];
}
__global__ void k_vectors(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ uint4 s[64]; __shared__ float4 fs[16];
  unsigned t = threadIdx.x;
  uint4 v = make_uint4(t, n, in[t], 1), w;
  float4 f; f.x = t; f.y = f.z = f.w = n;
  s[t] = v; if (t < 16) fs[t] = f;
  __syncthreads();
  w = s[63 - t]; v.x += w.z; (&v.x)[t & 3] ^= 5;
  unsigned *flat = reinterpret_cast<unsigned *>(s);
  f.y += fs[t & 15].x; f = t & 1 ? f : fs[3];
  __syncthreads();
  flat[t * 4 + 1] += v.x; flat[t * 4] = w.x;
  __syncthreads();
  v = *(uint4 *)&flat[(t ^ 1) * 4];
  float4 &g = f; g.z *= 2;
  out[blockIdx.x * 64 + t] = v.x + v.y * 3 + v.z * 5 + w.w + unsigned(f.x + f.y * 2 + g.z);
}
__global__ void k_rows(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned q[4][17];
  unsigned (*p)[17] = q; unsigned t = threadIdx.x;
  unsigned *row = p[t / 16];
  row[t % 16] = in[t];
  __syncthreads();
  unsigned v = p[t % 4][t / 4] + row[15];
  __syncthreads();
  row[t % 16] += v; p += 1; if (t < 32) v += 3;
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + q[3 - t / 16][t % 16] + p[0][t % 16];
}
template <class T, unsigned B> struct Reduce {
  struct Temp { T x[B]; };
  Temp &temp;
  __device__ Reduce(Temp &t) : temp(t) {}
  template <class Op> __device__ T all(T v, Op op) {
    temp.x[threadIdx.x] = v; __syncthreads();
    for (unsigned o = B / 2; o; o >>= 1) { if (threadIdx.x < o) temp.x[threadIdx.x] = op(temp.x[threadIdx.x], temp.x[threadIdx.x + o]); __syncthreads(); }
    T r = temp.x[0]; __syncthreads(); return r;
  }
};
struct Max { __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; } };
__global__ void k_like_cub(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  typedef Reduce<unsigned, 64> R;
  __shared__ R::Temp temp;
  unsigned t = threadIdx.x;
  unsigned m = R(temp).all(in[t], Max());
  unsigned s = R(temp).all(in[t] ^ m, [](unsigned a, unsigned b) { return a + b; });
  out[blockIdx.x * 64 + t] = m * 3 + s + t;
}
__global__ void k_cas(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s, lock, sum;
  unsigned t = threadIdx.x;
  if (t == 0) s = 1, lock = 0, sum = 0;
  __syncthreads();
  unsigned old = s, seen;
  do { seen = old; old = atomicCAS(&s, seen, seen + in[t]); } while (old != seen);
  bool done = false;
  while (!done) { if (atomicCAS(&lock, 0u, 1u) == 0) { sum += t; __threadfence_block(); atomicExch(&lock, 0u); done = true; } }
  __syncthreads();
  out[blockIdx.x * 64 + t] = s + sum;
}
__global__ void k_last(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64]; __shared__ bool last;
  unsigned t = threadIdx.x;
  s[t] = in[t] + blockIdx.x;
  __syncthreads();
  for (unsigned d = 32; d > 0; d >>= 1) { if (t < d) s[t] += s[t + d]; __syncthreads(); }
  out[blockIdx.x * 64 + t] = s[0] + t;
  if (t == 0) { total[blockIdx.x] = s[0]; __threadfence(); total[8] = 0; last = atomicAdd(&total[9], 1u) == 12345; }
  __syncthreads();
  if (last) { out[t] = 1; __syncthreads(); }
  if (!last && t < 3) out[blockIdx.x * 64 + t] += 5;
}
template <class... T> __device__ unsigned fold(T... v) { return (0u + ... + unsigned(v)); }
template <unsigned... I> __global__ void k_packs(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, list[] = {I..., t};
  s[t] = fold(in[(t + I) & 63]..., t);
  __syncthreads();
  ((s[t] += 0 * I), ...);
  list[t & 1] += s[63 - t];
  __syncthreads();
  out[blockIdx.x * 64 + t] = fold(list[0], list[1], s[t ^ 1] * I...) + sizeof...(I);
}
// call k_packs: k_packs<3, 5, 7>
__global__ void __launch_bounds__(64) k_attributes(unsigned *__restrict__ out, const unsigned *__restrict__ in, unsigned *total, const unsigned n) {
  __shared__ __attribute__((aligned(16))) unsigned s[64];
  unsigned const t = threadIdx.x; unsigned int long long unsigned_ll = t; register unsigned v = in[t];
  long long int a = -5ll * t; unsigned short int h = 65535 - t; signed char c = -3;
  s[t] = v + h;
  __syncthreads();
  a -= s[63 - t]; h += 9; c -= t; unsigned_ll <<= 33;
  __syncthreads();
  out[blockIdx.x * 64 + t] = unsigned(a) + h + c + unsigned(unsigned_ll >> 30) + s[t];
}
__device__ unsigned counter_d = 4;
__constant__ unsigned table[4] = {1, 2, 3, 4};
__device__ unsigned scratch[192];
__global__ void k_device_vars(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, c = counter_d, g = table[t & 3];
  scratch[blockIdx.x * 64 + t] = in[t] + c;
  unsigned u = scratch[blockIdx.x * 64];
  s[t] = t ? 0 : u;
  __syncthreads();
  const unsigned *p = scratch + blockIdx.x * 64;
  unsigned k = p[5] & 3;
  for (unsigned i = 0; i < k; i++) { s[t] += p[i + t % 8]; __syncthreads(); }
  scratch[blockIdx.x * 64 + t] = 0;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[63 - t] + g * 3 + p[t ^ 1] + k;
}
__global__ void k_uniform_changes(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, base = 0, step = n; const unsigned *p = in;
  n += 2; total += blockIdx.x; step *= 2, base++;
  s[t] = p[t];
  __syncthreads();
  while (base < step) { p++; base += n; s[t] += *p + base; __syncthreads(); if (base & 1) { base++; n--; } __syncthreads(); }
  for (unsigned i = 0, j = step; i < j; i += 3, j--) { s[t] += i * j; __syncthreads(); step ^= i; }
  if (n > 2) { step++; } else step--;
  if (t == 3) base = 5;
  s[t] += step;
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[t ^ 8] + base * 3 + step * 5 + n;
}
__global__ void k_compound(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, i = 0, a = 1, b = 2;
  s[t] = in[t];
  __syncthreads();
  a = b = s[63 - t]; a += b++ * 2, b ^= (a ? a-- : ++b);
  unsigned c = (a, b), d = a > b && b++ ? a : b;
  s[i++, t] += 0;
  __syncthreads();
  (t & 1 ? a : b) += s[t ^ 1];
  *&c += d; (&d)[0] += 2;
  unsigned e[3]{}; e[i] = a; e[2] += i++;
  __syncthreads();
  s[t] = e[1] + c;
  __syncthreads();
  out[blockIdx.x * 64 + t] = a + b * 3 + c * 5 + d * 7 + e[i] + s[(t + 4) & 63] + i;
}

#define STEP(x) x += 1; __syncthreads()
__global__ void k_a(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = t;
  s[t] = v;
  STEP(v);
  out[blockIdx.x * 64 + t] = v + s[63 - t];
}
#undef STEP
#define STEP(x) x += 2; __syncthreads()
__global__ void k_b(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = t;
  s[t] = v;
  STEP(v);
  out[blockIdx.x * 64 + t] = v + s[63 - t];
}
#define SCALE(x, y) y = x * 2; for (unsigned j = 0; j < 2; j++) { x++; __syncthreads(); y += x; }
__global__ void k_prec(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, x = t, y = n;
  s[t] = x;
  SCALE(y, x)
  out[blockIdx.x * 64 + t] = x + s[63 - t] + y;
}
#ifndef DEBUG_MACROS
#define SYNC2(x) x += 3; __syncthreads()
#else
#define SYNC2(x) x += 4; __syncthreads()
#endif
__global__ void k_dead(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = t;
  s[t] = v;
  SYNC2(v);
  out[blockIdx.x * 64 + t] = v + s[63 - t];
}
#define W (v * 2 + w)
#define CHAR(a) unsigned a = 'a'; a += W
__device__ void bump(unsigned &x) { x += 10; }
#define bump(x) { bump(x); x++; }
#undef RETURN_IF
#define RETURN_IF(c) if (c) { out[blockIdx.x * 64 + threadIdx.x] = 3; return; }
#define ROUND(i, A) _Pragma("unroll") for (int i = 0; i < 3; i++) { A##_s[t] += i; __syncthreads(); v += A##_s[63 - t]; __syncthreads(); }
#define LOG(fmt, args...) if (n == 77) printf(fmt, ##args);
#define SUM(r, ...) { unsigned list[] = {__VA_ARGS__}; for (unsigned e : list) r += e; }
__global__ void k_text(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned a_s[64];
  unsigned t = threadIdx.x, v = in[t], w = n;
  a_s[t] = t;
  bump(w)
  __syncthreads();
  w += a_s[63 - t];
  LOG("%u %u", w, v)
  __syncthreads();
  CHAR(c);
  ROUND(j, a)
  RETURN_IF(t == 9)
  SUM(w, 1u, t, v)
  v += W;
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + c + W;
}

#define W (v * 2 + w)
#define IDX(a) ((a) + t)
#define BASE blockIdx.x * blockDim.x
#define BUMP v++
#define CLAMP(x) ((x) < lim ? (x) : lim)
__global__ void k_macro_reads(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t], w = n;
  s[t] = t;
  w += in[63 - t];
  __syncthreads();
  s[t] += W;
  __syncthreads();
  out[BASE + t] = W + s[IDX(3) % 64];
}
__global__ void k_macro_changes(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t], lim = 40;
  s[t] = t;
  BUMP;
  __syncthreads();
  BUMP;
  for (unsigned i = 0; i < CLAMP(n); i++) { s[t] += CLAMP(i); __syncthreads(); if (i == 3) lim--; }
  __syncthreads();
  out[BASE + t] = v + s[IDX(3) % 64];
}
#define REF(i) s[i]
#define EXT(i) (ptr[i] + in[i])
__global__ void k_macro_uniform(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x; const unsigned *ptr = in + (t & 1);
  REF(t) = t;
  __syncthreads();
  unsigned k = EXT(0);
  if (EXT(1) & 1) k++;
  for (unsigned i = 0; i < 3; i++) { REF(t) += k; __syncthreads(); k += REF(t ^ i); __syncthreads(); }
  unsigned j = n, c = 2; 
#define STOP (j > 5 + c)
  while (STOP) { j--; REF(t) += j; __syncthreads(); }
  out[blockIdx.x * 64 + t] = k + REF(63 - t);
}

struct Rec { const unsigned *p; unsigned k; };
__global__ void k_const_pointers(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x; const unsigned *ptr = in + (t & 1), *const fixed = in + 2; unsigned const *walk = in;
  const volatile unsigned *vol = s; const void *raw = in + t; const unsigned *list[2] = {in, in + t};
  const unsigned *const *pp = list;
  const Rec rec{in + t, n}; const Rec *pr = &rec;
  s[t] = ptr[0];
  __syncthreads();
  walk += t & 3; ptr++; list[t & 1] = walk;
  unsigned v = vol[63 - t] + *walk + fixed[t & 1] + *(const unsigned *)raw + pp[t & 1][0] + pr->p[0] * pr->k;
  __syncthreads();
  s[t] = v + ptr[1] + rec.k;
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + s[t ^ 1] + walk[1] + ptr[2] + fixed[3] + list[0][1] + list[1][2] + pr->p[0];
}
__global__ void k_double_pointers(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  const char *name = t & 1 ? "odd" : "even"; const float f = t * 0.5f; const double *const d = nullptr; volatile float g = f;
  s[t] = name[0];
  __syncthreads();
  name++; g += 1;
  s[t] += name[0] + (d != nullptr);
  __syncthreads();
  out[blockIdx.x * 64 + t] = s[63 - t] + unsigned(f * 2) + name[1] + unsigned(g);
}
__global__ void k_auto_pointers(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x;
  auto p = in + t; auto *q = in; const auto *r = &in[n]; auto const c = in; const auto k = t * 3; auto m = s + t; auto o = out + blockIdx.x * 64;
  const auto f = n * 0.5; auto pp = &p;
  s[t] = *p;
  __syncthreads();
  q += t; p -= t & 1; 
  unsigned v = s[63 - t] + *q + *r + c[3] + k + **pp;
  __syncthreads();
  *m = v;
  __syncthreads();
  o[t] = v + s[t ^ 1] + *p + q[0] + r[1] + c[t] + unsigned(f) + **pp;
}

__global__ void k_goto_in_statement(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  __shared__ unsigned s[64];
  unsigned t = threadIdx.x, v = in[t], u = 0;
  { if (t & 1) goto L; v += 5; u++; L: v ^= 3; }
  s[t] = v;
  __syncthreads();
  for (unsigned i = 0; i < 5; i++) for (unsigned j = 0; j < 9; j++) { if (i * j > (t & 7)) goto done; v += s[(t + j) & 63]; if (j == 70) { done: v++; break; } }
  __syncthreads();
  for (unsigned k = 0; k < n; k++) { if (t > 60) { inner: v += k; if ((v & 1) && u++ < 9) { v *= 2; goto inner; } } __syncthreads(); s[t] = v; __syncthreads(); }
  if (t < 70) { unsigned c = 0; again: c++; u += 2; if (c < 3) goto again; } else { goto out_; out_: v = 0; }
  __syncthreads();
  out[blockIdx.x * 64 + t] = v + s[63 - t] + u;
}
__global__ void k_goto_free(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x, i = 0; unsigned *p = out;
  if (t >= 180) goto end;
  if (in[t & 63] & 1) goto odd;
  p += t; *p = 3;
  goto next;
odd:
  for (unsigned j = blockIdx.x * blockDim.x + threadIdx.x; j < 192; j += 192) out[j] = j + i;
  p = out + t;
next:
  i++; *p += i * n;
  if (i < 4) goto next;
  if (t < n) { label: i++; if (i < 20) goto label; *p = i; }
  atomicAdd(total + (i & 3), i);
  return;
end:
  out[t] = i + 5;
}
__global__ void k_goto_into(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = blockIdx.x * blockDim.x + threadIdx.x, v = 0;
  if (t & 1) goto inside;
  v = 3;
  if (t < 100) { v++; inside: v += 10; }
  out[t] = v;
}
__global__ void k_goto_shared(unsigned *out, const unsigned *in, unsigned *total, unsigned n) {
  unsigned t = threadIdx.x, v = 0;
  if (t & 1) goto skip;
  __shared__ unsigned s[64];
  s[t] = in[t]; v = s[t];
skip:
  out[blockIdx.x * 64 + t] = v;
  switch (t & 3) { case 0: goto skip2; case 1: v++; default: v += 2; }
skip2:
  out[blockIdx.x * 64 + t] += v;
}
