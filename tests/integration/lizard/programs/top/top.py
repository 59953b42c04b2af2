import ctypes, math
from lizard import user_prog_resources
from lizard.user_prog_resources import b64_json_enc, b64_json_dec
from tools import merging
from tools.merging import merge as _merge

class GlobalParams(user_prog_resources.EncodableStructure):
    _fields_ = [('k', ctypes.c_int)]

class _WithArrays(user_prog_resources.EncodableStructure):
    pass

class Dataset(_WithArrays):
    _fields_ = [('num_points', ctypes.c_int), ('first_index', ctypes.c_int), ('score', ctypes.POINTER(ctypes.c_float))]
    aux_field_names = ['score']
    def __len__(self): return self.num_points
    def init_aux_structures(self, gp): self.score_aux = [math.nan] * self.num_points
    def encode_dynamic(self, gp): return b64_json_enc([self.get_ref('score')[i] for i in range(len(self))])
    def decode_dynamic(self, s, gp):
        if not self.score: self.init_aux_structures(gp)
        for i, v in enumerate(b64_json_dec(s)): self.get_ref('score')[i] = v

class GlobalState(user_prog_resources.EncodableStructure):
    _fields_ = [('done', ctypes.c_int), ('iteration', ctypes.c_int), ('limit', ctypes.c_float)]

class AggregationResult(_WithArrays):
    _fields_ = [('used', ctypes.c_int), ('score', ctypes.POINTER(ctypes.c_float)), ('index', ctypes.POINTER(ctypes.c_int))]
    aux_field_names = ('score', 'index')
    def init_aux_structures(self, gp): self.score_aux, self.index_aux = [], []
    def encode_dynamic(self, gp):
        return b64_json_enc([[float(self.get_ref('score')[i]), self.get_ref('index')[i]] for i in range(self.used)])
    def decode_dynamic(self, s, gp):
        pairs = b64_json_dec(s)
        assert len(pairs) == self.used
        if self.score:
            for i, (a, b) in enumerate(pairs): self.score[i], self.index[i] = a, b
        else:
            self.score_aux, self.index_aux = [a for a, _ in pairs], [b for _, b in pairs]

def init_aggregation_result(gp, aggregation_result=None):
    r = aggregation_result if aggregation_result is not None else AggregationResult()
    if not r.score: r.init_aux_structures(gp)
    r.used = 0
    return r

def aggregate(gp, running_aggregate, aggregation_result):
    a, b = running_aggregate, aggregation_result
    merged = _merge(list(zip(a.score_aux, a.index_aux)), list(zip(b.score_aux, b.index_aux)), gp.k)
    a.score_aux, a.index_aux = [s for s, _ in merged], [i for _, i in merged]
    a.used = len(merged)

def init_global_state(gp, global_state=None):
    s = GlobalState(); s.limit = math.inf; return s

found = []   # kept by the server between iterations

def update_global_state(gp, aggregation_result, global_state):
    found.extend(aggregation_result.index_aux)
    global_state.iteration += 1
    if aggregation_result.used:
        global_state.limit = aggregation_result.score_aux[-1]
    global_state.done = aggregation_result.used == 0 or global_state.iteration == 3
    return global_state

def get_dataset_slice(gp, full, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > len(full): raise IndexError
    if dataset is None: dataset = Dataset()
    dataset.num_points, dataset.first_index = size, full.first_index + start_idx
    dataset.init_aux_structures(gp)
    for i in range(size): dataset.score_aux[i] = full.score_aux[start_idx + i]
    return dataset
