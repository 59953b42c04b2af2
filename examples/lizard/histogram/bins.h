#pragma once

#define MAX_BINS 64

typedef struct { float low, high; int bins; } global_params_t;
typedef struct { int num_points; double lowest; float *values; } dataset_t;
typedef struct { bool done; long long counted; int counts[MAX_BINS]; } global_state_t;
typedef struct { unsigned int outside; int counts[MAX_BINS]; } agg_res_t;
