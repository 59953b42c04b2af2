// Launches by address, and kernels whose blocks meet.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstring>

namespace cg = cooperative_groups;
using namespace cooperative_groups;
#define CHECK(what) if (!(what)) { printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #what, cudaGetErrorString(cudaPeekAtLastError())); bad++; }

template <class T> __global__ void scaled(T *x, const T factor, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor;
}

// Each round every block needs what all blocks wrote in the one before.
__global__ void diffuse(float *a, float *b, int n, int rounds) {
    cg::grid_group grid = cg::this_grid();
    for (int r = 0; r < rounds; r++) {
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
            b[i] = 0.25f * a[(i + n - 1) % n] + 0.5f * a[i] + 0.25f * a[(i + 1) % n];
        grid.sync();
        float *t = a;
        a = b;
        b = t;
    }
}
// Needs a stack for each thread: the group is handed to a function.
__device__ void all_together(const cg::grid_group &grid) { grid.sync(); }
__global__ void sums(const int *x, int *partial, int *total, int n) {
    cg::grid_group grid = cg::this_grid();
    int sum = 0;
    for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) sum += x[i];
    atomicAdd(&partial[blockIdx.x], sum);
    all_together(grid);
    if (grid.thread_rank() == 0) {
        for (int b = 0; b < gridDim.x; b++) *total += partial[b];
    }
    cg::sync(grid);
    if (threadIdx.x == 0) partial[blockIdx.x] = *total + grid.is_valid();
}
__global__ void added(int *total, int *seen) {
    grid_group grid = this_grid();
    atomicAdd(total, 1);
    grid.sync();
    seen[grid.thread_rank()] = *total;
}
__global__ void some_leave(int *x) {
    if (blockIdx.x == 1) return;
    this_grid().sync();
    x[0] = 1;
}

int main() {
    int bad = 0, n = 10000, most = 0, device = 0, cooperative = 0;
    cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device);
    CHECK(cooperative == 1);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&most, diffuse, 128, 0);
    CHECK(most >= 1);
    float *a, *b, factor = 3;
    cudaMallocManaged(&a, n * sizeof(float));
    cudaMallocManaged(&b, n * sizeof(float));
    for (int i = 0; i < n; i++) a[i] = i % 17;
    void *given[] = {&a, &factor, &n};
    CHECK(cudaLaunchKernel((void *)scaled<float>, dim3((n + 255) / 256), dim3(256), given, 0, 0) == cudaSuccess);
    CHECK(cudaLaunchKernel(scaled<float>, (n + 255) / 256, 256, given) == cudaSuccess);
    cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) CHECK(a[i] == 9.0f * (i % 17));

    float *one = new float[n], *two = new float[n];
    memcpy(one, a, n * sizeof(float));
    int rounds = 7;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < n; i++) two[i] = 0.25f * one[(i + n - 1) % n] + 0.5f * one[i] + 0.25f * one[(i + 1) % n];
        float *t = one;
        one = two;
        two = t;
    }
    void *more[] = {&a, &b, &n, &rounds};
    CHECK(cudaLaunchCooperativeKernel((void *)diffuse, 6, 128, more, 0, 0) == cudaSuccess);
    cudaDeviceSynchronize();
    for (int i = 0; i < n; i++) CHECK(b[i] > one[i] - 1e-3f && b[i] < one[i] + 1e-3f);

    int *x, *partial, *total, wanted = 0, blocks = 9;
    cudaMallocManaged(&x, n * sizeof(int));
    cudaMallocManaged(&partial, 1024 * sizeof(int));
    cudaMallocManaged(&total, sizeof(int));
    for (int i = 0; i < n; i++) wanted += x[i] = i % 91;
    for (int i = 0; i < blocks; i++) partial[i] = 0;
    *total = 0;
    void *sum[] = {&x, &partial, &total, &n};
    CHECK(cudaLaunchCooperativeKernel((const void *)&sums, dim3(blocks), dim3(96), sum, 0, nullptr) == cudaSuccess);
    cudaDeviceSynchronize();
    CHECK(*total == wanted);
    for (int i = 0; i < blocks; i++) CHECK(partial[i] == wanted + 1);

    *total = 0;
    void *count[] = {&total, &partial};
    CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void *>(added), dim3(2, 2), dim3(8, 4), count, 0, 0) == cudaSuccess);
    cudaDeviceSynchronize();
    for (int i = 0; i < 128; i++) CHECK(partial[i] == 128);
#ifdef __SAPWOOD_CUDA__ // on a GPU these would wait for ever, or are up to its size
    void *leave[] = {&x};
    CHECK(cudaLaunchCooperativeKernel((void *)some_leave, 3, 32, leave, 0, 0) == cudaErrorLaunchFailure);
    CHECK(strstr(cudaGetErrorString(cudaGetLastError()), "deadlock in kernel some_leave"));
    cudaDeviceReset();
    some_leave<<<3, 32>>>(x);
    CHECK(strstr(cudaGetErrorString(cudaGetLastError()), "not cooperative"));
    cudaDeviceReset();
    cudaGetLastError();
#endif
    CHECK(cudaLaunchCooperativeKernel((void *)diffuse, 1 << 20, 128, more, 0, 0) == cudaErrorCooperativeLaunchTooLarge);
    CHECK(cudaGetLastError() == cudaErrorCooperativeLaunchTooLarge && cudaGetLastError() == cudaSuccess);
    printf(bad ? "FAILED\n" : "PASSED\n");
    return bad != 0;
}
