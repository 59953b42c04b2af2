#include <stdint.h>

/* One explicit step of the heat equation.
 *
 * @array block[rows][columns]
 * @array next[rows-2][columns-2]
 */
void heat(const double *block, int64_t rows, int64_t columns, double *next) {
  for (int64_t i = 1; i < rows - 1; i++) {
    const double *up = block + (i - 1) * columns, *row = up + columns, *down = row + columns;
    double *to = next + (i - 1) * (columns - 2);
    for (int64_t j = 1; j < columns - 1; j++)
      to[j - 1] = row[j] + 0.2 * (up[j] + down[j] + row[j - 1] + row[j + 1] - 4 * row[j]);
  }
}
