import random

import python_funcs


def init_global_params(run_settings):
    return python_funcs.GlobalParams(run_settings["low"], run_settings["high"], run_settings["bins"])


def init_dataset(global_params, run_settings):
    numbers = random.Random(run_settings.get("seed", 1))
    data = python_funcs.Dataset()
    data.num_points = run_settings["count"]
    data.values_aux = [numbers.gauss(0, 1) for _ in range(data.num_points)]
    return data


def print_result(global_params, end_global_state_encoded, quiet_print=False):
    state = python_funcs.GlobalState()
    state.decode(end_global_state_encoded, global_params)
    print(*state.counts[: global_params.bins])
    if not quiet_print:
        print(state.counted, "values in all")
