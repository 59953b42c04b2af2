// Covariance matrix: rows of pointers in the data and in the result.
#pragma once

struct params { int dims; };
struct data { int n; double **rows; };
struct state { int done; double *mean; double **covariance; };
struct result { long long count; double *sums; double **products; };

extern "C" {
void run_iteration(int block_size, params *p, data *d, state *s, result *r);
void setup_dataset(data *d, params *p);
void free_dataset(data *d, params *p);
void setup_global_state(state *s, params *p);
void free_global_state(state *s, params *p);
void setup_aggregation_result(result *r, params *p);
void free_aggregation_result(result *r, params *p);
}
