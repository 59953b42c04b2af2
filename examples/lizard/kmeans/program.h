#ifndef KMEANS_PROGRAM_H
#define KMEANS_PROGRAM_H

struct global_params_t {
    int dims;
    int max_iterations;
    int num_centroids;
    float threshold;
};

struct dataset_t {
    int num_points;
    float **points;
};

struct global_state_t {
    int done;
    int iteration;
    float **centroids;
};

struct agg_res_t {
    float **centroid_updates;  // sums of the points nearest to each centroid
    int *update_counts;        // how many they are
};

extern "C" {
void run_iteration(int block_size, global_params_t *global_params, dataset_t *dataset,
                   global_state_t *global_state, agg_res_t *result);
void setup_dataset(dataset_t *dataset, global_params_t *global_params);
void free_dataset(dataset_t *dataset, global_params_t *global_params);
void setup_global_state(global_state_t *global_state, global_params_t *global_params);
void free_global_state(global_state_t *global_state, global_params_t *global_params);
void setup_aggregation_result(agg_res_t *result, global_params_t *global_params);
void free_aggregation_result(agg_res_t *result, global_params_t *global_params);
}

#endif
