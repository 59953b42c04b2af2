#include <stdio.h>
#include <assert.h>
#include "program.h"

#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }
inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort=true)
{
   if (code != cudaSuccess)
   {
      fprintf(stderr,"GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
      if (abort) exit(code);
   }
}

// block reduction; threads past the end contribute nothing
__global__ void gradient_kernel(float **points, float *targets, float *weights, int n, int dims, float *gradient, double *loss, unsigned *count)
{
    extern __shared__ float shared[];
    int tid = threadIdx.x;
    int idx = blockIdx.x * blockDim.x + tid;
    float error = 0;
    if (idx < n) {
        for (int d = 0; d < dims; d++) error += weights[d] * points[idx][d];
        error -= targets[idx];
        atomicInc(count, 0xffffffff);
    }
    for (int d = 0; d <= dims; d++) {
        shared[tid] = idx < n ? (d < dims ? error * points[idx][d] : error * error) : 0;
        __syncthreads();
        for (int s = 1; s < blockDim.x; s *= 2) {
            if (tid % (2 * s) == 0 && tid + s < blockDim.x) shared[tid] += shared[tid + s];
            __syncthreads();
        }
        if (tid == 0) {
            if (d < dims) atomicAdd(gradient + d, shared[0]);
            else atomicAdd(loss, (double)shared[0]);
        }
        __syncthreads();
    }
}

extern "C" {
void run_iteration(int block_size, global_params_t *global_params, dataset_t *dataset, global_state_t *global_state, agg_res_t *result)
{
    assert(block_size <= BLOCK_MAX);
    double *loss; unsigned *count;
    gpuErrchk(cudaMallocManaged(&loss, sizeof(double)));
    gpuErrchk(cudaMallocManaged(&count, sizeof(unsigned)));
    *loss = 0; *count = 0;
    int grid = (int)ceil(dataset->num_points / (float)block_size);
    gradient_kernel<<<grid, block_size, block_size * sizeof(float)>>>(dataset->points, dataset->targets, global_state->weights,
        dataset->num_points, global_params->dims, result->gradient, loss, count);
    gpuErrchk(cudaPeekAtLastError());
    gpuErrchk(cudaDeviceSynchronize());
    result->loss += *loss; result->count += *count;
    cudaFree(loss); cudaFree(count);
}
void setup_dataset(dataset_t *dataset, global_params_t *global_params)
{
    gpuErrchk(cudaMallocManaged((void **)&dataset->points, sizeof(float *) * dataset->num_points));
    for (int i = 0; i < dataset->num_points; i++)
        gpuErrchk(cudaMallocManaged((void **)&dataset->points[i], sizeof(float) * global_params->dims));
    gpuErrchk(cudaMallocManaged(&dataset->targets, sizeof(float) * dataset->num_points));
}
void free_dataset(dataset_t *dataset, global_params_t *global_params)
{
    for (int i = 0; i < dataset->num_points; i++) cudaFree(dataset->points[i]);
    cudaFree(dataset->points); cudaFree(dataset->targets);
}
void setup_global_state(global_state_t *s, global_params_t *p) { gpuErrchk(cudaMallocManaged(&s->weights, sizeof(float) * p->dims)); }
void free_global_state(global_state_t *s, global_params_t *p) { cudaFree(s->weights); }
void setup_aggregation_result(agg_res_t *r, global_params_t *p) { gpuErrchk(cudaMallocManaged(&r->gradient, sizeof(float) * p->dims)); }
void free_aggregation_result(agg_res_t *r, global_params_t *p) { cudaFree(r->gradient); }
}
