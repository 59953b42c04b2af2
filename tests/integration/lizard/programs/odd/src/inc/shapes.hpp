#ifndef SHAPES
#define SHAPES
#include <stddef.h>

enum phase_t { WARMING, WORKING };
typedef unsigned long weight_t;

namespace odd {
struct Parameters { unsigned dims; double scale; enum phase_t phase; };
struct Points { short kind; int num_points; const char *label; float *values; weight_t *weights; };
class State { public: double *sums; bool done; float last[2][3]; };
struct Sums { double *sums; weight_t weight; };
}
using odd::Parameters;
typedef const odd::State *state_p;

extern "C" {
	void run_iteration(const int block_size, const Parameters *, odd::Points *, state_p, odd::Sums &result);
	int setup_dataset(odd::Points *points, Parameters *parameters);
	int free_dataset(odd::Points *points, Parameters *parameters);
	void setup_global_state(odd::State *state, void *parameters);
	void free_global_state(odd::State *state, void *parameters);
	void setup_aggregation_result(odd::Sums *sums, const Parameters *parameters);
	void free_aggregation_result(odd::Sums *sums, const Parameters *parameters);
}
#endif
