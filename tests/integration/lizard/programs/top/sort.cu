#include "top.h"
#include <cfloat>
__global__ void bitonic(float *s, int *x, int n, int size, int stride) {
  int i = threadIdx.x + blockDim.x * blockIdx.x, j = i ^ stride;
  if (j > i && j < n) {
    bool up = (i & size) == 0;
    if ((s[i] < s[j]) == up) { float t = s[i]; s[i] = s[j]; s[j] = t; int u = x[i]; x[i] = x[j]; x[j] = u; }
  }
}
void sort_block(float *s, int *x, int n) {
  for (int size = 2; size <= n; size <<= 1) for (int stride = size >> 1; stride > 0; stride >>= 1) bitonic<<<(n + 255) / 256, 256>>>(s, x, n, size, stride);
  cudaDeviceSynchronize();
}
