// Kernels in the style of public collections, each with the host code that launches it.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_runtime.h>

namespace cg = cooperative_groups;
#define GRID(n, b) (((n) + (b) - 1) / (b))

// Copies to the device and back, as such programs do.
template <class T> T *to_device(const T *host, int n) {
    T *device;
    cudaMalloc((void **)&device, n * sizeof(T));
    cudaMemcpy(device, host, n * sizeof(T), cudaMemcpyHostToDevice);
    return device;
}
template <class T> void to_host(T *host, T *device, int n) {
    cudaMemcpy(host, device, n * sizeof(T), cudaMemcpyDeviceToHost);
    cudaFree(device);
}

// Speckle-reducing diffusion: sums by halves, coefficients, update with clamped neighbours.
__global__ void srad_sums(const float *image, float *sums, float *squares, int n) {
    __shared__ float a[256], b[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    a[t] = b[t] = 0.0f;
    if (i < n) {
        float v = image[i];
        a[t] = v;
        b[t] = v * v;
    }
    __syncthreads();
    for (int half = 1; half < 256; half *= 2) {
        if ((t + 1) % (2 * half) == 0) {
            a[t] = a[t] + a[t - half];
            b[t] = b[t] + b[t - half];
        }
        __syncthreads();
    }
    if (t == 255) {
        atomicAdd(sums, a[t]);
        atomicAdd(squares, b[t]);
    }
}
__global__ void srad_coefficients(const float *image, float *c, float *dn, float *ds, float *dw, float *de, int rows,
                                  int columns, float q0) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= columns || y >= rows) return;
    int at = y * columns + x;
    float v = image[at];
    float n = image[(y == 0 ? y : y - 1) * columns + x] - v, s = image[(y == rows - 1 ? y : y + 1) * columns + x] - v;
    float w = image[y * columns + (x == 0 ? x : x - 1)] - v, e = image[y * columns + min(x + 1, columns - 1)] - v;
    float g2 = (n * n + s * s + w * w + e * e) / (v * v), l = (n + s + w + e) / v;
    float num = 0.5f * g2 - 1.0f / 16.0f * (l * l), den = 1 + 0.25f * l;
    float q = num / (den * den);
    float found = 1.0f / (1.0f + (q - q0) / (q0 * (1 + q0)));
    c[at] = found < 0 ? 0 : found > 1 ? 1 : found;
    dn[at] = n, ds[at] = s, dw[at] = w, de[at] = e;
}
__global__ void srad_update(float *image, const float *c, const float *dn, const float *ds, const float *dw,
                            const float *de, int rows, int columns, float lambda) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < columns && y < rows) {
        int at = y * columns + x;
        float south = c[min(y + 1, rows - 1) * columns + x], east = c[y * columns + min(x + 1, columns - 1)];
        image[at] += 0.25f * lambda * (c[at] * dn[at] + south * ds[at] + c[at] * dw[at] + east * de[at]);
    }
}
extern "C" int srad_run(float *image, int rows, int columns, int turns) {
    int n = rows * columns;
    float *d = to_device(image, n), *work[5], *sums;
    for (auto &each : work) cudaMalloc(&each, n * sizeof(float));
    cudaMalloc(&sums, 2 * sizeof(float));
    dim3 threads(16, 16), grid(GRID(columns, 16), GRID(rows, 16));
    for (int turn = 0; turn < turns; turn++) {
        cudaMemset(sums, 0, 2 * sizeof(float));
        srad_sums<<<GRID(n, 256), 256>>>(d, sums, sums + 1, n);
        float total[2];
        cudaMemcpy(total, sums, sizeof total, cudaMemcpyDeviceToHost);
        float mean = total[0] / n, variance = total[1] / n - mean * mean;
        srad_coefficients<<<grid, threads>>>(d, work[0], work[1], work[2], work[3], work[4], rows, columns,
                                             variance / (mean * mean));
        srad_update<<<grid, threads>>>(d, work[0], work[1], work[2], work[3], work[4], rows, columns, 0.5f);
    }
    for (auto each : work) cudaFree(each);
    cudaFree(sums);
    to_host(image, d, n);
    return cudaGetLastError();
}

// A layer of a net: products in a tile, added up along one side of it.
#define SIDE 16
__global__ void layer_forward(const float *input, const float *weights, float *partial, int hidden) {
    int by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    int index = hidden * SIDE * by + hidden * ty + tx;
    __shared__ float node[SIDE];
    __shared__ float matrix[SIDE][SIDE];
    if (tx == 0) node[ty] = input[SIDE * by + ty];
    __syncthreads();
    matrix[ty][tx] = weights[index];
    __syncthreads();
    matrix[ty][tx] = matrix[ty][tx] * node[ty];
    __syncthreads();
    for (int i = 1; i <= __log2f(SIDE); i++) {
        int power = __powf(2, i);
        if (ty % power == 0) matrix[ty][tx] = matrix[ty][tx] + matrix[ty + power / 2][tx];
        __syncthreads();
    }
    if (tx == 0)
        for (int j = 0; j < SIDE; j++) partial[by * hidden + j] = matrix[0][j];
}
extern "C" int layer_run(const float *input, const float *weights, float *partial, int n) {
    float *x = to_device(input, n), *w = to_device(weights, n * SIDE), *p;
    cudaMalloc(&p, n * sizeof(float));
    layer_forward<<<dim3(1, n / SIDE), dim3(SIDE, SIDE)>>>(x, w, p, SIDE);
    cudaFree(x);
    cudaFree(w);
    to_host(partial, p, n);
    return cudaGetLastError();
}

// Elimination: a launch for the multipliers and one for the rows, for each column.
__global__ void multipliers(float *m, const float *a, int size, int t) {
    if (threadIdx.x + blockIdx.x * blockDim.x >= size - 1 - t) return;
    *(m + size * (blockDim.x * blockIdx.x + threadIdx.x + t + 1) + t) =
        *(a + size * (blockDim.x * blockIdx.x + threadIdx.x + t + 1) + t) / *(a + size * t + t);
}
__global__ void eliminate(float *m, float *a, float *b, int size, int t) {
    if (threadIdx.x + blockIdx.x * blockDim.x >= size - 1 - t) return;
    if (threadIdx.y + blockIdx.y * blockDim.y >= size - t) return;
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    a[size * (x + 1 + t) + (y + t)] -= m[size * (x + 1 + t) + t] * a[size * t + (y + t)];
    if (y == 0) b[x + 1 + t] -= m[size * (x + 1 + t) + (y + t)] * b[t];
}
extern "C" int gaussian_run(float *a, float *b, int n) {
    float *da = to_device(a, n * n), *db = to_device(b, n), *m;
    cudaMalloc(&m, n * n * sizeof(float));
    cudaMemset(m, 0, n * n * sizeof(float));
    for (int t = 0; t < n - 1; t++) {
        multipliers<<<GRID(n, 64), 64>>>(m, da, n, t);
        eliminate<<<dim3(GRID(n, 8), GRID(n, 8)), dim3(8, 8)>>>(m, da, db, n, t);
        cudaDeviceSynchronize();
    }
    cudaFree(m);
    to_host(a, da, n * n);
    to_host(b, db, n);
    return cudaGetLastError();
}

// A particle filter's step: random numbers of a generator in memory, weights, resampling.
__device__ float uniform(int *seed, int index) {
    int number = 1103515245 * seed[index] + 12345;
    seed[index] = number % 2147483647;
    return fabsf(seed[index] / (float)2147483647);
}
__device__ int find_index(const float *cumulated, int length, float value) {
    int low = 0, high = length - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (cumulated[middle] >= value) high = middle;
        else low = middle + 1;
    }
    return low;
}
__global__ void particle_weights(float *x, float *weights, int *seed, float seen, int n, float *total) {
    __shared__ float block[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    block[threadIdx.x] = 0;
    __syncthreads();
    if (i < n) {
        x[i] += uniform(seed, i) - 0.5f;
        float d = x[i] - seen;
        weights[i] = expf(-0.5f * d * d);
        block[threadIdx.x] = weights[i];
    }
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (threadIdx.x < s) block[threadIdx.x] += block[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) total[blockIdx.x] = block[0];
}
__global__ void particle_cumulate(float *weights, float *cumulated, const float *totals, int blocks, int n) {
    __shared__ float total;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int b = 0; b < blocks; b++) sum += totals[b];
        total = sum;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) weights[i] = weights[i] / total;
    __syncthreads();
    if (threadIdx.x == 0) {
        cumulated[0] = weights[0];
        for (int i = 1; i < n; i++) cumulated[i] = weights[i] + cumulated[i - 1];
    }
}
__global__ void particle_choose(const float *x, const float *cumulated, float *chosen, int n, float u) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) chosen[i] = x[find_index(cumulated, n, (i + u) / n)];
    __syncthreads();
}
extern "C" int particle_run(float *x, float *chosen, float *cumulated, int *seed, float seen, int n) {
    int blocks = GRID(n, 128);
    float *dx = to_device(x, n), *w, *c, *out, *totals;
    int *ds = to_device(seed, n);
    cudaMalloc(&w, n * sizeof(float)), cudaMalloc(&c, n * sizeof(float)), cudaMalloc(&out, n * sizeof(float));
    cudaMalloc(&totals, blocks * sizeof(float));
    particle_weights<<<blocks, 128>>>(dx, w, ds, seen, n, totals);
    particle_cumulate<<<1, 256>>>(w, c, totals, blocks, n);
    particle_choose<<<blocks, 128>>>(dx, c, out, n, 0.5f);
    cudaFree(w), cudaFree(totals);
    to_host(x, dx, n), to_host(chosen, out, n), to_host(cumulated, c, n), to_host(seed, ds, n);
    return cudaGetLastError();
}

// Stream clustering: what is won by opening a centre at a point.
struct Point {
    float weight;
    long assign;
    float cost;
};
__device__ float squared(int a, int b, int n, int dims, const float *coordinates) {
    float sum = 0.0f;
    for (int i = 0; i < dims; i++) {
        float d = coordinates[i * n + a] - coordinates[i * n + b];
        sum += d * d;
    }
    return sum;
}
__global__ void gain(int n, int dims, long x, Point *p, int centres, const int *table, float *work, const float *at,
                     bool *switches) {
    const int thread = blockDim.x * blockIdx.x + threadIdx.x;
    if (thread < n) {
        float *lower = &work[thread * (centres + 1)];
        float cost = squared(thread, x, n, dims, at) * p[thread].weight;
        if (cost < p[thread].cost) {
            switches[thread] = 1;
            lower[centres] += cost - p[thread].cost;
        } else {
            lower[table[p[thread].assign]] += p[thread].cost - cost;
        }
    }
}
extern "C" int gain_run(const float *at, const float *weights, const int *assign, const float *cost, const int *table,
                        float *work, unsigned char *switches, int n, int dims, int centres) {
    Point *points;
    cudaMallocManaged(&points, n * sizeof(Point));
    for (int i = 0; i < n; i++) points[i] = {weights[i], assign[i], cost[i]};
    float *da = to_device(at, n * dims), *dw = to_device(work, n * (centres + 1));
    int *dt = to_device(table, n);
    bool *s;
    cudaMalloc(&s, n);
    cudaMemset(s, 0, n);
    gain<<<GRID(n, 128), 128>>>(n, dims, 7, points, centres, dt, dw, da, s);
    to_host(work, dw, n * (centres + 1)), to_host((bool *)switches, s, n);
    cudaFree(points), cudaFree(da), cudaFree(dt);
    return cudaGetLastError();
}

// Particles in boxes: a block for each box, its neighbours brought to shared memory one by one.
#define IN_BOX 40
struct Four { double v, x, y, z; };
struct Box { int number, first, neighbours, neighbour[8]; };
__global__ void box_forces(double alpha, int boxes, const Box *box, const Four *r, const double *q, Four *f) {
    int b = blockIdx.x, t = threadIdx.x, wtx = t;
    if (b < boxes) {
        __shared__ Four ours[IN_BOX], theirs[IN_BOX];
        __shared__ double charge[IN_BOX];
        int first = box[b].first, pointer = 0;
        const double a2 = 2.0 * alpha * alpha;
        while (wtx < IN_BOX) {
            ours[wtx] = r[first + wtx];
            wtx = wtx + blockDim.x;
        }
        wtx = t;
        __syncthreads();
        for (int k = 0; k < 1 + box[b].neighbours; k++) {
            pointer = k == 0 ? b : box[b].neighbour[k - 1];
            const int other = box[pointer].first;
            while (wtx < IN_BOX) {
                theirs[wtx] = r[other + wtx];
                charge[wtx] = q[other + wtx];
                wtx = wtx + blockDim.x;
            }
            wtx = t;
            __syncthreads();
            while (wtx < IN_BOX) {
                for (int j = 0; j < IN_BOX; j++) {
                    double d2 = ours[wtx].v + theirs[j].v -
                                (ours[wtx].x * theirs[j].x + ours[wtx].y * theirs[j].y + ours[wtx].z * theirs[j].z);
                    double e = exp(-a2 * d2), fs = 2.0 * e;
                    Four d = {0, ours[wtx].x - theirs[j].x, ours[wtx].y - theirs[j].y, ours[wtx].z - theirs[j].z};
                    f[first + wtx].v += charge[j] * e;
                    f[first + wtx].x += charge[j] * fs * d.x;
                    f[first + wtx].y += charge[j] * fs * d.y;
                    f[first + wtx].z += charge[j] * fs * d.z;
                }
                wtx = wtx + blockDim.x;
            }
            wtx = t;
            __syncthreads();
        }
    }
}
extern "C" int boxes_run(const double *r, const double *q, double *f, int boxes) {
    Box *box;
    cudaMallocManaged(&box, boxes * sizeof(Box));
    for (int b = 0; b < boxes; b++) {
        box[b] = {b, b * IN_BOX, 0, {}};
        for (int o = b - 2; o <= b + 2; o++)
            if (o >= 0 && o < boxes && o != b) box[b].neighbour[box[b].neighbours++] = o;
    }
    int n = boxes * IN_BOX;
    Four *dr = to_device((const Four *)r, n), *df = to_device((const Four *)f, n);
    double *dq = to_device(q, n);
    box_forces<<<boxes, 32>>>(0.5, boxes, box, dr, dq, df);
    to_host((Four *)f, df, n);
    cudaFree(dr), cudaFree(dq), cudaFree(box);
    return cudaGetLastError();
}

// Fluxes over unstructured cells: constants, small structures by reference, functions for both.
#define NNB 4
__constant__ float far_field[4];
__host__ __device__ inline void velocity(float density, const float3 &momentum, float3 &out) {
    out.x = momentum.x / density, out.y = momentum.y / density, out.z = momentum.z / density;
}
__host__ __device__ inline float squared_speed(float3 &v) { return v.x * v.x + v.y * v.y + v.z * v.z; }
__global__ void fluxes(int n, const int *neighbours, const float *normals, const float *variables, float *out) {
    const int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    float density = variables[i], flux = 0.0f;
    float3 momentum = make_float3(variables[i + n], variables[i + 2 * n], variables[i + 3 * n]), v;
    velocity(density, momentum, v);
    float speed = sqrtf(squared_speed(v));
#pragma unroll
    for (int j = 0; j < NNB; j++) {
        int other = neighbours[i + j * n];
        float normal = normals[i + j * n];
        if (other >= 0) {
            float3 m = {variables[other + n], variables[other + 2 * n], variables[other + 3 * n]}, w;
            velocity(variables[other], m, w);
            flux += normal * 0.5f * (speed + sqrtf(squared_speed(w)));
        } else if (other == -1) {
            flux += normal * v.y;
        } else if (other == -2) {
            flux += normal * far_field[j];
        }
    }
    out[i] = flux;
}
extern "C" int flux_run(const int *neighbours, const float *normals, const float *variables, const float *far, float *out,
                        int n) {
    cudaMemcpyToSymbol(far_field, far, sizeof far_field);
    int *dn = to_device(neighbours, n * NNB);
    float *dm = to_device(normals, n * NNB), *dv = to_device(variables, n * 4), *dout = to_device(out, n);
    fluxes<<<GRID(n, 192), 192>>>(n, dn, dm, dv, dout);
    to_host(out, dout, n);
    cudaFree(dn), cudaFree(dm), cudaFree(dv);
    return cudaGetLastError();
}

// A search tree of wide nodes: a block goes down for each query.
#define ORDER 64
struct Node { int keys[ORDER + 1], indices[ORDER + 1]; };
__global__ void find(long height, const Node *nodes, const int *query, int *answer) {
    int t = threadIdx.x, b = blockIdx.x;
    __shared__ int current, next;
    if (t == 0) current = next = 0;
    __syncthreads();
    for (int level = 0; level < height; level++) {
        if (nodes[current].keys[t] <= query[b] && nodes[current].keys[t + 1] > query[b]) {
            if (nodes[current].indices[t] >= 0) next = nodes[current].indices[t];
        }
        __syncthreads();
        if (threadIdx.x == 0) current = next;
        __syncthreads();
    }
    if (nodes[current].keys[t] == query[b]) answer[b] = nodes[current].indices[t];
}
extern "C" int find_run(const int *nodes, int count, long height, const int *query, int *answer, int queries) {
    Node *dn = to_device((const Node *)nodes, count);
    int *dq = to_device(query, queries), *da = to_device(answer, queries);
    find<<<queries, ORDER>>>(height, dn, dq, da);
    to_host(answer, da, queries);
    cudaFree(dn), cudaFree(dq);
    return cudaGetLastError();
}

// Haar wavelets: halves of the threads go on, level by level.
template <int N> __global__ void haar(const float *in, float *out, int levels) {
    __shared__ float s[N];
    const int t = threadIdx.x, base = blockIdx.x * N;
    s[t] = in[base + t];
    s[t + N / 2] = in[base + t + N / 2];
    __syncthreads();
    int active = N / 2;
    for (int level = 0; level < levels; level++) {
        float a = 0, d = 0;
        if (t < active) {
            a = (s[2 * t] + s[2 * t + 1]) * 0.70710678f;
            d = (s[2 * t] - s[2 * t + 1]) * 0.70710678f;
        }
        __syncthreads();
        if (t < active) {
            s[t] = a;
            out[base + active + t] = d;
        }
        __syncthreads();
        active >>= 1;
    }
    if (t < 2 * active) out[base + t] = s[t];
    if (active == 0 && t == 0) out[base] = s[0];
}
extern "C" int haar_run(const float *in, float *out, int n, int levels) {
    float *d = to_device(in, n), *o = to_device(out, n);
    haar<128><<<n / 128, 64>>>(d, o, levels);
    cudaFree(d);
    to_host(out, o, n);
    return cudaGetLastError();
}

// Picks out elements: a vote, a place for the warp by its leader, a place for each lane.
__global__ void compact(const int *in, int *out, int *count, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < GRID(n, 32) * 32; i += gridDim.x * blockDim.x) {
        int v = i < n ? in[i] : 0, lane = threadIdx.x & 31;
        bool wanted = i < n && v % 3 == 0;
        unsigned mask = __ballot_sync(0xffffffff, wanted);
        int at = 0;
        if (lane == 0 && mask) at = atomicAdd(count, __popc(mask));
        at = __shfl_sync(0xffffffff, at, 0);
        if (wanted) out[at + __popc(mask & ((1u << lane) - 1))] = v;
    }
}
extern "C" int compact_run(const int *in, int *out, int *count, int n) {
    int *d = to_device(in, n), *o = to_device(out, n), *c = to_device(count, 1);
    compact<<<4, 128>>>(d, o, c, n);
    cudaFree(d);
    to_host(out, o, n), to_host(count, c, 1);
    return cudaGetLastError();
}

// The nearest of each row: a list of each thread's own, then reductions of tiles and match.
#define NEAREST 5
__global__ void nearest(const float *x, const float *y, int *index, int n, int m) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best[NEAREST];
    int who[NEAREST];
    for (int k = 0; k < NEAREST; k++) best[k] = 3e38f, who[k] = -1;
    for (int j = 0; j < m; j++) {
        float d = fabsf(x[i] - y[j]);
        if (d >= best[NEAREST - 1]) continue;
        int k = NEAREST - 1;
        while (k > 0 && best[k - 1] > d) {
            best[k] = best[k - 1], who[k] = who[k - 1];
            k--;
        }
        best[k] = d, who[k] = j;
    }
    for (int k = 0; k < NEAREST; k++) index[i * NEAREST + k] = who[k];
}
extern "C" int nearest_run(const float *x, const float *y, int *index, int n, int m) {
    float *dx = to_device(x, n), *dy = to_device(y, m);
    int *di = to_device(index, n * NEAREST);
    nearest<<<GRID(n, 96), 96>>>(dx, dy, di, n, m);
    cudaFree(dx), cudaFree(dy);
    to_host(index, di, n * NEAREST);
    return cudaGetLastError();
}

// Reductions of tiles by several operations, and lanes of equal value.
__global__ void tiles(const int *x, int *sum, int *most, int *same, int *all) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = x[i];
    unsigned u = v;
    sum[i] = cg::reduce(tile, v, cg::plus<int>());
    most[i] = cg::reduce(tile, v, cg::greater<int>());
    same[i] = __match_any_sync(0xffffffff, v);
    int equal = 0;
    __match_all_sync(0xffffffff, v, &equal);
    all[i] = equal + 2 * __reduce_add_sync(0xffffffff, u);
}
extern "C" int tiles_run(const int *x, int *sum, int *most, int *same, int *all, int n) {
    tiles<<<n / 128, 128>>>(x, sum, most, same, all);
    return cudaGetLastError();
}

// Votes after some threads have returned.
__global__ void votes_late(const int *x, unsigned *ballot, int *any, int *all, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    ballot[i] = __ballot_sync(0xffffffff, x[i] > 50);
    any[i] = __any_sync(0xffffffff, x[i] > 90);
    all[i] = __all_sync(0xffffffff, x[i] > 5);
    count[i] = __syncthreads_count(x[i] > 50);
    int most = x[i];
    for (int d = 1; d < 32; d *= 2) most = max(most, __shfl_xor_sync(0xffffffff, most, d));
    any[i] += 2 * __syncthreads_or(most > 97) + 4 * __syncthreads_and(x[i] > 0);
}
extern "C" int votes_late_run(const int *x, unsigned *ballot, int *any, int *all, int *count, int n) {
    votes_late<<<GRID(n, 128), 128>>>(x, ballot, any, all, count, n);
    return cudaGetLastError();
}

// Queens on a board: recursion on the device.
__device__ int place(int size, int row, unsigned columns, unsigned left, unsigned right) {
    if (row == size) return 1;
    int found = 0;
    for (int c = 0; c < size; c++) {
        unsigned bit = 1u << c;
        if ((columns | left | right) & bit) continue;
        found += place(size, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return found;
}
__global__ void queens(int size, int *total) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (threadIdx.x < size) {
        unsigned bit = 1u << threadIdx.x;
        atomicAdd(&sum, place(size, 1, bit, bit << 1, bit >> 1));
    }
    __syncthreads();
    if (!threadIdx.x) *total = sum;
}
extern "C" int queens_run(int size, int *total) {
    int *d = to_device(total, 1);
    queens<<<1, 32>>>(size, d);
    to_host(total, d, 1);
    return cudaGetLastError();
}

// Blocks that are run as larger ones, in grids of any size.
__global__ void places(int *at, int *turns, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    for (int j = i; j < n; j += gridDim.x * blockDim.x) {
        at[row * n + j] = i;
        atomicAdd(&turns[row], 1);
    }
}
__global__ void once(int *at, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    at[i] += i;
}
extern "C" int places_run(int *at, int *turns, int *seen, int n, int blocks, int threads, int rows) {
    int *a = to_device(at, n * rows), *t = to_device(turns, rows), *s = to_device(seen, n);
    places<<<dim3(blocks, rows), threads>>>(a, t, n);
    once<<<GRID(n, threads), threads>>>(s, n);
    to_host(at, a, n * rows), to_host(turns, t, rows), to_host(seen, s, n);
    return cudaGetLastError();
}
