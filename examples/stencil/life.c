#include <stdint.h>

/* One generation of the game of life.
 *
 * @array block[rows][columns]
 * @array next[rows-2][columns-2]
 */
void life(const uint8_t *block, int64_t rows, int64_t columns, uint8_t *next) {
  for (int64_t i = 1; i < rows - 1; i++) {
    const uint8_t *up = block + (i - 1) * columns, *row = up + columns, *down = row + columns;
    uint8_t *to = next + (i - 1) * (columns - 2);
    for (int64_t j = 1; j < columns - 1; j++) {
      int near = up[j - 1] + up[j] + up[j + 1] + row[j - 1] + row[j + 1] + down[j - 1] + down[j] +
                 down[j + 1];
      to[j - 1] = (near == 3) | (row[j] & (near == 2));
    }
  }
}
