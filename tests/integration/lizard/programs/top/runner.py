from python_funcs import GlobalParams, Dataset, GlobalState
C_EXTENSION = 0
def init_global_params(run_settings): return GlobalParams(run_settings["k"])
def init_dataset(global_params, run_settings):
    with open(run_settings["input_file"]) as f: v = [float(l) for l in f]
    d = Dataset(len(v), 0); d.score_aux = v; return d
def print_result(global_params, end_global_state_encoded, quiet_print=False):
    s = GlobalState(); s.decode(end_global_state_encoded, global_params); print("%.5f" % s.limit, s.iteration)
