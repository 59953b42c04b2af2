import covariance

C_EXTENSION = False


def init_global_params(run_settings):
    return covariance.GlobalParams(run_settings["dims"])


def init_dataset(global_params, run_settings):
    data = covariance.Dataset()
    with open(run_settings["input_file"]) as file:
        data.rows_aux = [[float(word) for word in line.split(",")] for line in file if line.strip()]
    data.n = len(data.rows_aux)
    return data


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    state = covariance.GlobalState()
    state.decode(end_global_state_encoded, global_params)
    if not quiet_print:
        print("mean:", " ".join("%.4f" % value for value in state.mean_aux))
    for row in state.covariance_aux:
        print(" ".join("%9.4f" % value for value in row))
