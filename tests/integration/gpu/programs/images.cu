// Separable convolution, Mandelbrot set, anisotropic diffusion and a bilateral-like filter.
#include <assert.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string>
#include "common/helper.h"

#define KERNEL_RADIUS 8
#define KERNEL_LENGTH (2 * KERNEL_RADIUS + 1)
__constant__ float c_Kernel[KERNEL_LENGTH];

extern "C" void setConvolutionKernel(float *h_Kernel) {
  cudaMemcpyToSymbol(c_Kernel, h_Kernel, KERNEL_LENGTH * sizeof(float));
}

#define ROWS_BLOCKDIM_X 16
#define ROWS_BLOCKDIM_Y 4
#define ROWS_RESULT_STEPS 4
#define ROWS_HALO_STEPS 1

__global__ void convolutionRowsKernel(float *d_Dst, float *d_Src, int imageW, int imageH, int pitch) {
  __shared__ float s_Data[ROWS_BLOCKDIM_Y][(ROWS_RESULT_STEPS + 2 * ROWS_HALO_STEPS) * ROWS_BLOCKDIM_X];

  // Offset to the left halo edge
  const int baseX = (blockIdx.x * ROWS_RESULT_STEPS - ROWS_HALO_STEPS) * ROWS_BLOCKDIM_X + threadIdx.x;
  const int baseY = blockIdx.y * ROWS_BLOCKDIM_Y + threadIdx.y;

  d_Src += baseY * pitch + baseX;
  d_Dst += baseY * pitch + baseX;

// Load main data
#pragma unroll
  for (int i = ROWS_HALO_STEPS; i < ROWS_HALO_STEPS + ROWS_RESULT_STEPS; i++) {
    s_Data[threadIdx.y][threadIdx.x + i * ROWS_BLOCKDIM_X] = d_Src[i * ROWS_BLOCKDIM_X];
  }

// Load left halo
#pragma unroll
  for (int i = 0; i < ROWS_HALO_STEPS; i++) {
    s_Data[threadIdx.y][threadIdx.x + i * ROWS_BLOCKDIM_X] =
        (baseX >= -i * ROWS_BLOCKDIM_X) ? d_Src[i * ROWS_BLOCKDIM_X] : 0;
  }

// Load right halo
#pragma unroll
  for (int i = ROWS_HALO_STEPS + ROWS_RESULT_STEPS;
       i < ROWS_HALO_STEPS + ROWS_RESULT_STEPS + ROWS_HALO_STEPS; i++) {
    s_Data[threadIdx.y][threadIdx.x + i * ROWS_BLOCKDIM_X] =
        (imageW - baseX > i * ROWS_BLOCKDIM_X) ? d_Src[i * ROWS_BLOCKDIM_X] : 0;
  }

  // Compute and store results
  __syncthreads();
#pragma unroll
  for (int i = ROWS_HALO_STEPS; i < ROWS_HALO_STEPS + ROWS_RESULT_STEPS; i++) {
    float sum = 0;

#pragma unroll
    for (int j = -KERNEL_RADIUS; j <= KERNEL_RADIUS; j++) {
      sum += c_Kernel[KERNEL_RADIUS - j] * s_Data[threadIdx.y][threadIdx.x + i * ROWS_BLOCKDIM_X + j];
    }

    d_Dst[i * ROWS_BLOCKDIM_X] = sum;
  }
}

// The core Mandelbrot calculation function template
template <class T>
__device__ inline int CalcMandelbrot(const T xPos, const T yPos, const T xJParam, const T yJParam,
                                     const int crunch, const bool isJulia) {
  T x, y, xx, yy;
  int i = crunch;

  T xC, yC;

  if (isJulia) {
    xC = xJParam;
    yC = yJParam;
    y = yPos;
    x = xPos;
    yy = y * y;
    xx = x * x;

  } else {
    xC = xPos;
    yC = yPos;
    y = 0;
    x = 0;
    yy = 0;
    xx = 0;
  }

  while (--i && (xx + yy < T(4.0))) {
    y = x * y * T(2.0) + yC;
    x = xx - yy + xC;
    yy = y * y;
    xx = x * x;
  }

  return i;
}

// The dynamic scheduler: blocks take their work from a counter.
__device__ unsigned int blockCounter;

template <class T>
__global__ void Mandelbrot0(uchar4 *dst, const int imageW, const int imageH, const int crunch, const T xOff,
                            const T yOff, const T scale, const uchar4 colors, const int gridWidth,
                            const int numBlocks) {
  __shared__ unsigned int blockIndex;
  __shared__ unsigned int blockX, blockY;

  // loop until all blocks completed
  while (1) {
    if ((threadIdx.x == 0) && (threadIdx.y == 0)) {
      // get block to process
      blockIndex = atomicAdd(&blockCounter, 1);
      blockX = blockIndex % gridWidth;  // note: this is slow, but only called once per block here
      blockY = blockIndex / gridWidth;
    }

    __syncthreads();

    if (blockIndex >= numBlocks) {
      break;
    }  // finish

    // process this block
    const int ix = blockDim.x * blockX + threadIdx.x;
    const int iy = blockDim.y * blockY + threadIdx.y;

    if ((ix < imageW) && (iy < imageH)) {
      const T xPos = (T)ix * scale + xOff;
      const T yPos = (T)iy * scale + yOff;
      int m = CalcMandelbrot<T>(xPos, yPos, 0, 0, crunch, false);
      m = m > 0 ? crunch - m : 0;

      // Convert the Mandelbrot index into a color
      uchar4 color;
      if (m) {
        color.x = m * colors.x;
        color.y = m * colors.y;
        color.z = m * colors.z;
      } else {
        color.x = 0;
        color.y = 0;
        color.z = 0;
      }
      color.w = 0;
      dst[imageW * iy + ix] = color;
    }
    __syncthreads();
  }
}

__global__ void srad_step(float *E_C, float *W_C, float *N_C, float *S_C, float *J_cuda, float *C_cuda, int cols,
                          int rows, float q0sqr) {
  //block id
  int bx = blockIdx.x;
  int by = blockIdx.y;
  int tx = threadIdx.x;
  int ty = threadIdx.y;

  //indices
  int index = cols * 16 * by + 16 * bx + cols * ty + tx;
  int index_n = cols * 16 * by + 16 * bx + tx - cols;
  int index_s = cols * 16 * by + 16 * bx + cols * 16 + tx;
  int index_w = cols * 16 * by + 16 * bx + cols * ty - 1;
  int index_e = cols * 16 * by + 16 * bx + cols * ty + 16;

  float n, w, e, s, jc, g2, l, num, den, qsqr, c;

  //shared memory allocation
  __shared__ float temp[16][16];
  __shared__ float temp_result[16][16];
  __shared__ float north[16][16], south[16][16], east[16][16], west[16][16];

  //load data to shared memory
  north[ty][tx] = J_cuda[by == 0 ? 16 * bx + tx : index_n];
  south[ty][tx] = by == gridDim.y - 1 ? J_cuda[cols * 16 * (gridDim.y - 1) + 16 * bx + cols * (16 - 1) + tx] : J_cuda[index_s];
  __syncthreads();
  west[ty][tx] = bx == 0 ? J_cuda[cols * 16 * by + cols * ty] : J_cuda[index_w];
  if (bx == gridDim.x - 1) {
    east[ty][tx] = J_cuda[cols * 16 * by + 16 * (gridDim.x - 1) + cols * ty + 16 - 1];
  } else
    east[ty][tx] = J_cuda[index_e];
  __syncthreads();
  temp[ty][tx] = J_cuda[index];
  __syncthreads();
  jc = temp[ty][tx];

  if (ty == 0 && tx == 0) {  //nw
    n = north[ty][tx] - jc;
    s = temp[ty + 1][tx] - jc;
    w = west[ty][tx] - jc;
    e = temp[ty][tx + 1] - jc;
  } else {
    n = (ty == 0 ? north[ty][tx] : temp[ty - 1][tx]) - jc;
    s = (ty == 16 - 1 ? south[ty][tx] : temp[ty + 1][tx]) - jc;
    w = (tx == 0 ? west[ty][tx] : temp[ty][tx - 1]) - jc;
    e = (tx == 16 - 1 ? east[ty][tx] : temp[ty][tx + 1]) - jc;
  }
  g2 = (n * n + s * s + w * w + e * e) / (jc * jc);
  l = (n + s + w + e) / jc;
  num = (0.5 * g2) - ((1.0 / 16.0) * (l * l));
  den = 1 + (.25 * l);
  qsqr = num / (den * den);
  // diffusion coefficent (equ 33)
  den = (qsqr - q0sqr) / (q0sqr * (1 + q0sqr));
  c = 1.0 / (1.0 + den);
  // saturate diffusion coefficent
  if (c < 0) {
    temp_result[ty][tx] = 0;
  } else if (c > 1) {
    temp_result[ty][tx] = 1;
  } else {
    temp_result[ty][tx] = c;
  }
  __syncthreads();
  C_cuda[index] = temp_result[ty][tx];
  E_C[index] = e;
  W_C[index] = w;
  S_C[index] = s;
  N_C[index] = n;
}

bool rows() {
  const int w = 128, h = 16;
  float *src, *dst, kernel[KERNEL_LENGTH];
  float *h_src = new float[w * h], *h_dst = new float[w * h];
  for (int i = 0; i < KERNEL_LENGTH; i++) kernel[i] = (float)(rand() % 16);
  for (int i = 0; i < w * h; i++) h_src[i] = (float)(rand() % 16);
  checkCudaErrors(cudaMalloc((void **)&src, w * h * sizeof(float)));
  checkCudaErrors(cudaMalloc((void **)&dst, w * h * sizeof(float)));
  setConvolutionKernel(kernel);
  checkCudaErrors(cudaMemcpy(src, h_src, w * h * sizeof(float), cudaMemcpyHostToDevice));
  assert(ROWS_BLOCKDIM_X * ROWS_HALO_STEPS >= KERNEL_RADIUS);
  dim3 blocks(w / (ROWS_RESULT_STEPS * ROWS_BLOCKDIM_X), h / ROWS_BLOCKDIM_Y);
  dim3 threads(ROWS_BLOCKDIM_X, ROWS_BLOCKDIM_Y);
  convolutionRowsKernel<<<blocks, threads>>>(dst, src, w, h, w);
  getLastCudaError("convolutionRowsKernel() execution failed\n");
  checkCudaErrors(cudaMemcpy(h_dst, dst, w * h * sizeof(float), cudaMemcpyDeviceToHost));
  double worst = 0;
  for (int y = 0; y < h; y++)
    for (int x = 0; x < w; x++) {
      float sum = 0;
      for (int k = -KERNEL_RADIUS; k <= KERNEL_RADIUS; k++)
        if (x + k >= 0 && x + k < w) sum += h_src[y * w + x + k] * kernel[KERNEL_RADIUS - k];
      worst = fmax(worst, fabs(sum - h_dst[y * w + x]));
    }
  delete[] h_src;
  return worst < 1e-3;
}

bool mandelbrot() {
  const int w = 100, h = 70, crunch = 100;
  uchar4 *dst;
  checkCudaErrors(cudaMallocManaged(&dst, w * h * sizeof(uchar4)));
  unsigned int hBlockCounter = 0;
  checkCudaErrors(cudaMemcpyToSymbol(blockCounter, &hBlockCounter, sizeof(unsigned int), 0, cudaMemcpyHostToDevice));
  dim3 threads(16, 8);
  dim3 grid((w + 15) / 16, (h + 7) / 8);
  Mandelbrot0<float><<<4, threads>>>(dst, w, h, crunch, -2.0f, -1.0f, 0.03f, make_uchar4(3, 5, 7, 0), grid.x, grid.x * grid.y);
  checkCudaErrors(cudaDeviceSynchronize());
  int wrong = 0;
  for (int iy = 0; iy < h; iy++)
    for (int ix = 0; ix < w; ix++) {
      double xc = ix * 0.03f + -2.0f, yc = iy * 0.03f + -1.0f, x = 0, y = 0;
      int i = crunch;
      while (--i && x * x + y * y < 4) {
        double t = x * x - y * y + xc;
        y = 2 * x * y + yc, x = t;
      }
      wrong += (unsigned char)((i > 0 ? crunch - i : 0) * 5) != dst[iy * w + ix].y;
    }
  printf("%d pixels differ\n", wrong);
  return wrong < w * h / 50;
}

bool srad() {
  const int n = 64;
  float *a[6];
  for (auto &p : a) checkCudaErrors(cudaMallocManaged((void **)&p, n * n * sizeof(float)));
  for (int i = 0; i < n * n; i++) a[4][i] = expf((rand() % 256) / 255.0f);
  srad_step<<<dim3(n / 16, n / 16), dim3(16, 16)>>>(a[0], a[1], a[2], a[3], a[4], a[5], n, n, 0.05f);
  checkCudaErrors(cudaDeviceSynchronize());
  double worst = 0;
  for (int y = 0; y < n; y++)
    for (int x = 0; x < n; x++) {
      auto at = [&](int v, int u) { return a[4][min(max(v, 0), n - 1) * n + min(max(u, 0), n - 1)]; };
      float jc = at(y, x), nn = at(y - 1, x) - jc, s = at(y + 1, x) - jc, w = at(y, x - 1) - jc, e = at(y, x + 1) - jc;
      float g2 = (nn * nn + s * s + w * w + e * e) / (jc * jc), l = (nn + s + w + e) / jc;
      float num = 0.5 * g2 - 1.0 / 16 * l * l, den = 1 + .25 * l, q = num / (den * den);
      float c = 1.0 / (1.0 + (q - 0.05f) / (0.05f * 1.05f));
      c = c < 0 ? 0 : c > 1 ? 1 : c;
      worst = fmax(worst, fmax(fabs(c - a[5][y * n + x]), fabs(e - a[0][y * n + x])));
    }
  printf("srad %g\n", worst);
  return worst < 1e-3;
}

int main(int argc, char **argv) {
  std::string name = argc > 1 ? argv[1] : "images";
  bool r = rows(), m = mandelbrot(), s = srad();
  printf("%s: rows %d mandelbrot %d srad %d\n%s\n", name.c_str(), r, m, s, r && m && s ? "PASSED" : "FAILED");
  return r && m && s ? EXIT_SUCCESS : EXIT_FAILURE;
}
