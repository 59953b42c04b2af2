// Textures by objects and by references, surfaces, and arrays with their copies, against plain loops.
#include <cuda_runtime.h>
#include <cmath>
#include <cstdio>
#include <vector>

texture<float, 1, cudaReadModeElementType> line;
texture<uchar4, 2, cudaReadModeNormalizedFloat> colours;

static const int W = 37, H = 21, D = 5;

__global__ void lines(float *out, cudaTextureObject_t object, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  out[i] = tex1Dfetch(line, i - 3);
  float2 pair = tex1Dfetch<float2>(object, i);
  out[n + i] = pair.x - pair.y;
}
__global__ void planes(float *out, cudaTextureObject_t object, float dx, float dy, float scale) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
  if (x < 2 * W) out[y * 2 * W + x] = tex2D<float>(object, (x - W / 2 + dx) * scale, (y - H / 2 + dy) * scale);
}
__global__ void coloured(float4 *out) {
  int x = threadIdx.x, y = blockIdx.x;
  out[y * W + x] = tex2D(colours, x + 0.5f, y + 0.5f);
}
__global__ void volume(float *out, cudaTextureObject_t object, cudaTextureObject_t layers, cudaSurfaceObject_t surface) {
  int x = threadIdx.x, y = blockIdx.x, z = blockIdx.y;
  int i = (z * H + y) * W + x;
  out[i] = tex3D<float>(object, x + 0.75f, y + 0.5f, z + 1.0f);
  out[W * H * D + i] = tex2DLayered<float>(layers, x + 0.5f, y + 0.5f, z);
  float v;
  surf3Dread(&v, surface, x * 4, y, z);
  surf3Dwrite(v + 1, surface, x * 4, y, z);
}

static int turned(int at, int n, cudaTextureAddressMode mode) {
  if (mode == cudaAddressModeClamp) return at < 0 ? 0 : at >= n ? n - 1 : at;
  if (mode == cudaAddressModeBorder) return at < 0 || at >= n ? -1 : at;
  int period = mode == cudaAddressModeWrap ? n : 2 * n;
  at = (at % period + period) % period;
  return at < n ? at : 2 * n - 1 - at;
}
static float texel(const std::vector<float> &image, int x, int y, cudaTextureAddressMode mode) {
  x = turned(x, W, mode), y = turned(y, H, mode);
  return x < 0 || y < 0 ? 0 : image[y * W + x];
}
static bool good = true;
static void near(float is, float wanted, float within, const char *what) {
  if (std::fabs(is - wanted) <= within) return;
  if (good) printf("%s: %g is not %g\n", what, is, wanted);
  good = false;
}

int main() {
  std::vector<float> image(W * H), box(W * H * D);
  for (int i = 0; i < W * H * D; i++) box[i] = (i * 7919 % 1000) / 100.0f;
  for (int i = 0; i < W * H; i++) image[i] = (i * 104729 % 997) / 100.0f;

  float *flat, *out;
  cudaMalloc(&flat, 200 * 4);
  cudaMallocManaged(&out, 2 * W * H * D * 4);
  cudaMemcpy(flat, image.data(), 200 * 4, cudaMemcpyHostToDevice);
  cudaBindTexture(0, line, flat, 200 * sizeof(float));
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = flat;
  resource.res.linear.desc = cudaCreateChannelDesc<float2>();
  resource.res.linear.sizeInBytes = 200 * 4;
  cudaTextureDesc how = {};
  cudaTextureObject_t pairs;
  cudaCreateTextureObject(&pairs, &resource, &how, NULL);
  lines<<<2, 128>>>(out, pairs, 210);
  cudaDeviceSynchronize();
  for (int i = 0; i < 210; i++) {
    near(out[i], i < 3 || i >= 203 ? 0 : image[i - 3], 0, "a reference");
    near(out[210 + i], i < 100 ? image[2 * i] - image[2 * i + 1] : 0, 0, "pairs");
  }
  cudaUnbindTexture(line);

  cudaArray_t array;
  cudaChannelFormatDesc desc = cudaCreateChannelDesc<float>();
  cudaMallocArray(&array, &desc, W, H);
  cudaMemcpy2DToArray(array, 0, 0, image.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice);
  for (int filter = 0; filter < 2; filter++)
    for (int mode = 0; mode < 4; mode++)
      for (int pitched = 0; pitched < 2; pitched++) {
        const bool normal = mode == cudaAddressModeWrap || mode == cudaAddressModeMirror;
        if (normal) continue; // widths and heights have other scales: below
        cudaResourceDesc from = {};
        float *rows = nullptr;
        size_t pitch = 0;
        from.resType = pitched ? cudaResourceTypePitch2D : cudaResourceTypeArray;
        if (pitched) {
          cudaMallocPitch(&rows, &pitch, W * 4, H);
          cudaMemcpy2D(rows, pitch, image.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice);
          from.res.pitch2D.devPtr = rows, from.res.pitch2D.desc = desc;
          from.res.pitch2D.width = W, from.res.pitch2D.height = H, from.res.pitch2D.pitchInBytes = pitch;
        } else {
          from.res.array.array = array;
        }
        cudaTextureDesc plane = {};
        plane.addressMode[0] = plane.addressMode[1] = cudaTextureAddressMode(mode);
        plane.filterMode = filter ? cudaFilterModeLinear : cudaFilterModePoint;
        cudaTextureObject_t object;
        cudaCreateTextureObject(&object, &from, &plane, nullptr);
        planes<<<dim3(1, 2 * H), 128>>>(out, object, 0.75f, 0.25f, 1);
        cudaDeviceSynchronize();
        for (int y = 0; y < 2 * H; y++)
          for (int x = 0; x < 2 * W; x++) {
            const int i = x - W / 2, j = y - H / 2; // at (i + 0.75, j + 0.25)
            auto at = [&](int a, int b) { return texel(image, a, b, cudaTextureAddressMode(mode)); };
            float wanted = at(i, j);
            if (filter) {
              const float above = 0.75f * at(i, j - 1) + 0.25f * at(i + 1, j - 1);
              wanted = 0.25f * above + 0.75f * (0.75f * at(i, j) + 0.25f * at(i + 1, j));
            }
            near(out[y * 2 * W + x], wanted, 1e-5f, filter ? "a filter" : "a point");
          }
        cudaDestroyTextureObject(object);
        if (rows) cudaFree(rows);
      }
  for (int mode : {cudaAddressModeWrap, cudaAddressModeMirror}) { // a square, so that both scales are one
    cudaArray_t square;
    cudaMallocArray(&square, &desc, 16, 16);
    std::vector<float> small(256);
    for (int i = 0; i < 256; i++) small[i] = i;
    cudaMemcpyToArray(square, 0, 0, small.data(), 1024, cudaMemcpyHostToDevice);
    cudaResourceDesc from = {};
    from.resType = cudaResourceTypeArray, from.res.array.array = square;
    cudaTextureDesc plane = {};
    plane.addressMode[0] = plane.addressMode[1] = cudaTextureAddressMode(mode), plane.normalizedCoords = 1;
    cudaTextureObject_t object;
    cudaCreateTextureObject(&object, &from, &plane, nullptr);
    planes<<<dim3(1, 2 * H), 128>>>(out, object, 0.5f, 0.5f, 1.0f / 16);
    cudaDeviceSynchronize();
    for (int y = 0; y < 2 * H; y++)
      for (int x = 0; x < 2 * W; x++) {
        const int i = turned(x - W / 2, 16, cudaTextureAddressMode(mode)), j = turned(y - H / 2, 16, cudaTextureAddressMode(mode));
        near(out[y * 2 * W + x], small[16 * j + i], 0, "a repeated image");
      }
    std::vector<float> back(256);
    cudaMemcpy2DFromArray(back.data(), 64, square, 0, 0, 64, 16, cudaMemcpyDeviceToHost);
    near(back[77], 77, 0, "a copy back");
    cudaDestroyTextureObject(object), cudaFreeArray(square);
  }

  std::vector<uchar4> bytes(W * H);
  for (int i = 0; i < W * H; i++) bytes[i] = make_uchar4(i, 2 * i, 3 * i, 255);
  cudaArray *paints;
  cudaMallocArray(&paints, &colours.channelDesc, W, H);
  cudaMemcpyToArray(paints, 0, 0, bytes.data(), bytes.size() * 4, cudaMemcpyHostToDevice);
  colours.filterMode = cudaFilterModeLinear;
  cudaBindTextureToArray(colours, paints);
  float4 *mixed;
  cudaMallocManaged(&mixed, W * H * sizeof(float4));
  coloured<<<H, W>>>(mixed);
  cudaDeviceSynchronize();
  for (int i = 0; i < W * H; i++)
    near(mixed[i].y, bytes[i].y / 255.0f, 1e-6f, "a colour"), near(mixed[i].w, 1, 1e-6f, "an alpha");

  cudaTextureObject_t whole, layers;
  cudaSurfaceObject_t surface;
  cudaArray_t solid, stacked;
  const cudaExtent extent = make_cudaExtent(W, H, D);
  cudaMalloc3DArray(&solid, &desc, extent, cudaArraySurfaceLoadStore);
  cudaMalloc3DArray(&stacked, &desc, extent, cudaArrayLayered);
  for (cudaArray_t each : {solid, stacked}) {
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr(box.data(), W * 4, W, H);
    copy.dstArray = each, copy.extent = extent, copy.kind = cudaMemcpyHostToDevice;
    if (cudaMemcpy3D(&copy) != cudaSuccess) good = false;
  }
  cudaResourceDesc from = {};
  from.resType = cudaResourceTypeArray, from.res.array.array = stacked;
  cudaTextureDesc cube = {};
  cube.addressMode[0] = cube.addressMode[1] = cube.addressMode[2] = cudaAddressModeClamp;
  cudaCreateTextureObject(&layers, &from, &cube, nullptr);
  cube.filterMode = cudaFilterModeLinear;
  cudaCreateTextureObject(&whole, &from, &cube, nullptr);
  from.res.array.array = solid;
  cudaCreateSurfaceObject(&surface, &from);
  volume<<<dim3(H, D), W>>>(out, whole, layers, surface);
  if (cudaDeviceSynchronize() != cudaSuccess) good = false;
  std::vector<float> after(W * H * D);
  cudaMemcpy3DParms copy = {};
  copy.srcArray = solid, copy.dstPtr = make_cudaPitchedPtr(after.data(), W * 4, W, H);
  copy.extent = extent, copy.kind = cudaMemcpyDeviceToHost;
  cudaMemcpy3D(&copy);
  for (int z = 0; z < D; z++)
    for (int y = 0; y < H; y++)
      for (int x = 0; x < W; x++) {
        auto at = [&](int a, int c) { return box[((c < D ? c : D - 1) * H + y) * W + (a < W ? a : W - 1)]; };
        const float wanted = 0.5f * (0.75f * at(x, z) + 0.25f * at(x + 1, z)) + 0.5f * (0.75f * at(x, z + 1) + 0.25f * at(x + 1, z + 1));
        const int i = (z * H + y) * W + x;
        near(out[i], wanted, 1e-5f, "a volume"), near(out[W * H * D + i], box[i], 0, "a layer");
        near(after[i], box[i] + 1, 0, "a surface");
      }
  puts(good ? "PASSED" : "FAILED");
  return !good;
}
