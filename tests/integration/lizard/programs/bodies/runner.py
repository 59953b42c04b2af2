try:
    import python_funcs
except ImportError:
    import os, sys
    sys.path.append(os.path.join(os.path.dirname(__file__), 'py'))
    import body_funcs as python_funcs
import random

def init_global_params(run_settings):
    return python_funcs.GlobalParams(run_settings['steps'], 0.25, python_funcs.Vec3(0, 0, -1), 1)

def init_dataset(global_params, run_settings):
    rng = random.Random(run_settings['seed'])
    d = python_funcs.Dataset()
    d.num_points = run_settings['n']
    d.bodies_aux = [python_funcs.Body(python_funcs.Vec3(*(rng.uniform(-1, 1) for _ in range(3))), python_funcs.Vec3(*(rng.uniform(-1, 1) for _ in range(3))), rng.randrange(1, 5), bytes([rng.randrange(2)])) for _ in range(d.num_points)]
    return d

def print_result(global_params, state_encoded, quiet_print):
    s = python_funcs.GlobalState(); s.decode(state_encoded, global_params)
    print(["%.4f" % v for v in s.centre.tuple()], s.time, s.cube_aux)
