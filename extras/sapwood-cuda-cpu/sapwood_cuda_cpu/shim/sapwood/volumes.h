// Memory of three dimensions: what cudaMalloc3D gives, and copies of boxes.
#pragma once

#include "api.h"

struct cudaPitchedPtr { void *ptr; size_t pitch, xsize, ysize; };
struct cudaExtent { size_t width, height, depth; };
struct cudaPos { size_t x, y, z; };
struct cudaMemcpy3DParms {
    struct cudaArray *srcArray;
    cudaPos srcPos;
    cudaPitchedPtr srcPtr;
    struct cudaArray *dstArray;
    cudaPos dstPos;
    cudaPitchedPtr dstPtr;
    cudaExtent extent;
    cudaMemcpyKind kind;
};
inline cudaPitchedPtr make_cudaPitchedPtr(void *p, size_t pitch, size_t x, size_t y) { return {p, pitch, x, y}; }
inline cudaExtent make_cudaExtent(size_t width, size_t height, size_t depth) { return {width, height, depth}; }
inline cudaPos make_cudaPos(size_t x, size_t y, size_t z) { return {x, y, z}; }

namespace sapwood_cuda {
inline char *row_of(const cudaPitchedPtr &memory, const cudaPos &from, size_t y, size_t z) {
    return (char *)memory.ptr + ((from.z + z) * memory.ysize + from.y + y) * memory.pitch + from.x;
}
inline bool fits(const cudaPitchedPtr &memory, const cudaPos &from, const cudaExtent &box) {
    return memory.ptr && from.x + box.width <= memory.pitch && (box.depth < 2 || from.y + box.height <= memory.ysize);
}
}

inline cudaError_t cudaMalloc3D(cudaPitchedPtr *p, cudaExtent box, SAPWOOD_PLACE) {
    p->pitch = (box.width + 511) & ~size_t(511), p->xsize = box.width, p->ysize = box.height;
    return sapwood_cuda::allocate(&p->ptr, p->pitch * box.height * box.depth, "cudaMalloc3D", file, line);
}
inline cudaError_t cudaMemset3D(cudaPitchedPtr memory, int value, cudaExtent box) {
    if (!box.width || !box.height || !box.depth) return cudaSuccess;
    if (!sapwood_cuda::fits(memory, {0, 0, 0}, box)) return sapwood_cuda::fail(cudaErrorInvalidValue);
    for (size_t z = 0; z < box.depth; z++)
        for (size_t y = 0; y < box.height; y++)
            if (auto error = cudaMemset(sapwood_cuda::row_of(memory, {0, 0, 0}, y, z), value, box.width)) return error;
    return cudaSuccess;
}
inline cudaError_t cudaMemset3DAsync(cudaPitchedPtr p, int value, cudaExtent box, cudaStream_t = 0) {
    return cudaMemset3D(p, value, box);
}
