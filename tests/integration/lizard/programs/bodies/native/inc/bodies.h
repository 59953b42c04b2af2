#ifndef VECS
#define VECS
struct vec3 { float x, y, z; };
struct body { vec3 at; vec3 v; double mass; char kind; };
enum kinds { LIGHT = 0, HEAVY = 1 };
struct global_params_t { int steps; float dt; vec3 pull; enum kinds heavy; };
struct dataset_t { int num_points; body *bodies; };
struct global_state_t { vec3 centre; double time; int done; float ***cube; };
struct agg_res_t { vec3 *moment; double mass[2]; long n; float ***cube; };
#endif
