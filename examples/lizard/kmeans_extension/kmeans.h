#ifndef KMEANS_EXTENSION_H
#define KMEANS_EXTENSION_H

void pin(double *memory, long bytes);
void unpin(double *memory);

// Adds each point to its nearest centre: counts (k) and sums (k * dims) are zeros at first.
// Returns the text of an error, or null.
const char *assign_points(const double *centres, const double *points, double *sums, int *counts,
                          int num_points, int k, int dims);

#endif
