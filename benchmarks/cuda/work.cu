// Kernels as one writes them, and the plain loops of the same work, on one thread and on several.
#include <cuda_runtime.h>

#define BLOCKS(n, b) (((n) + (b) - 1) / (b))
#define TILE 16
#define DIMS 32
#define CENTRES 16
#define BINS 64

__global__ void map_kernel(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
__global__ void stride_kernel(const float *a, const float *b, float *c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) c[i] = a[i] + b[i];
}
__global__ void tree_kernel(const float *x, float *out, int n) {
    __shared__ float s[256];
    int tid = threadIdx.x;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (tid < d) s[tid] += s[tid + d];
        __syncthreads();
    }
    if (tid == 0) atomicAdd(out, s[0]);
}
__device__ float warp_sum(float v) {
    for (int d = 16; d > 0; d /= 2) v += __shfl_down_sync(0xffffffff, v, d);
    return v;
}
__global__ void shuffle_kernel(const float *x, float *out, int n) {
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
    v = warp_sum(v);
    if (threadIdx.x % 32 == 0) atomicAdd(out, v);
}
__global__ void matmul_kernel(const float *a, const float *b, float *c, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = 0; t < n / TILE; t++) {
        As[ty][tx] = a[row * n + t * TILE + tx];
        Bs[ty][tx] = b[(t * TILE + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < TILE; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
__global__ void kmeans_kernel(const float *points, const float *centres, float *sums, int *counts, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int best = 0;
    float least = 3.4e38f;
    for (int k = 0; k < CENTRES; k++) {
        float d = 0.0f;
        for (int j = 0; j < DIMS; j++) {
            float t = points[i * DIMS + j] - centres[k * DIMS + j];
            d += t * t;
        }
        if (d < least) least = d, best = k;
    }
    for (int j = 0; j < DIMS; j++) atomicAdd(&sums[best * DIMS + j], points[i * DIMS + j]);
    atomicAdd(&counts[best], 1);
}
__device__ float warp_scan(float v) {
    int lane = threadIdx.x % 32;
    for (int d = 1; d < 32; d *= 2) {
        float below = __shfl_up_sync(0xffffffff, v, d);
        if (lane >= d) v += below;
    }
    return v;
}
__global__ void scan_kernel(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0.0f;
    v = warp_scan(v);
    if (i < n) out[i] = v;
}
__global__ void stencil_kernel(const float *in, float *out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x > 0 && x < n - 1 && y > 0 && y < n - 1)
        out[y * n + x] = 0.2f * (in[y * n + x] + in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] + in[(y + 1) * n + x]);
}
__global__ void transpose_kernel(const float *in, float *out, int n) {
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(y + j) * n + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void histogram_kernel(const float *a, const float *b, int *bins, int n) {
    __shared__ int own[BINS];
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
        atomicAdd(&own[int(a[i]) * 4 + int(b[i])], 1);
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += blockDim.x) atomicAdd(&bins[i], own[i]);
}
__global__ void bodies_kernel(const float *x, const float *y, float *out, int n) {
    __shared__ float xs[256], ys[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < n; t += 256) {
        xs[threadIdx.x] = x[t + threadIdx.x];
        ys[threadIdx.x] = y[t + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 256; j++) {
            float dx = xs[j] - x[i], dy = ys[j] - y[i], inverse = 1.0f / sqrtf(dx * dx + dy * dy + 0.01f);
            sum += dx * inverse * inverse * inverse;
        }
        __syncthreads();
    }
    out[i] = sum;
}
struct Particle {
    float x, y, u, v;
};
__global__ void particles_kernel(const Particle *in, Particle *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Particle p = in[i];
    p.x += 0.1f * p.u;
    p.y += 0.1f * p.v;
    if (p.x > 1.0f) p.u = -p.u;
    out[i] = p;
}

extern "C" {
void transpose_cuda(const float *in, const float *, float *out, int n) {
    transpose_kernel<<<dim3(n / 32, n / 32), dim3(32, 8)>>>(in, out, n);
}
void transpose_plain(const float *in, const float *, float *out, int n) {
    for (int y = 0; y < n; y++)
        for (int x = 0; x < n; x++) out[x * n + y] = in[y * n + x];
}
void histogram_cuda(const float *a, const float *b, float *out, int n) {
    memset(out, 0, BINS * sizeof(int));
    histogram_kernel<<<64, 256>>>(a, b, (int *)out, n);
}
void histogram_plain(const float *a, const float *b, float *out, int n) {
    int *bins = (int *)out;
    memset(out, 0, BINS * sizeof(int));
    for (int i = 0; i < n; i++) bins[int(a[i]) * 4 + int(b[i])]++;
}
void bodies_cuda(const float *x, const float *y, float *out, int n) { bodies_kernel<<<n / 256, 256>>>(x, y, out, n); }
void bodies_plain(const float *x, const float *y, float *out, int n) {
    for (int i = 0; i < n; i++) {
        float sum = 0.0f;
        for (int j = 0; j < n; j++) {
            float dx = x[j] - x[i], dy = y[j] - y[i], inverse = 1.0f / sqrtf(dx * dx + dy * dy + 0.01f);
            sum += dx * inverse * inverse * inverse;
        }
        out[i] = sum;
    }
}
void particles_cuda(const float *in, const float *, float *out, int n) {
    particles_kernel<<<BLOCKS(n / 4, 256), 256>>>((const Particle *)in, (Particle *)out, n / 4);
}
void particles_plain(const float *in, const float *, float *out, int n) {
    const Particle *from = (const Particle *)in;
    Particle *to = (Particle *)out;
    for (int i = 0; i < n / 4; i++) {
        Particle p = from[i];
        p.x += 0.1f * p.u;
        p.y += 0.1f * p.v;
        if (p.x > 1.0f) p.u = -p.u;
        to[i] = p;
    }
}
void map_cuda(const float *a, const float *b, float *c, int n) { map_kernel<<<BLOCKS(n, 256), 256>>>(a, b, c, n); }
void stride_cuda(const float *a, const float *b, float *c, int n) { stride_kernel<<<256, 256>>>(a, b, c, n); }
void map_plain(const float *a, const float *b, float *c, int n) {
    for (int i = 0; i < n; i++) c[i] = a[i] + b[i];
}
void tree_cuda(const float *x, const float *, float *out, int n) {
    out[0] = 0.0f;
    tree_kernel<<<BLOCKS(n, 256), 256>>>(x, out, n);
}
void shuffle_cuda(const float *x, const float *, float *out, int n) {
    out[0] = 0.0f;
    shuffle_kernel<<<64, 256>>>(x, out, n);
}
void sum_plain(const float *x, const float *, float *out, int n) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum += x[i];
    out[0] = sum;
}
void scan_cuda(const float *x, const float *, float *out, int n) { scan_kernel<<<BLOCKS(n, 256), 256>>>(x, out, n); }
static void scan_part(const float *x, float *out, int first, int last) { // first is that of a warp
    float sum = 0.0f;
    for (int i = first; i < last; i++) out[i] = sum = i % 32 ? sum + x[i] : x[i];
}
void scan_plain(const float *x, const float *, float *out, int n) { scan_part(x, out, 0, n); }
void stencil_cuda(const float *in, const float *, float *out, int n) {
    stencil_kernel<<<dim3(BLOCKS(n, 32), BLOCKS(n, 8)), dim3(32, 8)>>>(in, out, n);
}
static void stencil_rows(const float *in, float *out, int n, int first, int last) {
    for (int y = first; y < last; y++)
        for (int x = 1; x < n - 1; x++)
            out[y * n + x] = 0.2f * (in[y * n + x] + in[y * n + x - 1] + in[y * n + x + 1] + in[(y - 1) * n + x] + in[(y + 1) * n + x]);
}
void stencil_plain(const float *in, const float *, float *out, int n) { stencil_rows(in, out, n, 1, n - 1); }
void matmul_cuda(const float *a, const float *b, float *c, int n) {
    matmul_kernel<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(a, b, c, n);
}
static void matmul_rows(const float *a, const float *b, float *c, int n, int first, int last) {
    for (int i = first; i < last; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0.0f;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
void matmul_plain(const float *a, const float *b, float *c, int n) { matmul_rows(a, b, c, n, 0, n); }
void kmeans_cuda(const float *points, const float *centres, float *sums, int n) {
    int *counts = (int *)(sums + CENTRES * DIMS);
    memset(sums, 0, (CENTRES * DIMS + CENTRES) * sizeof(float));
    kmeans_kernel<<<BLOCKS(n, 256), 256>>>(points, centres, sums, counts, n);
}
void kmeans_plain(const float *points, const float *centres, float *sums, int n) {
    int *counts = (int *)(sums + CENTRES * DIMS);
    memset(sums, 0, (CENTRES * DIMS + CENTRES) * sizeof(float));
    for (int i = 0; i < n; i++) {
        int best = 0;
        float least = 3.4e38f;
        for (int k = 0; k < CENTRES; k++) {
            float d = 0.0f;
            for (int j = 0; j < DIMS; j++) {
                float t = points[i * DIMS + j] - centres[k * DIMS + j];
                d += t * t;
            }
            if (d < least) least = d, best = k;
        }
        for (int j = 0; j < DIMS; j++) sums[best * DIMS + j] += points[i * DIMS + j];
        counts[best]++;
    }
}
}

#include <thread>
#include <vector>

// Calls part(number, first, last) for each part of n things, each on a thread of its own.
template <class Part> void divided(int n, int workers, Part part) {
    std::vector<std::thread> threads;
    for (int w = 1; w < workers; w++)
        threads.emplace_back(part, w, int(int64_t(n) * w / workers), int(int64_t(n) * (w + 1) / workers));
    part(0, 0, n / workers);
    for (auto &thread : threads) thread.join();
}

extern "C" {
void map_threads(const float *a, const float *b, float *c, int n, int workers) {
    divided(n, workers, [=](int, int first, int last) { map_plain(a + first, b + first, c + first, last - first); });
}
void sum_threads(const float *x, const float *, float *out, int n, int workers) {
    std::vector<float> sums(16 * workers); // a line of the cache for each
    divided(n, workers, [&](int w, int first, int last) { sum_plain(x + first, nullptr, &sums[16 * w], last - first); });
    out[0] = 0.0f;
    for (int w = 0; w < workers; w++) out[0] += sums[16 * w];
}
void scan_threads(const float *x, const float *, float *out, int n, int workers) {
    divided(BLOCKS(n, 32), workers, [=](int, int first, int last) { scan_part(x, out, 32 * first, 32 * last < n ? 32 * last : n); });
}
void stencil_threads(const float *in, const float *, float *out, int n, int workers) {
    divided(n - 2, workers, [=](int, int first, int last) { stencil_rows(in, out, n, first + 1, last + 1); });
}
void matmul_threads(const float *a, const float *b, float *c, int n, int workers) {
    divided(n, workers, [=](int, int first, int last) { matmul_rows(a, b, c, n, first, last); });
}
void kmeans_threads(const float *points, const float *centres, float *sums, int n, int workers) {
    const int size = CENTRES * DIMS + CENTRES;
    std::vector<std::vector<float>> parts(workers);
    divided(n, workers, [&](int w, int first, int last) {
        parts[w].resize(size);
        kmeans_plain(points + first * DIMS, centres, parts[w].data(), last - first);
    });
    memset(sums, 0, size * sizeof(float));
    int *counts = (int *)(sums + CENTRES * DIMS);
    for (auto &part : parts) {
        for (int i = 0; i < CENTRES * DIMS; i++) sums[i] += part[i];
        for (int i = 0; i < CENTRES; i++) counts[i] += ((int *)(part.data() + CENTRES * DIMS))[i];
    }
}
}
