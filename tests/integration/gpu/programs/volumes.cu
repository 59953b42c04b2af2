// Memory of three dimensions and of all kinds, memory pools, and what a device says of itself.
#include <stdio.h>
#include <cuda_runtime.h>

__global__ void twice(cudaPitchedPtr volume, int width, int height, int depth) {
  int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  if (x < width && y < height && z < depth) {
    char *slice = (char *)volume.ptr + z * volume.pitch * height;
    ((float *)(slice + y * volume.pitch))[x] *= 2;
  }
}
__global__ void fill(int *x, int value) { x[threadIdx.x] = value; }

static bool volumes() {
  const int width = 5, height = 4, depth = 3, n = width * height * depth;
  float in[n], out[n];
  for (int i = 0; i < n; i++) in[i] = i, out[i] = -1;
  cudaExtent all = make_cudaExtent(width * sizeof(float), height, depth);
  cudaPitchedPtr from, to;
  bool ok = cudaMalloc3D(&from, all) == cudaSuccess && cudaMalloc3D(&to, all) == cudaSuccess;
  ok = ok && from.pitch >= width * sizeof(float) && cudaMemset3D(to, 0, all) == cudaSuccess;
  cudaMemcpy3DParms up = {0};
  up.srcPtr = make_cudaPitchedPtr(in, width * sizeof(float), width, height);
  up.dstPtr = from;
  up.extent = all;
  up.kind = cudaMemcpyHostToDevice;
  ok = ok && cudaMemcpy3D(&up) == cudaSuccess;
  twice<<<dim3(height, depth), 32>>>(from, width, height, depth);
  cudaMemcpy3DParms inner = {0};
  inner.srcPtr = from;
  inner.srcPos = make_cudaPos(sizeof(float), 1, 1);
  inner.dstPtr = to;
  inner.extent = make_cudaExtent(4 * sizeof(float), 3, 2);
  inner.kind = cudaMemcpyDeviceToDevice;
  ok = ok && cudaMemcpy3DAsync(&inner, 0) == cudaSuccess;
  cudaMemcpy3DParms down = {0};
  down.srcPtr = to;
  down.dstPtr = make_cudaPitchedPtr(out, width * sizeof(float), width, height);
  down.extent = all;
  down.kind = cudaMemcpyDeviceToHost;
  ok = ok && cudaMemcpy3D(&down) == cudaSuccess;
  for (int z = 0; z < depth; z++)
    for (int y = 0; y < height; y++)
      for (int x = 0; x < width; x++) {
        bool inside = x < 4 && y < 3 && z < 2;
        float wanted = inside ? 2 * in[((z + 1) * height + y + 1) * width + x + 1] : 0;
        ok = ok && out[(z * height + y) * width + x] == wanted;
      }
  cudaFree(from.ptr);
  cudaFree(to.ptr);
  return ok;
}

static bool pools() {
  int has = 0;
  cudaDeviceGetAttribute(&has, cudaDevAttrMemoryPoolsSupported, 0);
  cudaMemPool_t usual, own;
  unsigned long long threshold = ~0ull, kept = 0;
  bool ok = has && cudaDeviceGetDefaultMemPool(&usual, 0) == cudaSuccess;
  ok = ok && cudaMemPoolSetAttribute(usual, cudaMemPoolAttrReleaseThreshold, &threshold) == cudaSuccess;
  ok = ok && cudaMemPoolGetAttribute(usual, cudaMemPoolAttrReleaseThreshold, &kept) == cudaSuccess && kept == threshold;
  cudaMemPoolProps wanted = {};
  wanted.allocType = cudaMemAllocationTypePinned;
  wanted.location.type = cudaMemLocationTypeDevice;
  ok = ok && cudaMemPoolCreate(&own, &wanted) == cudaSuccess;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  int *x, *y, *z, host[64];
  cudaMallocAsync(&x, sizeof host, stream);
  cudaMallocAsync(&y, sizeof host, own, stream);
  cudaMallocFromPoolAsync(&z, sizeof host, own, stream);
  for (int *each : {x, y, z}) {
    fill<<<1, 64, 0, stream>>>(each, 7);
    cudaMemcpyAsync(host, each, sizeof host, cudaMemcpyDeviceToHost, stream);
    cudaFreeAsync(each, stream);
    ok = ok && cudaStreamSynchronize(stream) == cudaSuccess && host[63] == 7;
  }
  ok = ok && cudaMemPoolTrimTo(own, 0) == cudaSuccess && cudaMemPoolDestroy(own) == cudaSuccess;
  cudaStreamDestroy(stream);
  return ok;
}

static bool kinds() {
  int own = 0, *plain, *pinned, *managed;
  cudaMalloc(&plain, 40);
  cudaMallocHost(&pinned, 40);
  cudaMallocManaged(&managed, 40);
  cudaPointerAttributes a;
  bool ok = cudaPointerGetAttributes(&a, plain + 9) == cudaSuccess && a.type == cudaMemoryTypeDevice;
  ok = ok && a.devicePointer == plain + 9 && !a.hostPointer;
  ok = ok && cudaPointerGetAttributes(&a, pinned) == cudaSuccess && a.type == cudaMemoryTypeHost && a.hostPointer == pinned;
  ok = ok && cudaPointerGetAttributes(&a, managed) == cudaSuccess && a.type == cudaMemoryTypeManaged;
  ok = ok && a.devicePointer == a.hostPointer;
  ok = ok && cudaPointerGetAttributes(&a, &own) == cudaSuccess && a.type == cudaMemoryTypeUnregistered;
  cudaFree(plain);
  cudaFreeHost(pinned);
  cudaFree(managed);
  return ok;
}

int main() {
  cudaDeviceProp device;
  int pitch = 0;
  bool ok = cudaGetDeviceProperties(&device, 0) == cudaSuccess && device.maxTexture1D >= 0 && device.textureAlignment > 0;
  ok = ok && cudaDeviceGetAttribute(&pitch, cudaDevAttrMaxPitch, 0) == cudaSuccess && pitch > 0;
  ok = volumes() && pools() && kinds() && ok && cudaGetLastError() == cudaSuccess;
  printf(ok ? "PASSED\n" : "FAILED\n");
  return ok ? 0 : 1;
}
