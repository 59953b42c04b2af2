import os
import sys

try:
    import python_funcs
except ImportError:
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))
    import python_funcs

C_EXTENSION = False


def init_global_params(run_settings):
    params = python_funcs.GlobalParams()
    params.dims = int(run_settings["dims"])
    params.max_iterations = int(run_settings.get("max_iterations", 1))
    params.crash_iteration = int(run_settings.get("crash_iteration", 2))
    return params


def init_dataset(global_params, run_settings):
    dataset = python_funcs.Dataset()
    dataset.num_points = 100
    dataset.points_aux = [1.0] * (100 * global_params.dims)
    return dataset


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    state = python_funcs.GlobalState()
    state.decode(end_global_state_encoded, global_params)
    if not quiet_print:
        print("iterations:", state.iteration)
    print("sums:", " ".join("%.3f" % value for value in state.sums_aux))
