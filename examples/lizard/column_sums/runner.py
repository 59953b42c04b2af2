import csv
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
    return params


def init_dataset(global_params, run_settings):
    dataset = python_funcs.Dataset()
    with open(run_settings["input_file"]) as file:
        rows = [[float(value) for value in row] for row in csv.reader(file) if row]
    dataset.num_points = len(rows)
    dataset.points_aux = [value for row in rows for value in row]
    return dataset


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    state = python_funcs.GlobalState()
    state.decode(end_global_state_encoded, global_params)
    if not quiet_print:
        print("iterations:", state.iteration)
    print("sums:", " ".join("%.3f" % value for value in state.sums_aux))
