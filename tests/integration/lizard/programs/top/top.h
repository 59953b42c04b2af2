#pragma once
struct P { int k; };
struct D { int num_points; int first_index; float *score; };
struct S { int done; int iteration; float limit; };
struct R { int used; float *score; int *index; };
void sort_block(float *score, int *index, int n);
