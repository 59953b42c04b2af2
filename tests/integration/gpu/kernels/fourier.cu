// cuFFT, called with what a test gives.
#include <cufft.h>

static int execute(cufftHandle plan, long type, void *in, void *out, long direction) {
  switch (type) {
    case CUFFT_C2C: return cufftExecC2C(plan, (cufftComplex *)in, (cufftComplex *)out, direction);
    case CUFFT_Z2Z: return cufftExecZ2Z(plan, (cufftDoubleComplex *)in, (cufftDoubleComplex *)out, direction);
    case CUFFT_R2C: return cufftExecR2C(plan, (cufftReal *)in, (cufftComplex *)out);
    case CUFFT_D2Z: return cufftExecD2Z(plan, (cufftDoubleReal *)in, (cufftDoubleComplex *)out);
    case CUFFT_C2R: return cufftExecC2R(plan, (cufftComplex *)in, (cufftReal *)out);
    default: return cufftExecZ2D(plan, (cufftDoubleComplex *)in, (cufftDoubleReal *)out);
  }
}
extern "C" int transform(long type, long rank, const int *n, long batch, void *in, void *out, long direction) {
  cufftHandle plan;
  const cufftType kind = cufftType(type);
  int bad = rank == 1 ? cufftPlan1d(&plan, n[0], kind, batch) : rank == 2 ? cufftPlan2d(&plan, n[0], n[1], kind)
                                                                          : cufftPlan3d(&plan, n[0], n[1], n[2], kind);
  if (bad) return bad;
  bad = execute(plan, type, in, out, direction);
  return bad | cufftDestroy(plan);
}
// Layouts: of each side sizes in memory, the step and the distance of transforms.
extern "C" int transform_many(long type, long rank, int *n, int *in_sizes, long in_step, long in_distance, int *out_sizes, long out_step,
                              long out_distance, long batch, void *in, void *out, long direction) {
  cufftHandle plan;
  size_t bytes;
  int bad = cufftCreate(&plan);
  bad |= cufftMakePlanMany(plan, rank, n, in_sizes, in_step, in_distance, out_sizes, out_step, out_distance, cufftType(type), batch, &bytes);
  return bad | execute(plan, type, in, out, direction) | cufftDestroy(plan);
}
extern "C" int wrong_use(cufftComplex *x) {
  cufftHandle plan;
  if (cufftExecC2C(99, x, x, CUFFT_FORWARD) != CUFFT_INVALID_PLAN) return 1;
  if (cufftPlan1d(&plan, 0, CUFFT_C2C, 1) != CUFFT_INVALID_SIZE) return 2;
  if (cufftPlan1d(&plan, 4, CUFFT_C2C, 0) != CUFFT_INVALID_VALUE) return 3;
  if (cufftPlan1d(&plan, 4, CUFFT_C2C, 1)) return 4;
  if (cufftExecC2C(plan, x, x, 0) != CUFFT_INVALID_VALUE) return 5;
  if (cufftExecR2C(plan, (cufftReal *)x, x) != CUFFT_INVALID_TYPE) return 6;
  if (cufftMakePlan1d(plan, 4, CUFFT_C2C, 1, nullptr) != CUFFT_INVALID_PLAN) return 7;
  return cufftDestroy(plan) || cufftDestroy(plan) != CUFFT_INVALID_PLAN ? 8 : 0;
}
