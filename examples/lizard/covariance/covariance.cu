#include "program.h"

#include <cuda_runtime.h>

// A block for each pair of columns; its threads walk over the rows and add up in shared memory.
__global__ void multiply(double **rows, int n, int dims, double *sums, double **products) {
    extern __shared__ double partial[];
    int a = blockIdx.x, b = blockIdx.y;
    double total = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) total += rows[i][a] * (b < dims ? rows[i][b] : 1.0);
    partial[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < blockDim.x; t++) total += partial[t];
        if (b < dims) products[a][b] = total;
        else sums[a] = total;
    }
}

template <class T> static T *managed(int count) {
    T *memory = nullptr;
    cudaMallocManaged(&memory, count * sizeof(T));
    return memory;
}

static double **matrix(int rows, int columns) {
    double **found = managed<double *>(rows);
    for (int i = 0; found && i < rows; i++) found[i] = managed<double>(columns);
    return found;
}

static void free_matrix(double **rows, int count) {
    for (int i = 0; i < count; i++) cudaFree(rows[i]);
    cudaFree(rows);
}

void run_iteration(int block_size, params *p, data *d, state *s, result *r) {
    dim3 grid(p->dims, p->dims + 1);
    multiply<<<grid, block_size, block_size * sizeof(double)>>>(d->rows, d->n, p->dims, r->sums, r->products);
    cudaDeviceSynchronize();
    r->count = d->n;
}

void setup_dataset(data *d, params *p) { d->rows = matrix(d->n, p->dims); }
void free_dataset(data *d, params *p) { free_matrix(d->rows, d->n); }

void setup_global_state(state *s, params *p) {
    s->mean = managed<double>(p->dims);
    s->covariance = matrix(p->dims, p->dims);
}
void free_global_state(state *s, params *p) {
    cudaFree(s->mean);
    free_matrix(s->covariance, p->dims);
}

void setup_aggregation_result(result *r, params *p) {
    r->sums = managed<double>(p->dims);
    r->products = matrix(p->dims, p->dims);
}
void free_aggregation_result(result *r, params *p) {
    cudaFree(r->sums);
    free_matrix(r->products, p->dims);
}
