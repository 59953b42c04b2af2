#include "program.h"

#include <cuda_runtime.h>

int setup_dataset(odd::Points *points, Parameters *p) {
    points->label = "odd";
    return cudaMallocManaged(&points->values, points->num_points * p->dims * sizeof(float)) |
           cudaMallocManaged(&points->weights, points->num_points * sizeof(weight_t));
}
int free_dataset(odd::Points *points, Parameters *) { return cudaFree(points->values) | cudaFree(points->weights); }
void setup_global_state(odd::State *state, void *p) {
    cudaMallocManaged(&state->sums, ((Parameters *)p)->dims * sizeof(double));
}
void free_global_state(odd::State *state, void *) { cudaFree(state->sums); }
void setup_aggregation_result(odd::Sums *sums, const Parameters *p) {
    cudaMallocManaged(&sums->sums, p->dims * sizeof(double));
}
void free_aggregation_result(odd::Sums *sums, const Parameters *) { cudaFree(sums->sums); }
