// The four structures hold arrays of fixed length; only the data are behind a pointer.
#include "program.h"

__global__ void count(const float *values, int n, global_params_t params, int *counts, unsigned int *outside) {
    __shared__ int mine[MAX_BINS];
    for (int b = threadIdx.x; b < MAX_BINS; b += blockDim.x) mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        int bin = (int)floorf((values[i] - params.low) / (params.high - params.low) * params.bins);
        if (bin < 0 || bin >= params.bins) atomicAdd(outside, 1u);
        else atomicAdd(&mine[bin], 1);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < MAX_BINS; b += blockDim.x)
        if (mine[b]) atomicAdd(&counts[b], mine[b]);
}

extern "C" void run_iteration(int block_size, global_params_t *params, dataset_t *dataset,
                              global_state_t *, agg_res_t *result) {
    agg_res_t *on_device;
    cudaMalloc(&on_device, sizeof(agg_res_t));
    cudaMemset(on_device, 0, sizeof(agg_res_t));
    count<<<8, block_size>>>(dataset->values, dataset->num_points, *params, on_device->counts,
                             &on_device->outside);
    cudaMemcpy(result, on_device, sizeof(agg_res_t), cudaMemcpyDeviceToHost);
    cudaFree(on_device);
}

extern "C" void setup_dataset(dataset_t *dataset, global_params_t *) {
    cudaMallocManaged(&dataset->values, dataset->num_points * sizeof(float));
}
extern "C" void free_dataset(dataset_t *dataset, global_params_t *) { cudaFree(dataset->values); }
extern "C" void setup_global_state(global_state_t *, global_params_t *) {}
extern "C" void free_global_state(global_state_t *, global_params_t *) {}
extern "C" void setup_aggregation_result(agg_res_t *, global_params_t *) {}
extern "C" void free_aggregation_result(agg_res_t *, global_params_t *) {}
