import glue


def init_global_params(settings):
    params = glue.GlobalParams()
    params.dims, params.scale, params.phase = settings["dims"], 0.5, 1
    return params


def init_dataset(params, settings):
    data = glue.Dataset()
    data.kind = -7
    data.num_points = settings["count"]
    data.values_aux = [float(i % 10) for i in range(data.num_points * params.dims)]
    data.weights_aux = [i % 3 + 1 for i in range(data.num_points)]
    return data


def print_result(params, state_encoded):
    state = glue.GlobalState()
    state.decode(state_encoded, params)
    print(state.last[1][2], state.last[0][0], *state.sums_aux)
