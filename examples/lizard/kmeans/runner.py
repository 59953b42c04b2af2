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
    params.dims = run_settings["dims"]
    params.max_iterations = run_settings["max_iterations"]
    params.num_centroids = run_settings["num_centroids"]
    params.threshold = run_settings["threshold"]
    return params


def init_dataset(global_params, run_settings):
    dataset = python_funcs.Dataset()
    with open(run_settings["input_file"]) as input_file:
        dataset.num_points = int(input_file.readline())
        dataset.points_aux = [
            [float(value) for value in line.split(" ")[1 : global_params.dims + 1]]
            for line in input_file
        ]
    assert len(dataset.points_aux) == dataset.num_points
    return dataset


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    state = python_funcs.GlobalState()
    state.decode(end_global_state_encoded, global_params)
    if not quiet_print:
        print("iterations: {}".format(state.iteration))
    for centroid in sorted(state.centroids_aux):
        print(" ".join("{:.4f}".format(value) for value in centroid))
