import os, sys
try:
    import python_funcs
except ImportError:
    sys.path.append(os.path.dirname(os.path.realpath(__file__)))
    import python_funcs
import random

C_EXTENSION = False

def init_global_params(run_settings):
    global_params = python_funcs.GlobalParams()
    global_params.dims = run_settings['dims']
    global_params.max_iterations = run_settings['max_iterations']
    global_params.rate = run_settings.get('rate', 0.5)
    global_params.tolerance = 1e-9
    return global_params

def init_dataset(global_params, run_settings):
    random.seed(3)
    dataset = python_funcs.Dataset()
    dataset.num_points = run_settings.get('count', 1000)
    dataset.init_aux_structures(global_params)
    for i in range(dataset.num_points):
        total = 0
        for d in range(global_params.dims):
            dataset.points_aux[i][d] = random.uniform(-1, 1)
            total += (d + 1) * dataset.points_aux[i][d]
        dataset.targets_aux[i] = total
    return dataset

def print_result(global_params, end_global_state_encoded, quiet_print=False):
    end_global_state = python_funcs.GlobalState()
    end_global_state.init_aux_structures(global_params)
    end_global_state.decode(end_global_state_encoded, global_params)
    print('Iterations: {}'.format(end_global_state.iteration))
    print('Weights: {}'.format([round(w, 3) for w in end_global_state.get_ref('weights')]))
