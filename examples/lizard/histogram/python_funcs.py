import ctypes

from lizard.user_prog_resources import EncodableStructure, b64_json_dec, b64_json_enc

MAX_BINS = 64


class GlobalParams(EncodableStructure):
    _fields_ = [("low", ctypes.c_float), ("high", ctypes.c_float), ("bins", ctypes.c_int)]


class Dataset(EncodableStructure):
    _fields_ = [
        ("num_points", ctypes.c_int),
        ("lowest", ctypes.c_double),
        ("values", ctypes.POINTER(ctypes.c_float)),
    ]
    aux_field_names = ("values",)

    def __len__(self):
        return self.num_points

    def init_aux_structures(self, global_params):
        self.values_aux = [0.0] * self.num_points

    def encode_dynamic(self, global_params):
        return b64_json_enc(self.get_ref("values")[: self.num_points])

    def decode_dynamic(self, encoded, global_params):
        values = b64_json_dec(encoded)
        if self.values:
            ctypes.memmove(self.values, (ctypes.c_float * len(values))(*values), 4 * len(values))
        else:
            self.values_aux = values


class GlobalState(EncodableStructure):
    _fields_ = [
        ("done", ctypes.c_bool),
        ("counted", ctypes.c_longlong),
        ("counts", ctypes.c_int * MAX_BINS),
    ]


class AggregationResult(EncodableStructure):
    _fields_ = [("outside", ctypes.c_uint), ("counts", ctypes.c_int * MAX_BINS)]


def init_aggregation_result(global_params, aggregation_result=None):
    if aggregation_result is None:
        return AggregationResult()
    ctypes.memset(ctypes.addressof(aggregation_result), 0, ctypes.sizeof(AggregationResult))
    return aggregation_result


def aggregate(global_params, running_aggregate, aggregation_result):
    running_aggregate.outside += aggregation_result.outside
    for b in range(global_params.bins):
        running_aggregate.counts[b] += aggregation_result.counts[b]


def init_global_state(global_params, global_state=None):
    return GlobalState() if global_state is None else global_state


def update_global_state(global_params, aggregation_result, global_state):
    global_state.counts = aggregation_result.counts
    global_state.counted = sum(aggregation_result.counts) + aggregation_result.outside
    global_state.done = True
    return global_state


def get_dataset_slice(global_params, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > full_dataset.num_points:
        raise IndexError(start_idx)
    part = Dataset() if dataset is None else dataset
    part.num_points = size
    part.values_aux = full_dataset.values_aux[start_idx : start_idx + size]
    part.lowest = min(part.values_aux)
    return part
