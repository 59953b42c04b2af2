#include <cuda_runtime.h>

#include "program.h"

#define THREADS 64

__global__ void assign(const double *centres, const double *points, double *sums, int *counts,
                       int num_points, int k, int dims) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num_points) return;
    int nearest = 0;
    double least = 0;
    for (int c = 0; c < k; c++) {
        double distance = 0;
        for (int d = 0; d < dims; d++) {
            double difference = points[i * dims + d] - centres[c * dims + d];
            distance += difference * difference;
        }
        if (c == 0 || distance < least) {
            least = distance;
            nearest = c;
        }
    }
    atomicAdd(&counts[nearest], 1);
    for (int d = 0; d < dims; d++) atomicAdd(&sums[nearest * dims + d], points[i * dims + d]);
}

void pin(double *memory, long bytes) { cudaHostRegister(memory, bytes, cudaHostRegisterDefault); }
void unpin(double *memory) { cudaHostUnregister(memory); }

const char *assign_points(const double *centres, const double *points, double *sums, int *counts,
                          int num_points, int k, int dims) {
    double *on_device, *device_centres, *device_sums;
    int *device_counts;
    size_t number = sizeof(double);
    cudaMalloc(&on_device, num_points * dims * number);
    cudaMalloc(&device_centres, k * dims * number);
    cudaMalloc(&device_sums, k * dims * number);
    cudaMalloc(&device_counts, k * sizeof(int));
    cudaMemcpy(on_device, points, num_points * dims * number, cudaMemcpyHostToDevice);
    cudaMemcpy(device_centres, centres, k * dims * number, cudaMemcpyHostToDevice);
    cudaMemset(device_sums, 0, k * dims * number);
    cudaMemset(device_counts, 0, k * sizeof(int));
    assign<<<(num_points + THREADS - 1) / THREADS, THREADS>>>(device_centres, on_device, device_sums,
                                                              device_counts, num_points, k, dims);
    cudaMemcpy(sums, device_sums, k * dims * number, cudaMemcpyDeviceToHost);
    cudaMemcpy(counts, device_counts, k * sizeof(int), cudaMemcpyDeviceToHost);
    cudaFree(on_device);
    cudaFree(device_centres);
    cudaFree(device_sums);
    cudaFree(device_counts);
    cudaError_t error = cudaGetLastError();
    return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
