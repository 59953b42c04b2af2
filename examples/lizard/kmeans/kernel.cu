#include <cfloat>
#include <cuda_runtime.h>

#include "program.h"

__global__ void assign(global_params_t params, float **points, int num_points, float **centroids,
                       float **updates, int *counts) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num_points) return;
    int nearest = 0;
    float least = FLT_MAX;
    for (int k = 0; k < params.num_centroids; k++) {
        float distance = 0;
        for (int d = 0; d < params.dims; d++) {
            float difference = points[i][d] - centroids[k][d];
            distance += difference * difference;
        }
        if (distance < least) {
            least = distance;
            nearest = k;
        }
    }
    for (int d = 0; d < params.dims; d++) atomicAdd(&updates[nearest][d], points[i][d]);
    atomicAdd(&counts[nearest], 1);
}

static void setup_rows(float ***rows, int count, int dims) {
    cudaMallocManaged(rows, count * sizeof(float *));
    for (int i = 0; i < count; i++) cudaMallocManaged(&(*rows)[i], dims * sizeof(float));
}

static void free_rows(float **rows, int count) {
    for (int i = 0; i < count; i++) cudaFree(rows[i]);
    cudaFree(rows);
}

extern "C" {

void run_iteration(int block_size, global_params_t *global_params, dataset_t *dataset,
                   global_state_t *global_state, agg_res_t *result) {
    int blocks = (dataset->num_points + block_size - 1) / block_size;
    assign<<<blocks, block_size>>>(*global_params, dataset->points, dataset->num_points,
                                   global_state->centroids, result->centroid_updates, result->update_counts);
    cudaDeviceSynchronize();
}

void setup_dataset(dataset_t *dataset, global_params_t *global_params) {
    setup_rows(&dataset->points, dataset->num_points, global_params->dims);
}

void free_dataset(dataset_t *dataset, global_params_t *global_params) {
    free_rows(dataset->points, dataset->num_points);
}

void setup_global_state(global_state_t *global_state, global_params_t *global_params) {
    setup_rows(&global_state->centroids, global_params->num_centroids, global_params->dims);
}

void free_global_state(global_state_t *global_state, global_params_t *global_params) {
    free_rows(global_state->centroids, global_params->num_centroids);
}

void setup_aggregation_result(agg_res_t *result, global_params_t *global_params) {
    setup_rows(&result->centroid_updates, global_params->num_centroids, global_params->dims);
    cudaMallocManaged(&result->update_counts, global_params->num_centroids * sizeof(int));
}

void free_aggregation_result(agg_res_t *result, global_params_t *global_params) {
    free_rows(result->centroid_updates, global_params->num_centroids);
    cudaFree(result->update_counts);
}
}
