// A program that crashes on purpose: what travels between Python and the kernel.
#ifndef CRASH_H
#define CRASH_H

typedef struct {
    int dims;
    int max_iterations;
    int crash_iteration;  // the iteration that writes where nothing is
} global_params_t;

typedef struct {
    int num_points;
    float *points;  // num_points rows of dims numbers
} dataset_t;

typedef struct {
    int done;
    int iteration;
    double *sums;
} global_state_t;

typedef struct {
    double *sums;
} agg_res_t;

extern "C" {
void run_iteration(int block_size, global_params_t *params, dataset_t *dataset, global_state_t *state,
                   agg_res_t *result);
void setup_dataset(dataset_t *dataset, global_params_t *params);
void free_dataset(dataset_t *dataset, global_params_t *params);
void setup_global_state(global_state_t *state, global_params_t *params);
void free_global_state(global_state_t *state, global_params_t *params);
void setup_aggregation_result(agg_res_t *result, global_params_t *params);
void free_aggregation_result(agg_res_t *result, global_params_t *params);
}

#endif
