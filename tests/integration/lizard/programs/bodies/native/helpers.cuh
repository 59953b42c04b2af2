#pragma once
#include "inc/bodies.h"
__host__ __device__ inline vec3 operator*(double s, vec3 a) { return {float(s * a.x), float(s * a.y), float(s * a.z)}; }
__host__ __device__ inline vec3 operator+(vec3 a, vec3 b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
__constant__ global_params_t CONST_PARAMS;
