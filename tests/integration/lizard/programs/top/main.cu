#include "program.h"
#include <cmath>
__global__ void fill(D d, float limit, float *s, int *x, int n) {
  int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (i < n) { bool in = i < d.num_points && d.score[i] < limit; s[i] = in ? d.score[i] : -INFINITY; x[i] = in ? d.first_index + i : -1; }
}
extern "C" {
void run_iteration(int block_size, P *p, D *d, S *s, R *r) {
  int n = 1; while (n < d->num_points) n <<= 1;
  float *score; int *index;
  cudaMallocManaged(&score, 4 * n); cudaMallocManaged(&index, 4 * n);
  fill<<<(n + block_size - 1) / block_size, block_size>>>(*d, s->limit, score, index, n);
  sort_block(score, index, n);
  r->used = 0;
  for (int i = 0; i < p->k && i < n && index[i] >= 0; i++) { r->score[i] = score[i]; r->index[i] = index[i]; r->used++; }
  cudaFree(score); cudaFree(index);
}
void setup_dataset(D *d, P *) { cudaMallocManaged(&d->score, 4 * d->num_points); }
void free_dataset(D *d, P *) { cudaFree(d->score); }
void setup_global_state(S *, P *) {} void free_global_state(S *, P *) {}
void setup_aggregation_result(R *r, P *p) { cudaMallocManaged(&r->score, 4 * p->k); cudaMallocManaged(&r->index, 4 * p->k); r->used = 0; }
void free_aggregation_result(R *r, P *) { cudaFree(r->score); cudaFree(r->index); }
}
