// CUDA arrays, textures and surfaces.
#pragma once

#include <cmath>
#include <type_traits>

#include "volumes.h"

enum cudaChannelFormatKind {
    cudaChannelFormatKindSigned, cudaChannelFormatKindUnsigned, cudaChannelFormatKindFloat, cudaChannelFormatKindNone
};
struct cudaChannelFormatDesc { int x, y, z, w; cudaChannelFormatKind f; };
enum cudaTextureAddressMode { cudaAddressModeWrap, cudaAddressModeClamp, cudaAddressModeMirror, cudaAddressModeBorder };
enum cudaTextureFilterMode { cudaFilterModePoint, cudaFilterModeLinear };
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
enum cudaResourceType {
    cudaResourceTypeArray, cudaResourceTypeMipmappedArray, cudaResourceTypeLinear, cudaResourceTypePitch2D
};
enum cudaSurfaceBoundaryMode { cudaBoundaryModeZero, cudaBoundaryModeClamp, cudaBoundaryModeTrap };
enum cudaSurfaceFormatMode { cudaFormatModeForced, cudaFormatModeAuto };
#define cudaArrayDefault 0
#define cudaArrayLayered 1
#define cudaArraySurfaceLoadStore 2
#define cudaArrayCubemap 4
#define cudaArrayTextureGather 8
#define cudaTextureType1D 1
#define cudaTextureType2D 2
#define cudaTextureType3D 3
#define cudaTextureType1DLayered 0xF1
#define cudaTextureType2DLayered 0xF2
#define cudaSurfaceType1D 1
#define cudaSurfaceType2D 2
#define cudaSurfaceType3D 3

struct cudaArray {
    cudaChannelFormatDesc desc;
    cudaExtent extent; // in elements; a height or depth of 0 is one that it has not
    unsigned flags;
    size_t element;
    char *data;
};
typedef cudaArray *cudaArray_t;
typedef const cudaArray *cudaArray_const_t;
struct cudaResourceDesc {
    cudaResourceType resType;
    union {
        struct { cudaArray_t array; } array;
        struct { void *devPtr; cudaChannelFormatDesc desc; size_t sizeInBytes; } linear;
        struct { void *devPtr; cudaChannelFormatDesc desc; size_t width, height, pitchInBytes; } pitch2D;
    } res;
};
struct cudaTextureDesc {
    cudaTextureAddressMode addressMode[3];
    cudaTextureFilterMode filterMode;
    cudaTextureReadMode readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned maxAnisotropy;
    cudaTextureFilterMode mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization, seamlessCubemap;
};
struct cudaResourceViewDesc { int format; size_t width, height, depth; };

namespace sapwood_cuda {

// What a number or a short vector consists of.
template <class T, class = void> struct Components;
template <class T> struct Components<T, std::enable_if_t<std::is_arithmetic_v<T>>> {
    typedef T type;
    static constexpr int count = 1;
};
#define SAPWOOD_COMPONENTS(T, name)                                                              \
    template <> struct Components<name##1> { typedef T type; static constexpr int count = 1; };  \
    template <> struct Components<name##2> { typedef T type; static constexpr int count = 2; };  \
    template <> struct Components<name##3> { typedef T type; static constexpr int count = 3; };  \
    template <> struct Components<name##4> { typedef T type; static constexpr int count = 4; };
SAPWOOD_COMPONENTS(signed char, char)
SAPWOOD_COMPONENTS(unsigned char, uchar)
SAPWOOD_COMPONENTS(short, short)
SAPWOOD_COMPONENTS(unsigned short, ushort)
SAPWOOD_COMPONENTS(int, int)
SAPWOOD_COMPONENTS(unsigned, uint)
SAPWOOD_COMPONENTS(long long, longlong)
SAPWOOD_COMPONENTS(unsigned long long, ulonglong)
SAPWOOD_COMPONENTS(float, float)
SAPWOOD_COMPONENTS(double, double)
#undef SAPWOOD_COMPONENTS
// What a texture of some type gives where it reads numbers between -1 and 1: as many floats.
template <int N> struct Floats { typedef float type; };
template <> struct Floats<2> { typedef float2 type; };
template <> struct Floats<4> { typedef float4 type; };

inline int bits_of(const cudaChannelFormatDesc &desc) { return desc.x + desc.y + desc.z + desc.w; }
template <class T> cudaChannelFormatDesc channels() {
    typedef typename Components<T>::type C;
    const int n = Components<T>::count, bits = 8 * sizeof(C);
    return {bits, n > 1 ? bits : 0, n > 2 ? bits : 0, n > 3 ? bits : 0,
            std::is_floating_point_v<C> ? cudaChannelFormatKindFloat
            : std::is_signed_v<C> ? cudaChannelFormatKindSigned : cudaChannelFormatKindUnsigned};
}

// Memory as a texture sees it.
struct Texels {
    const char *data = nullptr;
    size_t element = 0, pitch = 0, slice = 0;
    int size[3] = {0, 0, 0};
    cudaChannelFormatDesc desc{};
};
struct Texture {
    Texels texels;
    cudaTextureDesc how{};
    cudaResourceDesc resource{};
};
inline Texels texels_of(const cudaArray *array) {
    Texels found;
    const cudaExtent &box = array->extent;
    found.data = array->data, found.element = array->element, found.desc = array->desc;
    found.size[0] = int(box.width), found.size[1] = int(box.height ? box.height : 1), found.size[2] = int(box.depth ? box.depth : 1);
    found.pitch = box.width * array->element, found.slice = found.pitch * size_t(found.size[1]);
    return found;
}
inline Texels texels_of(const void *data, const cudaChannelFormatDesc &desc, size_t width, size_t height, size_t pitch) {
    Texels found;
    found.data = static_cast<const char *>(data), found.desc = desc, found.element = size_t(bits_of(desc)) / 8;
    found.size[0] = int(width), found.size[1] = int(height), found.size[2] = 1;
    found.pitch = pitch, found.slice = pitch * height;
    return found;
}

// Where a coordinate is in a row of n; -1 is the border.
inline int address(int at, int n, cudaTextureAddressMode mode, bool normalized) {
    if (unsigned(at) < unsigned(n)) return at;
    if (mode == cudaAddressModeBorder) return -1;
    if (mode == cudaAddressModeClamp || !normalized) return at < 0 ? 0 : n - 1;
    const int turn = mode == cudaAddressModeWrap ? n : 2 * n, rest = ((at % turn) + turn) % turn;
    return rest < n ? rest : 2 * n - 1 - rest;
}
inline float component(const char *at, int k, const cudaChannelFormatDesc &desc, bool normalized) {
    switch (int(desc.f) * 64 + desc.x) {
        case cudaChannelFormatKindFloat * 64 + 32: return reinterpret_cast<const float *>(at)[k];
        case cudaChannelFormatKindUnsigned * 64 + 8: {
            const float value = reinterpret_cast<const unsigned char *>(at)[k];
            return normalized ? value / 255 : value;
        }
        case cudaChannelFormatKindSigned * 64 + 8: {
            const float value = reinterpret_cast<const signed char *>(at)[k];
            return normalized ? (value < -127 ? -1 : value / 127) : value;
        }
        case cudaChannelFormatKindUnsigned * 64 + 16: {
            const float value = reinterpret_cast<const unsigned short *>(at)[k];
            return normalized ? value / 65535 : value;
        }
        case cudaChannelFormatKindSigned * 64 + 16: {
            const float value = reinterpret_cast<const short *>(at)[k];
            return normalized ? (value < -32767 ? -1 : value / 32767) : value;
        }
        default: return 0;
    }
}
inline int channels_of(const cudaChannelFormatDesc &desc) { return (desc.x > 0) + (desc.y > 0) + (desc.z > 0) + (desc.w > 0); }

// One element, without filter.
template <class T> T texel(const Texture &texture, int x, int y, int z) {
    typedef typename Components<T>::type C;
    const Texels &t = texture.texels;
    const bool normalized = texture.how.normalizedCoords;
    x = address(x, t.size[0], texture.how.addressMode[0], normalized);
    y = address(y, t.size[1], texture.how.addressMode[1], normalized);
    z = address(z, t.size[2], texture.how.addressMode[2], normalized);
    T value{};
    const int n = Components<T>::count < channels_of(t.desc) ? Components<T>::count : channels_of(t.desc);
    if ((x | y | z) < 0) {
        if constexpr (std::is_same_v<C, float>)
            for (int k = 0; k < n; k++) reinterpret_cast<float *>(&value)[k] = texture.how.borderColor[k];
        return value;
    }
    const char *at = t.data + z * t.slice + y * t.pitch + x * t.element;
    if constexpr (std::is_same_v<C, float>) {
        if (texture.how.readMode == cudaReadModeNormalizedFloat && t.desc.f != cudaChannelFormatKindFloat) {
            for (int k = 0; k < n; k++) reinterpret_cast<float *>(&value)[k] = component(at, k, t.desc, true);
            return value;
        }
    }
    if (sizeof(T) <= t.element) __builtin_memcpy(&value, at, sizeof(T));
    else __builtin_memcpy(&value, at, t.element);
    return value;
}
// Weights have eight bits, as those of a GPU.
inline float weight(float x, int &at) {
    const float below = std::floor(x);
    at = int(below);
    return std::floor((x - below) * 256 + 0.5f) / 256;
}
template <class T> T sample(const Texture &texture, int dimensions, float x, float y = 0, float z = 0, int layer = -1) {
    typedef typename Components<T>::type C;
    const Texels &t = texture.texels;
    if (!t.data) return T{};
    if (texture.how.normalizedCoords) x *= float(t.size[0]), y *= float(t.size[1]), z *= float(t.size[2]);
    if constexpr (std::is_same_v<C, float>) {
        if (texture.how.filterMode == cudaFilterModeLinear) {
            int at[3] = {0, 0, layer < 0 ? 0 : layer};
            const float a = weight(x - 0.5f, at[0]), b = dimensions > 1 ? weight(y - 0.5f, at[1]) : 0;
            const float c = dimensions > 2 ? weight(z - 0.5f, at[2]) : 0;
            T sum{};
            for (int k = 0; k < 1 << dimensions; k++) {
                const int i = k & 1, j = k >> 1 & 1, l = k >> 2;
                const float share = (i ? a : 1 - a) * (j ? b : 1 - b) * (l ? c : 1 - c);
                if (share == 0) continue;
                const T value = texel<T>(texture, at[0] + i, at[1] + j, at[2] + l);
                for (int n = 0; n < Components<T>::count; n++)
                    reinterpret_cast<float *>(&sum)[n] += share * reinterpret_cast<const float *>(&value)[n];
            }
            return sum;
        }
    }
    return texel<T>(texture, int(std::floor(x)), dimensions > 1 ? int(std::floor(y)) : 0,
                    layer >= 0 ? layer : dimensions > 2 ? int(std::floor(z)) : 0);
}
template <class T> T fetch(const Texture &texture, int x) {
    const Texels &t = texture.texels;
    if (unsigned(x) >= unsigned(t.size[0])) return T{};
    return texel<T>(texture, x, 0, 0);
}

// A part of a surface; the first coordinate counts bytes.
inline char *surface_at(const cudaArray *array, int x, int y, int z, size_t bytes, cudaSurfaceBoundaryMode mode) {
    const cudaExtent &box = array->extent;
    const int width = int(box.width * array->element), height = int(box.height ? box.height : 1), depth = int(box.depth ? box.depth : 1);
    const bool outside = x < 0 || y < 0 || z < 0 || x + int(bytes) > width || y >= height || z >= depth;
    if (outside && mode == cudaBoundaryModeTrap) __trap();
    if (outside && mode == cudaBoundaryModeZero) return nullptr;
    const auto within = [](int at, int n) { return at < 0 ? 0 : at < n ? at : n - 1; };
    x = x < 0 ? 0 : x + int(bytes) > width ? width - int(bytes) : x;
    return array->data + (size_t(within(z, depth)) * size_t(height) + size_t(within(y, height))) * size_t(width) + x;
}

} // namespace sapwood_cuda

// Arrays.
template <class T> cudaChannelFormatDesc cudaCreateChannelDesc() { return sapwood_cuda::channels<T>(); }
inline cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind f) { return {x, y, z, w, f}; }
inline cudaError_t cudaMalloc3DArray(cudaArray_t *array, const cudaChannelFormatDesc *desc, cudaExtent extent, unsigned flags = 0,
                                     SAPWOOD_PLACE) {
    const size_t element = size_t(sapwood_cuda::bits_of(*desc)) / 8;
    const size_t n = extent.width * (extent.height ? extent.height : 1) * (extent.depth ? extent.depth : 1);
    void *data = nullptr;
    if (!element || !n) return sapwood_cuda::fail(cudaErrorInvalidValue);
    if (auto error = sapwood_cuda::allocate(&data, n * element, "cudaMallocArray", file, line)) return error;
    *array = new cudaArray{*desc, extent, flags, element, static_cast<char *>(data)};
    return cudaSuccess;
}
inline cudaError_t cudaMallocArray(cudaArray_t *array, const cudaChannelFormatDesc *desc, size_t width, size_t height = 0,
                                   unsigned flags = 0, SAPWOOD_PLACE) {
    return cudaMalloc3DArray(array, desc, {width, height, 0}, flags, file, line);
}
inline cudaError_t cudaFreeArray(cudaArray_t array) {
    if (!array) return cudaSuccess;
    const cudaError_t error = sapwood_cuda::release(array->data);
    delete array;
    return error;
}
inline cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc *desc, cudaExtent *extent, unsigned *flags, cudaArray_t array) {
    if (desc) *desc = array->desc;
    if (extent) *extent = array->extent;
    if (flags) *flags = array->flags;
    return cudaSuccess;
}
inline cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc *desc, cudaArray_const_t array) { return *desc = array->desc, cudaSuccess; }

namespace sapwood_cuda {
inline size_t row_bytes(const cudaArray *array) { return array->extent.width * array->element; }
inline bool fits(const cudaArray *array, size_t x, size_t y, size_t width, size_t height) {
    return x + width <= row_bytes(array) && y + height <= (array->extent.height ? array->extent.height : 1);
}
}
inline cudaError_t cudaMemcpy2DToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,
                                       cudaMemcpyKind kind) {
    if (!sapwood_cuda::fits(to, x, y, width, height)) return sapwood_cuda::fail(cudaErrorInvalidValue);
    const size_t row = sapwood_cuda::row_bytes(to);
    return cudaMemcpy2D(to->data + y * row + x, row, from, pitch, width, height, kind);
}
inline cudaError_t cudaMemcpy2DFromArray(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                         size_t height, cudaMemcpyKind kind) {
    if (!sapwood_cuda::fits(from, x, y, width, height)) return sapwood_cuda::fail(cudaErrorInvalidValue);
    const size_t row = sapwood_cuda::row_bytes(from);
    return cudaMemcpy2D(to, pitch, from->data + y * row + x, row, width, height, kind);
}
inline cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t to, size_t x, size_t y, cudaArray_const_t from, size_t fx, size_t fy,
                                            size_t width, size_t height, cudaMemcpyKind kind = cudaMemcpyDeviceToDevice) {
    if (!sapwood_cuda::fits(from, fx, fy, width, height)) return sapwood_cuda::fail(cudaErrorInvalidValue);
    const size_t row = sapwood_cuda::row_bytes(from);
    return cudaMemcpy2DToArray(to, x, y, from->data + fy * row + fx, row, width, height, kind);
}
inline cudaError_t cudaMemcpyToArray(cudaArray_t to, size_t x, size_t y, const void *from, size_t n, cudaMemcpyKind) {
    return sapwood_cuda::copy(to->data + y * sapwood_cuda::row_bytes(to) + x, from, n);
}
inline cudaError_t cudaMemcpyFromArray(void *to, cudaArray_const_t from, size_t x, size_t y, size_t n, cudaMemcpyKind) {
    return sapwood_cuda::copy(to, from->data + y * sapwood_cuda::row_bytes(from) + x, n);
}
inline cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t pitch, size_t width,
                                            size_t height, cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpy2DToArray(to, x, y, from, pitch, width, height, kind);
}
inline cudaError_t cudaMemcpy2DFromArrayAsync(void *to, size_t pitch, cudaArray_const_t from, size_t x, size_t y, size_t width,
                                              size_t height, cudaMemcpyKind kind, cudaStream_t = 0) {
    return cudaMemcpy2DFromArray(to, pitch, from, x, y, width, height, kind);
}
inline cudaError_t cudaMemcpyToArrayAsync(cudaArray_t to, size_t x, size_t y, const void *from, size_t n, cudaMemcpyKind kind,
                                          cudaStream_t = 0) { return cudaMemcpyToArray(to, x, y, from, n, kind); }
inline cudaError_t cudaMemcpyFromArrayAsync(void *to, cudaArray_const_t from, size_t x, size_t y, size_t n, cudaMemcpyKind kind,
                                            cudaStream_t = 0) { return cudaMemcpyFromArray(to, from, x, y, n, kind); }

namespace sapwood_cuda {
// An array as memory with rows; a position and an extent count its elements then.
inline cudaPitchedPtr memory_of(const cudaArray *array, const cudaPitchedPtr &other, cudaPos &at) {
    if (!array) return other;
    at.x *= array->element;
    return {array->data, row_bytes(array), row_bytes(array), array->extent.height ? array->extent.height : 1};
}
}
inline cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms *p) {
    cudaExtent box = p->extent;
    cudaPos from_at = p->srcPos, to_at = p->dstPos;
    const cudaPitchedPtr from = sapwood_cuda::memory_of(p->srcArray, p->srcPtr, from_at);
    const cudaPitchedPtr to = sapwood_cuda::memory_of(p->dstArray, p->dstPtr, to_at);
    if (p->srcArray || p->dstArray) box.width *= (p->srcArray ? p->srcArray : p->dstArray)->element;
    if (!box.width || !box.height || !box.depth) return cudaSuccess;
    if (!sapwood_cuda::fits(from, from_at, box) || !sapwood_cuda::fits(to, to_at, box))
        return sapwood_cuda::fail(cudaErrorInvalidValue);
    for (size_t z = 0; z < box.depth; z++)
        for (size_t y = 0; y < box.height; y++)
            if (auto error = sapwood_cuda::copy(sapwood_cuda::row_of(to, to_at, y, z),
                                                sapwood_cuda::row_of(from, from_at, y, z), box.width))
                return error;
    return cudaSuccess;
}
inline cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms *p, cudaStream_t = 0) { return cudaMemcpy3D(p); }

// Texture objects.
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
inline cudaError_t cudaCreateTextureObject(cudaTextureObject_t *object, const cudaResourceDesc *resource,
                                           const cudaTextureDesc *how, const cudaResourceViewDesc * = nullptr) {
    auto *texture = new sapwood_cuda::Texture;
    if (how) texture->how = *how;
    texture->resource = *resource;
    const auto &res = resource->res;
    if (resource->resType == cudaResourceTypeArray) texture->texels = sapwood_cuda::texels_of(res.array.array);
    else if (resource->resType == cudaResourceTypePitch2D)
        texture->texels = sapwood_cuda::texels_of(res.pitch2D.devPtr, res.pitch2D.desc, res.pitch2D.width, res.pitch2D.height,
                                                  res.pitch2D.pitchInBytes);
    else if (resource->resType == cudaResourceTypeLinear && sapwood_cuda::bits_of(res.linear.desc))
        texture->texels = sapwood_cuda::texels_of(res.linear.devPtr, res.linear.desc,
                                                  res.linear.sizeInBytes * 8 / size_t(sapwood_cuda::bits_of(res.linear.desc)), 1,
                                                  res.linear.sizeInBytes);
    else {
        delete texture;
        return sapwood_cuda::fail(cudaErrorInvalidValue);
    }
    *object = reinterpret_cast<cudaTextureObject_t>(texture);
    return cudaSuccess;
}
inline cudaError_t cudaDestroyTextureObject(cudaTextureObject_t object) {
    delete reinterpret_cast<sapwood_cuda::Texture *>(object);
    return cudaSuccess;
}
inline cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc *desc, cudaTextureObject_t object) {
    return *desc = reinterpret_cast<sapwood_cuda::Texture *>(object)->resource, cudaSuccess;
}
inline cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc *desc, cudaTextureObject_t object) {
    return *desc = reinterpret_cast<sapwood_cuda::Texture *>(object)->how, cudaSuccess;
}
// Texture references: variables that are bound to memory.
struct textureReference : sapwood_cuda::Texture {
    int &normalized = how.normalizedCoords;
    cudaTextureFilterMode &filterMode = how.filterMode;
    cudaTextureAddressMode (&addressMode)[3] = how.addressMode;
    cudaChannelFormatDesc channelDesc{};
};
template <class T, int Dimensions = 1, cudaTextureReadMode Mode = cudaReadModeElementType> struct texture : textureReference {
    texture(int is_normalized = 0, cudaTextureFilterMode filter = cudaFilterModePoint,
            cudaTextureAddressMode mode = cudaAddressModeClamp, cudaChannelFormatDesc = {}) {
        normalized = is_normalized, filterMode = filter, how.readMode = Mode;
        addressMode[0] = addressMode[1] = addressMode[2] = mode;
        channelDesc = sapwood_cuda::channels<T>();
    }
    typedef std::conditional_t<Mode == cudaReadModeElementType, T,
                               typename sapwood_cuda::Floats<sapwood_cuda::Components<T>::count>::type> Read;
};
inline cudaError_t cudaBindTexture(size_t *offset, textureReference &texture, const void *at, const cudaChannelFormatDesc &desc,
                                   size_t bytes = 0xffffffff) {
    if (offset) *offset = 0;
    texture.texels = sapwood_cuda::texels_of(at, desc, bytes * 8 / size_t(sapwood_cuda::bits_of(desc)), 1, bytes);
    return cudaSuccess;
}
inline cudaError_t cudaBindTexture(size_t *offset, textureReference &texture, const void *at, size_t bytes = 0xffffffff) {
    return cudaBindTexture(offset, texture, at, texture.channelDesc, bytes);
}
inline cudaError_t cudaBindTexture2D(size_t *offset, textureReference &texture, const void *at, const cudaChannelFormatDesc &desc,
                                     size_t width, size_t height, size_t pitch) {
    if (offset) *offset = 0;
    texture.texels = sapwood_cuda::texels_of(at, desc, width, height, pitch);
    return cudaSuccess;
}
inline cudaError_t cudaBindTexture2D(size_t *offset, textureReference &texture, const void *at, size_t width, size_t height, size_t pitch) {
    return cudaBindTexture2D(offset, texture, at, texture.channelDesc, width, height, pitch);
}
inline cudaError_t cudaBindTextureToArray(textureReference &texture, cudaArray_const_t array, const cudaChannelFormatDesc & = {}) {
    texture.texels = sapwood_cuda::texels_of(array);
    return cudaSuccess;
}
inline cudaError_t cudaUnbindTexture(textureReference &texture) { return texture.texels = {}, cudaSuccess; }

#define SAPWOOD_TEXTURE(name, parameters, function, ...)                                         \
    template <class T> T name(cudaTextureObject_t object SAPWOOD_UNWRAP parameters) {            \
        return sapwood_cuda::function<T>(*reinterpret_cast<const sapwood_cuda::Texture *>(object), __VA_ARGS__); \
    }                                                                                            \
    template <class T> void name(T *to, cudaTextureObject_t object SAPWOOD_UNWRAP parameters) {  \
        *to = sapwood_cuda::function<T>(*reinterpret_cast<const sapwood_cuda::Texture *>(object), __VA_ARGS__); \
    }                                                                                            \
    template <class T, int D, cudaTextureReadMode M>                                             \
    typename texture<T, D, M>::Read name(const texture<T, D, M> &reference SAPWOOD_UNWRAP parameters) { \
        return sapwood_cuda::function<typename texture<T, D, M>::Read>(reference, __VA_ARGS__); \
    }
#define SAPWOOD_UNWRAP(...) , ##__VA_ARGS__
SAPWOOD_TEXTURE(tex1Dfetch, (int x), fetch, x)
SAPWOOD_TEXTURE(tex1D, (float x), sample, 1, x)
SAPWOOD_TEXTURE(tex2D, (float x, float y), sample, 2, x, y)
SAPWOOD_TEXTURE(tex3D, (float x, float y, float z), sample, 3, x, y, z)
SAPWOOD_TEXTURE(tex1DLayered, (float x, int layer), sample, 1, x, 0, 0, layer)
SAPWOOD_TEXTURE(tex2DLayered, (float x, float y, int layer), sample, 2, x, y, 0, layer)
SAPWOOD_TEXTURE(tex1DLod, (float x, float), sample, 1, x)
SAPWOOD_TEXTURE(tex2DLod, (float x, float y, float), sample, 2, x, y)
SAPWOOD_TEXTURE(tex3DLod, (float x, float y, float z, float), sample, 3, x, y, z)
#undef SAPWOOD_TEXTURE
#undef SAPWOOD_UNWRAP

// Surfaces.
inline cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *object, const cudaResourceDesc *resource) {
    if (resource->resType != cudaResourceTypeArray) return sapwood_cuda::fail(cudaErrorInvalidValue);
    *object = reinterpret_cast<cudaSurfaceObject_t>(resource->res.array.array);
    return cudaSuccess;
}
inline cudaError_t cudaDestroySurfaceObject(cudaSurfaceObject_t) { return cudaSuccess; }
struct surfaceReference { cudaSurfaceObject_t object = 0; operator cudaSurfaceObject_t() const { return object; } };
template <class T = void, int Dimensions = 1> struct surface : surfaceReference {};
inline cudaError_t cudaBindSurfaceToArray(surfaceReference &reference, cudaArray_const_t array) {
    reference.object = reinterpret_cast<cudaSurfaceObject_t>(array);
    return cudaSuccess;
}
#define SAPWOOD_SURFACE(name, parameters, x, y, z)                                               \
    template <class T> T name##read(cudaSurfaceObject_t object, SAPWOOD_UNWRAP parameters,       \
                                    cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {       \
        T value{};                                                                               \
        const auto *array = reinterpret_cast<const cudaArray *>(object);                         \
        if (const char *at = sapwood_cuda::surface_at(array, x, y, z, sizeof(T), mode)) __builtin_memcpy(&value, at, sizeof(T)); \
        return value;                                                                            \
    }                                                                                            \
    template <class T> void name##read(T *to, cudaSurfaceObject_t object, SAPWOOD_UNWRAP parameters, \
                                       cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {    \
        const auto *array = reinterpret_cast<const cudaArray *>(object);                         \
        *to = T{};                                                                               \
        if (const char *at = sapwood_cuda::surface_at(array, x, y, z, sizeof(T), mode)) __builtin_memcpy(to, at, sizeof(T)); \
    }                                                                                            \
    template <class T> void name##write(T value, cudaSurfaceObject_t object, SAPWOOD_UNWRAP parameters, \
                                        cudaSurfaceBoundaryMode mode = cudaBoundaryModeTrap) {   \
        const auto *array = reinterpret_cast<const cudaArray *>(object);                         \
        if (char *at = sapwood_cuda::surface_at(array, x, y, z, sizeof(T), mode)) __builtin_memcpy(at, &value, sizeof(T)); \
    }
#define SAPWOOD_UNWRAP(...) __VA_ARGS__
SAPWOOD_SURFACE(surf1D, (int x), x, 0, 0)
SAPWOOD_SURFACE(surf2D, (int x, int y), x, y, 0)
SAPWOOD_SURFACE(surf3D, (int x, int y, int z), x, y, z)
SAPWOOD_SURFACE(surf1DLayered, (int x, int layer), x, 0, layer)
SAPWOOD_SURFACE(surf2DLayered, (int x, int y, int layer), x, y, layer)
#undef SAPWOOD_SURFACE
#undef SAPWOOD_UNWRAP
