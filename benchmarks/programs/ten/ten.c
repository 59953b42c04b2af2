#include <stdint.h>

/** Adds up the first items of ten arrays.
 *  @array a[n]
 *  @array b[n]
 *  @array c[n]
 *  @array d[n]
 *  @array e[n]
 *  @array f[n]
 *  @array g[n]
 *  @array h[n]
 *  @array i[n]
 *  @array j[n] */
void ten(const double *a, const double *b, const double *c, const double *d, const double *e,
         const double *f, const double *g, const double *h, const double *i, const double *j,
         int64_t n, double *total) {
    *total = n > 0 ? a[0] + b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0] + i[0] + j[0] : 0;
}
