#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "program.h"

static void check(cudaError_t error, const char *what) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

__global__ void add_columns(const float *points, double *sums, int num_points, int dims) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num_points) return;
    for (int d = 0; d < dims; d++) atomicAdd(&sums[d], (double)points[i * dims + d]);
}

extern "C" void run_iteration(int block_size, global_params_t *params, dataset_t *dataset,
                              global_state_t *state, agg_res_t *result) {
    int grid = (dataset->num_points + block_size - 1) / block_size;
    add_columns<<<grid, block_size>>>(dataset->points, result->sums, dataset->num_points, params->dims);
    check(cudaGetLastError(), "launch");
    check(cudaDeviceSynchronize(), "add_columns");
}

extern "C" void setup_dataset(dataset_t *dataset, global_params_t *params) {
    size_t bytes = (size_t)dataset->num_points * params->dims * sizeof(float);
    check(cudaMallocManaged(&dataset->points, bytes), "points");
}

extern "C" void free_dataset(dataset_t *dataset, global_params_t *params) { cudaFree(dataset->points); }

extern "C" void setup_global_state(global_state_t *state, global_params_t *params) {
    check(cudaMallocManaged(&state->sums, params->dims * sizeof(double)), "sums of the state");
}

extern "C" void free_global_state(global_state_t *state, global_params_t *params) { cudaFree(state->sums); }

extern "C" void setup_aggregation_result(agg_res_t *result, global_params_t *params) {
    check(cudaMallocManaged(&result->sums, params->dims * sizeof(double)), "sums of the result");
}

extern "C" void free_aggregation_result(agg_res_t *result, global_params_t *params) { cudaFree(result->sums); }
