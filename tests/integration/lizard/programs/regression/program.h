#ifndef PROGRAM_H
#define PROGRAM_H
#define BLOCK_MAX 1024

struct global_params_s { int dims; int max_iterations; float rate; float tolerance; };
typedef struct global_params_s global_params_t;
typedef struct { int num_points; float **points; float *targets; } dataset_t;
typedef struct { int done; int iteration; float *weights; double loss; } global_state_t;
typedef struct { float *gradient; double loss; unsigned int count; } agg_res_t;

#ifdef __cplusplus
extern "C" {
#endif
void run_iteration(int block_size, global_params_t *global_params, dataset_t *dataset, global_state_t *global_state, agg_res_t *result);
void setup_dataset(dataset_t *dataset, global_params_t *global_params);
void free_dataset(dataset_t *dataset, global_params_t *global_params);
void setup_global_state(global_state_t *global_state, global_params_t *global_params);
void free_global_state(global_state_t *global_state, global_params_t *global_params);
void setup_aggregation_result(agg_res_t *aggregation_result, global_params_t *global_params);
void free_aggregation_result(agg_res_t *aggregation_result, global_params_t *global_params);
#ifdef __cplusplus
}
#endif
#endif
