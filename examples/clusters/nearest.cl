// OpenCL 1.2 has no atomic addition of floats: exchange until nobody came in between.
void add(volatile __global float *place, float value) {
  union { unsigned bits; float number; } seen, wanted;
  do {
    seen.number = *place;
    wanted.number = seen.number + value;
  } while (atomic_cmpxchg((volatile __global unsigned *)place, seen.bits, wanted.bits) != seen.bits);
}

// Adds each point to the centre that is nearest to it, and counts the points of each centre.
// @array points[n][d], centres[k][d]
// @array sums[k][d], counts[k]
__kernel void nearest(__global const float *points, __global const float *centres, int n, int d,
                      int k, __global float *sums, __global int *counts) {
  int i = get_global_id(0);
  if (i >= n) return;
  int best = 0;
  float least = MAXFLOAT;
  for (int c = 0; c < k; c++) {
    float distance = 0.0f;
    for (int j = 0; j < d; j++) {
      float t = points[i * d + j] - centres[c * d + j];
      distance += t * t;
    }
    if (distance < least) {
      least = distance;
      best = c;
    }
  }
  for (int j = 0; j < d; j++) add(&sums[best * d + j], points[i * d + j]);
  atomic_inc(&counts[best]);
}
