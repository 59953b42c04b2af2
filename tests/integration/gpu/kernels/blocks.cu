// Kernels whose threads meet at barriers, or not at all.
#include <cuda_runtime.h>
#include "device.cuh"

#define API extern "C"
#define BLOCKS(n, b) (((n) + (b) - 1) / (b))

__constant__ float weights[5];
__device__ int counter;
extern __shared__ float dynamic[];

__global__ void map_kernel(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i] + 1.0f;
}
API int map_run(const float *x, float *y, int n) {
    map_kernel<<<BLOCKS(n, 256), 256>>>(x, y, n);
    return cudaGetLastError();
}

__global__ void stride_kernel(float a, const float *x, float *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        if (x[i] < 0) continue;
        y[i] = a * x[i] + y[i];
    }
}
API int stride_run(const float *x, float *y, int n) { stride_kernel<<<3, 64>>>(0.5f, x, y, n); return cudaGetLastError(); }

__global__ void stencil_kernel(const float *x, float *y, int n) {
    __shared__ float s[128 + 4];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int l = threadIdx.x + 2;
    s[l] = i < n ? x[i] : 0.0f;
    if (threadIdx.x < 2) {
        s[l - 2] = i >= 2 && i - 2 < n ? x[i - 2] : 0.0f;
        s[l + blockDim.x] = i + blockDim.x < n ? x[i + blockDim.x] : 0.0f;
    }
    __syncthreads();
    if (i >= n) return;
    float sum = 0.0f;
    for (int k = -2; k <= 2; k++) sum += weights[k + 2] * s[l + k];
    y[i] = sum;
}
API int stencil_run(const float *x, float *y, int n) {
    float w[5] = {0.1f, 0.2f, 0.4f, 0.2f, 0.1f};
    cudaMemcpyToSymbol(weights, w, sizeof w);
    stencil_kernel<<<BLOCKS(n, 128), 128>>>(x, y, n);
    return cudaGetLastError();
}

__global__ void tree_kernel(const float *x, float *out, int n) {
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    dynamic[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int d = blockDim.x / 2; d > 0; d >>= 1) {
        if (tid < d) {
            dynamic[tid] += dynamic[tid + d];
        }
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = dynamic[0];
}
API int tree_run(const float *x, float *out, int n) {
    tree_kernel<<<BLOCKS(n, 256), 256, 256 * sizeof(float)>>>(x, out, n);
    return cudaGetLastError();
}

// Some threads are gone before the barriers.
__global__ void early_kernel(const int *x, int *out, int n) {
    __shared__ int s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    s[threadIdx.x] = 0;
    if (i >= n) return;
    int v = x[i];
    s[threadIdx.x] = v;
    __syncthreads();
    int next = i + 1 < n && threadIdx.x + 1 < blockDim.x ? s[threadIdx.x + 1] : 0;
    __syncthreads();
    v += next;
    out[i] = v;
}
API int early_run(const int *x, int *out, int n) { early_kernel<<<BLOCKS(n, 64), 64>>>(x, out, n); return cudaGetLastError(); }

__global__ void scan_kernel(const int *x, int *y, int n) {
    __shared__ int s[2][256];
    int t = threadIdx.x, in = 0;
    s[0][t] = t < n ? x[blockIdx.x * n + t] : 0;
    __syncthreads();
    for (int d = 1; d < n; d *= 2) {
        int out = 1 - in;
        s[out][t] = t >= d ? s[in][t] + s[in][t - d] : s[in][t];
        in = out;
        __syncthreads();
    }
    if (t < n) y[blockIdx.x * n + t] = s[in][t];
}
API int scan_run(const int *x, int *y, int rows, int n) { scan_kernel<<<rows, 256>>>(x, y, n); return cudaGetLastError(); }

__global__ void blelloch_kernel(int *data, int n) {
    extern __shared__ int temp[];
    int thid = threadIdx.x;
    int offset = 1;
    temp[2 * thid] = data[2 * thid];
    temp[2 * thid + 1] = data[2 * thid + 1];
    for (int d = n >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (thid < d) {
            int ai = offset * (2 * thid + 1) - 1;
            int bi = offset * (2 * thid + 2) - 1;
            temp[bi] += temp[ai];
        }
        offset *= 2;
    }
    if (thid == 0) temp[n - 1] = 0;
    for (int d = 1; d < n; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (thid < d) {
            int ai = offset * (2 * thid + 1) - 1;
            int bi = offset * (2 * thid + 2) - 1;
            int t = temp[ai];
            temp[ai] = temp[bi];
            temp[bi] += t;
        }
    }
    __syncthreads();
    data[2 * thid] = temp[2 * thid];
    data[2 * thid + 1] = temp[2 * thid + 1];
}
API int blelloch_run(int *data, int n) { blelloch_kernel<<<1, n / 2, n * sizeof(int)>>>(data, n); return cudaGetLastError(); }

__global__ void histogram_kernel(const unsigned char *x, unsigned *bins, int n) {
    __shared__ unsigned s[256];
    s[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&s[x[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], s[threadIdx.x]);
}
API int histogram_run(const unsigned char *x, unsigned *bins, int n) { histogram_kernel<<<5, 256>>>(x, bins, n); return cudaGetLastError(); }

template <int TILE> __global__ void matmul_kernel(const float *a, const float *b, float *c, int n) {
    __shared__ float As[TILE][TILE];
    __shared__ float Bs[TILE][TILE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * TILE + ty, col = blockIdx.x * TILE + tx;
    float sum = 0.0f;
    for (int t = 0; t < (n + TILE - 1) / TILE; t++) {
        As[ty][tx] = row < n && t * TILE + tx < n ? a[row * n + t * TILE + tx] : 0.0f;
        Bs[ty][tx] = t * TILE + ty < n && col < n ? b[(t * TILE + ty) * n + col] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < TILE; k++) sum += As[ty][k] * Bs[k][tx];
        __syncthreads();
    }
    if (row < n && col < n) c[row * n + col] = sum;
}
API int matmul_run(const float *a, const float *b, float *c, int n) {
    dim3 block(16, 16), grid(BLOCKS(n, 16), BLOCKS(n, 16));
    matmul_kernel<16><<<grid, block>>>(a, b, c, n);
    return cudaGetLastError();
}

__global__ void transpose_kernel(const int *x, int *y, int w, int h) {
    __shared__ int tile[16][17];
    int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
    if (i < w && j < h) tile[threadIdx.y][threadIdx.x] = x[j * w + i];
    __syncthreads();
    i = blockIdx.y * 16 + threadIdx.x;
    j = blockIdx.x * 16 + threadIdx.y;
    if (i < h && j < w) y[j * h + i] = tile[threadIdx.x][threadIdx.y];
}
API int transpose_run(const int *x, int *y, int w, int h) {
    transpose_kernel<<<dim3(BLOCKS(w, 16), BLOCKS(h, 16)), dim3(16, 16)>>>(x, y, w, h);
    return cudaGetLastError();
}

__global__ void nbody_kernel(const float4 *p, float4 *force, int n) {
    __shared__ float4 s[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 own = i < n ? p[i] : make_float4(0, 0, 0, 0);
    float3 a = {0.0f, 0.0f, 0.0f};
    for (int base = 0; base < n; base += blockDim.x) {
        s[threadIdx.x] = base + threadIdx.x < n ? p[base + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < blockDim.x; k++) {
            float3 d = make_float3(s[k].x - own.x, s[k].y - own.y, s[k].z - own.z);
            float r = rsqrtf(d.x * d.x + d.y * d.y + d.z * d.z + 0.01f);
            float f = s[k].w * r * r * r;
            a.x += d.x * f, a.y += d.y * f, a.z += d.z * f;
        }
        __syncthreads();
    }
    if (i < n) force[i] = make_float4(a.x, a.y, a.z, 0.0f);
}
API int nbody_run(const float *p, float *f, int n) {
    nbody_kernel<<<BLOCKS(n, 64), 64>>>((const float4 *)p, (float4 *)f, n);
    return cudaGetLastError();
}

__global__ void bitonic_kernel(int *x) {
    __shared__ int s[256];
    unsigned t = threadIdx.x;
    s[t] = x[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned k = 2; k <= blockDim.x; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            unsigned other = t ^ j;
            if (other > t) {
                bool up = (t & k) == 0;
                if ((s[t] > s[other]) == up) {
                    int v = s[t];
                    s[t] = s[other];
                    s[other] = v;
                }
            }
            __syncthreads();
        }
    x[blockIdx.x * blockDim.x + t] = s[t];
}
API int bitonic_run(int *x, int rows) { bitonic_kernel<<<rows, 256>>>(x); return cudaGetLastError(); }

// Rows by pointers, in managed memory; parameters that each thread changes for itself.
__global__ void rows_kernel(float **rows, float *sums, int w) {
    float *row = rows[blockIdx.x];
    float sum = 0.0f;
    row += threadIdx.x;
    w -= threadIdx.x;
    while (w > 0) {
        sum += *row;
        row += blockDim.x;
        w -= blockDim.x;
    }
    atomicAdd(&sums[blockIdx.x], sum);
}
API int rows_run(const float *x, float *sums, int h, int w) {
    float **rows;
    cudaMallocManaged(&rows, h * sizeof(float *));
    for (int i = 0; i < h; i++) {
        cudaMallocManaged(&rows[i], w * sizeof(float));
        cudaMemcpy(rows[i], x + i * w, w * sizeof(float), cudaMemcpyDefault);
    }
    rows_kernel<<<h, 32>>>(rows, sums, w);
    cudaDeviceSynchronize();
    for (int i = 0; i < h; i++) cudaFree(rows[i]);
    cudaFree(rows);
    return cudaGetLastError();
}

// A changed parameter that lives across a barrier.
__global__ void changed_kernel(int *x, int n) {
    __shared__ int s[32];
    n += threadIdx.x;
    s[threadIdx.x] = n;
    __syncthreads();
    x[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x] * 100 + n;
}
API int changed_run(int *x, int blocks) { changed_kernel<<<blocks, 32>>>(x, 7); return cudaGetLastError(); }

template <class T, class F> __global__ void apply_kernel(T *x, F f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    x[i] = f(x[i]);
}
struct Power {
    int times;
    __device__ double operator()(double x) const {
        double y = 1;
        for (int i = 0; i < times; i++) y *= x;
        return y;
    }
};
API int functor_run(double *x, int n) { apply_kernel<<<BLOCKS(n, 128), 128>>>(x, Power{3}, n); return cudaGetLastError(); }

// A kernel handed on as a value.
template <class K> static void run_any(K kernel, int *x, int n) { kernel<<<BLOCKS(n, 32), 32>>>(x, n); }
__global__ void plus_one(int *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1; }
__global__ void times_two(int *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 2; }
API int value_run(int *x, int n) {
    run_any(plus_one, x, n);
    void (*chosen)(int *, int) = n > 0 ? times_two : plus_one;
    chosen<<<BLOCKS(n, 32), 32>>>(x, n);
    return cudaGetLastError();
}

__global__ void cube_kernel(int *x, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    int k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i < nx && j < ny && k < nz) x[(k * ny + j) * nx + i] = i + 100 * j + 10000 * k;
}
API int cube_run(int *x, int nx, int ny, int nz) {
    cube_kernel<<<dim3(BLOCKS(nx, 8), BLOCKS(ny, 4), BLOCKS(nz, 2)), dim3(8, 4, 2)>>>(x, nx, ny, nz);
    return cudaGetLastError();
}

__global__ void counter_kernel(const int *x, int n) {
    int i = global_index();
    if (i < n && x[i] % 3 == 0) atomicAdd(&counter, 1);
}
API int counter_run(const int *x, int n) {
    int zero = 0, found = -1;
    cudaMemcpyToSymbol(counter, &zero, sizeof zero);
    counter_kernel<<<BLOCKS(n, 64), 64>>>(x, n);
    cudaMemcpyFromSymbol(&found, counter, sizeof found);
    return found;
}

__global__ void atomics_kernel(int *x, unsigned *u, float *f, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicMin(&x[0], -i);
    atomicMax(&x[1], i);
    atomicXor(&x[2], i);
    atomicOr(&x[3], 1 << (i % 31));
    atomicSub(&x[4], 2);
    atomicInc(&u[0], 9u);
    int old = x[5], seen;
    do { seen = old; old = atomicCAS(&x[5], seen, seen + 3); } while (old != seen);
    atomicAdd(f, 0.5f);
}
API int atomics_run(int *x, unsigned *u, float *f, int n) { atomics_kernel<<<BLOCKS(n, 64), 64>>>(x, u, f, n); return cudaGetLastError(); }

API int bad_launch_run() {
    map_kernel<<<1, 2000>>>(nullptr, nullptr, 0);
    int first = cudaGetLastError();
    return first * 1000 + cudaGetLastError();
}

// Pointers that live across a barrier, to variables that are named on one side of it only.
struct Shape {
    int side;
    __device__ virtual int area() const { return side; }
};
struct Square : Shape {
    __device__ int area() const override { return side * side; }
};
struct Holder { const int *what; };

__global__ void pointed_kernel(int *x, const int *none) {
    int t = threadIdx.x, number = 10 * t;
    int row[3];
    row[1] = t + 1;
    Square square;
    square.side = t;
    int other = 5 * t;
    int &alias = other;
    const int *p = &number, *q = row + 1, *r = &alias;
    const Shape *shape = &square;
    Holder holder = {&number};
    __syncthreads();
    x[t] = *p + 1000 * *q + shape->area();
    __syncthreads();
    x[t] += *holder.what + *r + (none ? 1 : 0);
}
API int pointed_run(int *x, int n) {
    pointed_kernel<<<1, n>>>(x, 0);
    return cudaGetLastError();
}

// Parameters by value, of which each thread changes its own.
struct Own {
    int a[2], n;
    int *out;
    __device__ void add(int v) { n += v; }
    __device__ int sum() const { return a[0] + a[1] + n; }
};
struct Adder {
    int s;
    __device__ int operator()(int v) { return s += v; }
};
__device__ void raise(int *x, int by) { x[1] += by; }

__global__ void own_kernel(Own p, Adder adder, int m) {
    int t = threadIdx.x;
    p.a[0] += t;
    p.add(2 * t);
    raise(p.a, 3 * t);
    int &by = m;
    by += t;
    adder(t);
    __syncthreads();
    Own local = p;
    local.a[1] += t;
    __syncthreads();
    p.out[t] = p.sum() + 1000 * local.a[1] + m + adder(0);
}
API int own_run(int *x, int n) {
    Own p = {{1, 2}, 3, x};
    Adder adder = {7};
    own_kernel<<<1, n>>>(p, adder, 100);
    return cudaGetLastError() + !isfinite(1.0f);
}
