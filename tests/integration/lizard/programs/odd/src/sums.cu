// Größe: the first threads of a block add up what all its threads have read.
#include "shapes.hpp"
#include "inc/limits.cuh"
#include "inc/unnamed.h"

__global__ void weighted(const float *values, const weight_t *weights, int n, int dims, double scale, double *sums,
		unsigned long long *weight)
{
	extern __shared__ float tile[];
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	for (int d = 0; d < dims; d++)
		tile[threadIdx.x * dims + d] = values[i * dims + d] * weights[i];
	atomicAdd(weight, (unsigned long long)weights[i]);
	__syncthreads();
	int here = min((int)blockDim.x, n - (int)(blockIdx.x * blockDim.x));
	if (threadIdx.x < dims) {
		double total = 0;
		for (int t = 0; t < here; t++)
			total += tile[t * dims + threadIdx.x];
		atomicAdd(&sums[threadIdx.x], total * scale);
	}
}

void run_iteration(const int block_size, const Parameters *p, odd::Points *points, state_p, odd::Sums &result)
{
	size_t shared = BYTES(block_size, p->dims);
	if (p->dims > WIDEST)
		return;
	weighted<<<(points->num_points + block_size - 1) / block_size, block_size, shared>>>(points->values,
		points->weights, points->num_points, p->dims, p->scale, result.sums,
		(unsigned long long *)&result.weight);
	cudaDeviceSynchronize();
}
