C_EXTENSION = True


def init_global_params(run_settings):
    names = ("num_points", "dims", "num_centroids", "max_iterations", "threshold")
    return [run_settings[name] for name in names]


def init_dataset(global_params, run_settings):
    with open(run_settings["input_file"]) as input_file:
        return input_file.read()


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    iteration, values = end_global_state_encoded
    dims = global_params[1]
    if not quiet_print:
        print("iterations:", iteration)
    for i in range(0, len(values), dims):
        print(" ".join("%.4f" % value for value in values[i : i + dims]))
