#include <stdint.h>

enum {
  BLOCK = 128, /* pixels at a time: their scores stay in the first-level cache */
  CHANNELS = 4 /* most channels of a pixel */
};

/* Inlined with a constant number of channels, so that the compiler unrolls the loops over
 * channels and works on several pixels per instruction. */
static inline __attribute__((always_inline)) void assign_block(
    const uint8_t *pixels, int n, const int d, const double *centres, int64_t k,
    int64_t *sums, int64_t *counts, int64_t *squares) {
  double across[CHANNELS][BLOCK] = {{0}}; /* the block transposed */
  double best[BLOCK];
  int32_t nearest[BLOCK];

  for (int i = 0; i < n; i++)
    for (int j = 0; j < d; j++) across[j][i] = pixels[i * d + j];
  for (int i = 0; i < BLOCK; i++) {
    best[i] = 1e300;
    nearest[i] = 0;
  }
  for (int32_t c = 0; c < k; c++) {
    /* |x - c|^2 = |x|^2 - 2 (x.c - |c|^2 / 2): |x|^2 is the same for all centres, so the
     * nearest centre has the lowest |c|^2 / 2 - x.c. */
    const double *centre = centres + c * d;
    double half = 0;
    for (int j = 0; j < d; j++) half += 0.5 * centre[j] * centre[j];
    for (int i = 0; i < BLOCK; i++) {
      double score = half;
      for (int j = 0; j < d; j++) score -= across[j][i] * centre[j];
      nearest[i] = score < best[i] ? c : nearest[i];
      best[i] = score < best[i] ? score : best[i];
    }
  }
  for (int i = 0; i < n; i++) {
    const int64_t c = nearest[i];
    counts[c]++;
    for (int j = 0; j < d; j++) {
      const int64_t value = pixels[i * d + j];
      sums[c * d + j] += value;
      *squares += value * value;
    }
  }
}

/* Assigns each pixel to its nearest centre and sums the pixels of each centre.
 *
 * All sums are of whole numbers and therefore exact: they are the same, bit for bit, however
 * the pixels are split among agents.
 *
 * @array pixels[n][d]
 * @array centres[k][d]
 * @array sums[k][d]
 * @array counts[k]
 * @array squares[1]
 */
void assign(const uint8_t *pixels, int64_t n, int64_t d, const double *centres, int64_t k,
            int64_t *sums, int64_t *counts, int64_t *squares) {
  for (int64_t c = 0; c < k; c++) counts[c] = 0;
  for (int64_t i = 0; i < k * d; i++) sums[i] = 0;
  *squares = 0;
  for (int64_t start = 0; start < n; start += BLOCK) {
    const uint8_t *block = pixels + start * d;
    const int width = n - start < BLOCK ? (int)(n - start) : BLOCK;
    switch (d) {
      case 1: assign_block(block, width, 1, centres, k, sums, counts, squares); break;
      case 3: assign_block(block, width, 3, centres, k, sums, counts, squares); break;
      case 4: assign_block(block, width, 4, centres, k, sums, counts, squares); break;
    }
  }
}
