#include <cuda_runtime.h>
#include "bodies.h"
#include "helpers.cuh"
static float ***make_cube() {
  float ***c; cudaMallocManaged(&c, 2 * sizeof(float **));
  for (int i = 0; i < 2; i++) { cudaMallocManaged(&c[i], 2 * sizeof(float *)); for (int j = 0; j < 2; j++) cudaMallocManaged(&c[i][j], 2 * sizeof(float)); }
  return c;
}
static void drop_cube(float ***c) { for (int i = 0; i < 2; i++) { for (int j = 0; j < 2; j++) cudaFree(c[i][j]); cudaFree(c[i]); } cudaFree(c); }
__device__ void add(vec3 *to, vec3 v) { atomicAdd(&to->x, v.x); atomicAdd(&to->y, v.y); atomicAdd(&to->z, v.z); }
__global__ void step(body *b, int n, double time, vec3 *moment, double *mass, float ***cube) {
  int i = blockIdx.y * gridDim.x * blockDim.x + blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  vec3 at = b[i].at + (time * b[i].v) + (0.5 * time * time) * CONST_PARAMS.pull;
  add(moment, b[i].mass * at);
  atomicAdd(&mass[b[i].kind == CONST_PARAMS.heavy], b[i].mass);
  atomicAdd(&cube[at.x > 0][at.y > 0][at.z > 0], 1.0f);
}
extern "C" {
void run_iteration(int block_size, global_params_t *p, dataset_t *d, global_state_t *s, agg_res_t *r) {
  cudaMemcpyToSymbol(CONST_PARAMS, p, sizeof *p);
  double *mass; cudaMallocManaged(&mass, 16); mass[0] = mass[1] = 0;
  cudaEvent_t a, b; cudaEventCreate(&a); cudaEventCreate(&b); cudaEventRecord(a);
  step<<<dim3(2, (d->num_points + 2 * block_size - 1) / (2 * block_size)), block_size>>>(d->bodies, d->num_points, s->time, r->moment, mass, r->cube);
  cudaEventRecord(b); cudaEventSynchronize(b);
  float ms; cudaEventElapsedTime(&ms, a, b);
  r->mass[0] += mass[0]; r->mass[1] += mass[1]; r->n += d->num_points;
  cudaFree(mass); cudaEventDestroy(a); cudaEventDestroy(b);
}
void setup_dataset(dataset_t *d, global_params_t *) { cudaMallocManaged(&d->bodies, sizeof(body) * d->num_points); }
void free_dataset(dataset_t *d, global_params_t *) { cudaFree(d->bodies); }
void setup_global_state(global_state_t *s, global_params_t *) { s->cube = make_cube(); }
void free_global_state(global_state_t *s, global_params_t *) { drop_cube(s->cube); }
void setup_aggregation_result(agg_res_t *r, global_params_t *) { cudaMallocManaged(&r->moment, sizeof(vec3)); r->cube = make_cube(); }
void free_aggregation_result(agg_res_t *r, global_params_t *) { cudaFree(r->moment); drop_cube(r->cube); }
}
