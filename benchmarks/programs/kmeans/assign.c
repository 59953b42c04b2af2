#include <stdint.h>

enum { BLOCK = 64, D = 16 };

/* Assigns each point to its nearest centre; sums, counts and inertia are added up anew.
 *
 * @array points[n][16]
 * @array centres[k][16]
 * @array sums[k][16]
 * @array counts[k]
 * @array inertia[1]
 */
void assign(const float *points, int64_t n, const double *centres, int64_t k, double *sums,
            int64_t *counts, double *inertia) {
  for (int64_t c = 0; c < k; c++) counts[c] = 0;
  for (int64_t i = 0; i < k * D; i++) sums[i] = 0;
  double total = 0;
  for (int64_t start = 0; start < n; start += BLOCK) {
    const float *block = points + start * D;
    const int width = n - start < BLOCK ? (int)(n - start) : BLOCK;
    float across[D][BLOCK] = {{0}}; /* the block transposed: several points per instruction */
    float best[BLOCK];
    int32_t nearest[BLOCK];
    for (int i = 0; i < width; i++)
      for (int j = 0; j < D; j++) across[j][i] = block[i * D + j];
    for (int i = 0; i < BLOCK; i++) {
      best[i] = 3e38f;
      nearest[i] = 0;
    }
    for (int32_t c = 0; c < k; c++) {
      for (int i = 0; i < BLOCK; i++) {
        float distance = 0;
        for (int j = 0; j < D; j++) {
          const float difference = across[j][i] - (float)centres[c * D + j];
          distance += difference * difference;
        }
        nearest[i] = distance < best[i] ? c : nearest[i];
        best[i] = distance < best[i] ? distance : best[i];
      }
    }
    for (int i = 0; i < width; i++) {
      const int64_t c = nearest[i];
      counts[c]++;
      total += best[i];
      for (int j = 0; j < D; j++) sums[c * D + j] += block[i * D + j];
    }
  }
  *inertia = total;
}
