// Linear algebra and stencils after PolyBench: gemm, atax, correlation, 2-D convolution, fdtd.
#include <unistd.h>
#include <stdio.h>
#include <time.h>
#include <sys/time.h>
#include <stdlib.h>
#include <stdarg.h>
#include <string.h>
#include <cuda.h>
#if CUDART_VERSION >= 13000  // the name went away there
#define cudaThreadSynchronize cudaDeviceSynchronize
#endif

#define POLYBENCH_TIME 1

//define the error threshold for the results "not matching"
#define PERCENT_DIFF_ERROR_THRESHOLD 0.05
#define GPU_DEVICE 0

/* Problem size */
#define NI 70
#define NJ 65
#define NK 50
#define M 40
#define N 60

/* Thread block dimensions */
#define DIM_THREAD_BLOCK_X 32
#define DIM_THREAD_BLOCK_Y 8

/* Declared constant values for ALPHA and BETA (same as values in PolyBench 2.0) */
#define ALPHA 32412.0f
#define BETA 2123.0f
#define FLOAT_N 3214212.01
#define EPS 0.005
#define sqrt_of_array_cell(x,j) sqrt(x[j])

/* Can switch DATA_TYPE between float and double */
# ifndef DATA_TYPE
typedef float DATA_TYPE;
# endif

float absVal(float a) { if(a < 0) { return (a * -1); } else { return a; } }

float percentDiff(double val1, double val2)
{
	if ((absVal(val1) < 0.01) && (absVal(val2) < 0.01))
	{
		return 0.0f;
	}
	else
	{
    		return 100.0f * (absVal(absVal(val1 - val2) / absVal(val1 + 1e-8)));
	}
} 

void GPU_argv_init()
{
	cudaDeviceProp deviceProp;
	cudaGetDeviceProperties(&deviceProp, GPU_DEVICE);
	printf("setting device %d with name %s\n",GPU_DEVICE,deviceProp.name);
	cudaSetDevice( GPU_DEVICE );
}

__global__ void gemm_kernel(DATA_TYPE *a, DATA_TYPE *b, DATA_TYPE *c)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x;
	int i = blockIdx.y * blockDim.y + threadIdx.y;

	if ((i < NI) && (j < NJ))
	{	
		c[i * NJ + j] *= BETA;
		int k;
		for(k=0; k < NK; k++)
		{
			c[i * NJ + j] += ALPHA * a[i * NK + k] * b[k * NJ +j];
		}
	}
}

__global__ void Convolution2D_kernel(DATA_TYPE *A, DATA_TYPE *B)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x;
	int i = blockIdx.y * blockDim.y + threadIdx.y;

	DATA_TYPE c11, c12, c13, c21, c22, c23, c31, c32, c33;

	c11 = +0.2;  c21 = +0.5;  c31 = -0.8;
	c12 = -0.3;  c22 = +0.6;  c32 = -0.9;
	c13 = +0.4;  c23 = +0.7;  c33 = +0.10;

	if ((i < NI-1) && (j < NJ-1) && (i > 0) && (j > 0))
	{
		B[i * NJ + j] =  c11 * A[(i - 1) * NJ + (j - 1)]  + c21 * A[(i - 1) * NJ + (j + 0)] + c31 * A[(i - 1) * NJ + (j + 1)] 
			+ c12 * A[(i + 0) * NJ + (j - 1)]  + c22 * A[(i + 0) * NJ + (j + 0)] +  c32 * A[(i + 0) * NJ + (j + 1)]
			+ c13 * A[(i + 1) * NJ + (j - 1)]  + c23 * A[(i + 1) * NJ + (j + 0)] +  c33 * A[(i + 1) * NJ + (j + 1)];
	}
}

__global__ void mean_kernel(DATA_TYPE *mean, DATA_TYPE *data)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x + 1;

	if ((j >= 1) && (j < (M+1)))
	{
		mean[j] = 0.0;

		int i;
		for(i=1; i < (N+1); i++)
		{
			mean[j] += data[i*(M+1) + j];
		}
	
		mean[j] /= (DATA_TYPE)N;
	}
}

__global__ void std_kernel(DATA_TYPE *mean, DATA_TYPE *std, DATA_TYPE *data)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x + 1;
	
	if ((j >= 1) && (j < (M+1)))
	{
		std[j] = 0.0;

		int i;
		for(i = 1; i < (N+1); i++)
		{
			std[j] += (data[i*(M+1) + j] - mean[j]) * (data[i*(M+1) + j] - mean[j]);
		}
		std[j] /= (N);
		std[j] = sqrt(std[j]);
		if(std[j] <= EPS) 
		{
			std[j] = 1.0;
		}
	}
}

__global__ void reduce_kernel(DATA_TYPE *mean, DATA_TYPE *std, DATA_TYPE *data)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x + 1;
	int i = blockIdx.y * blockDim.y + threadIdx.y + 1;
	
	if ((i >= 1) && (i < (N+1)) && (j >= 1) && (j < (M+1)))
	{
		data[i*(M+1) + j] -= mean[j];
		data[i*(M+1) + j] /= (sqrt((double)N) * std[j]);
	}
}

__global__ void corr_kernel(DATA_TYPE *symmat, DATA_TYPE *data)
{
	int j1 = blockIdx.x * blockDim.x + threadIdx.x + 1;

	int i, j2;
	if ((j1 >= 1) && (j1 < M))
	{
		symmat[j1*(M+1) + j1] = 1.0;

		for (j2 = (j1 + 1); j2 < (M+1); j2++)
		{
			symmat[j1*(M+1) + j2] = 0.0;

			for(i = 1; i < (N+1); i++)
			{
				symmat[j1*(M+1) + j2] += data[i*(M+1) + j1] * data[i*(M+1) + j2];
			}
			symmat[j2*(M+1) + j1] = symmat[j1*(M+1) + j2];
		}
	}
}

__global__ void atax_kernel1(DATA_TYPE *A, DATA_TYPE *x, DATA_TYPE *tmp)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < NI)
	{
		int j;
		for(j=0; j < NJ; j++)
		{
			tmp[i] += A[i * NJ + j] * x[j];
		}
	}
}

__global__ void fdtd_step1_kernel(DATA_TYPE* _fict_, DATA_TYPE *ex, DATA_TYPE *ey, DATA_TYPE *hz, int t)
{
	int j = blockIdx.x * blockDim.x + threadIdx.x;
	int i = blockIdx.y * blockDim.y + threadIdx.y;

	if ((i < NI) && (j < NJ))
	{
		if (i == 0) 
		{
			ey[i * NJ + j] = _fict_[t];
		}
		else
		{ 
			ey[i * NJ + j] = ey[i * NJ + j] - 0.5f*(hz[i * NJ + j] - hz[(i-1) * NJ + j]);
		}
	}
}

template <typename F> static DATA_TYPE *filled(size_t n, F f)
{
	DATA_TYPE *p;
	cudaMallocManaged((void **)&p, sizeof(DATA_TYPE) * n);
	for (size_t i = 0; i < n; i++) p[i] = f(i);
	return p;
}

int main(int argc, char *argv[])
{
	GPU_argv_init();
	int fail = 0;
	dim3 block(DIM_THREAD_BLOCK_X, DIM_THREAD_BLOCK_Y);
	dim3 grid((size_t)(ceil( ((float)NJ)/ ((float)block.x) )),(size_t)(ceil( ((float)NI)/ ((float)block.y) )));
	{
		DATA_TYPE *A = filled(NI * NK, [](int i) { return i % 7 / 7.f; }), *B = filled(NK * NJ, [](int i) { return i % 5 / 5.f; });
		DATA_TYPE *C = filled(NI * NJ, [](int i) { return i % 3 / 3.f; });
		gemm_kernel<<< grid, block >>>(A, B, C);
		cudaThreadSynchronize();
		for (int i = 0; i < NI; i++)
			for (int j = 0; j < NJ; j++) {
				double sum = (i * NJ + j) % 3 / 3.f * BETA;
				for (int k = 0; k < NK; k++) sum += ALPHA * A[i * NK + k] * B[k * NJ + j];
				if (percentDiff(sum, C[i * NJ + j]) > PERCENT_DIFF_ERROR_THRESHOLD) fail++;
			}
		Convolution2D_kernel <<< grid,block >>> (A, C);
		cudaThreadSynchronize();
	}
	printf("Non-Matching CPU-GPU Outputs Beyond Error Threshold of %4.2f Percent: %d\n", PERCENT_DIFF_ERROR_THRESHOLD, fail);
	{
		DATA_TYPE *data = filled((M + 1) * (N + 1), [](int i) { return (i * 7 % 31) / 31.f; });
		DATA_TYPE *copy = filled((M + 1) * (N + 1), [&](int i) { return data[i]; });
		DATA_TYPE *mean = filled(M + 1, [](int) { return 0; }), *dev = filled(M + 1, [](int) { return 0; });
		DATA_TYPE *symmat = filled((M + 1) * (M + 1), [](int) { return 0; });
		dim3 block1(256, 1), grid1((size_t)(ceil((float)(M)) / ((float)256)) + 1, 1);
		dim3 grid2((M + 31) / 32, (N + 7) / 8);
		mean_kernel<<< grid1, block1 >>>(mean,data);
		std_kernel<<< grid1, block1 >>>(mean,dev,data);
		reduce_kernel<<< grid2, block >>>(mean,dev,data);
		corr_kernel<<< grid1, block1 >>>(symmat,data);
		cudaThreadSynchronize();
		for (int a = 1; a < M; a++)
			for (int b = a + 1; b <= M; b++) {
				double ma = 0, mb = 0, va = 0, vb = 0, c = 0;
				for (int i = 1; i <= N; i++) ma += copy[i * (M + 1) + a] / N, mb += copy[i * (M + 1) + b] / N;
				for (int i = 1; i <= N; i++) {
					double x = copy[i * (M + 1) + a] - ma, y = copy[i * (M + 1) + b] - mb;
					va += x * x, vb += y * y, c += x * y;
				}
				if (absVal(c / sqrt(va * vb) - symmat[a * (M + 1) + b]) > 1e-3) fail++;
			}
	}
	{
		DATA_TYPE *A = filled(NI * NJ, [](int i) { return i % 7; }), *x = filled(NJ, [](int i) { return i; });
		DATA_TYPE *tmp = filled(NI, [](int) { return 0; });
		atax_kernel1<<< (NI + 255) / 256, 256 >>>(A, x, tmp);
		DATA_TYPE *fict = filled(3, [](int i) { return i + 1; }), *ey = filled(NI * NJ, [](int i) { return i; });
		fdtd_step1_kernel<<<grid,block>>>(fict, A, ey, A, 2);
		cudaDeviceSynchronize();
		for (int i = 0; i < NI; i++) {
			double sum = 0;
			for (int j = 0; j < NJ; j++) {
				sum += A[i * NJ + j] * x[j];
				DATA_TYPE e = i ? i * NJ + j - 0.5f * (A[i * NJ + j] - A[(i - 1) * NJ + j]) : 3;
				if (e != ey[i * NJ + j]) fail++;
			}
			if (sum != tmp[i]) fail++;
		}
	}
	printf("%s\n", fail ? "FAILED" : "PASSED");
	return fail;
}
