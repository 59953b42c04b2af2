import ctypes

from lizard import user_prog_resources


class GlobalParams(user_prog_resources.EncodableStructure):
    _fields_ = [("dims", ctypes.c_int), ("max_iterations", ctypes.c_int)]


class Dataset(user_prog_resources.EncodableStructure):
    _fields_ = [("num_points", ctypes.c_int), ("points", ctypes.POINTER(ctypes.c_float))]
    aux_field_names = ("points",)

    def __len__(self):
        return self.num_points

    def init_aux_structures(self, global_params):
        self.points_aux = [0.0] * (self.num_points * global_params.dims)

    def encode_dynamic(self, global_params):
        points = self.get_ref("points")
        return user_prog_resources.b64_json_enc(points[: self.num_points * global_params.dims])

    def decode_dynamic(self, encoded, global_params):
        values = user_prog_resources.b64_json_dec(encoded)
        if not self.points:
            self.points_aux = values
            return
        for i, value in enumerate(values):
            self.points[i] = value


class Sums(user_prog_resources.EncodableStructure):
    def init_aux_structures(self, global_params):
        self.sums_aux = [0.0] * global_params.dims

    def encode_dynamic(self, global_params):
        sums = self.get_ref("sums")
        return user_prog_resources.b64_json_enc([sums[d] for d in range(global_params.dims)])

    def decode_dynamic(self, encoded, global_params):
        values = user_prog_resources.b64_json_dec(encoded)
        if not self.sums:
            self.sums_aux = values
            return
        for d, value in enumerate(values):
            self.sums[d] = value


class GlobalState(Sums):
    _fields_ = [
        ("done", ctypes.c_int),
        ("iteration", ctypes.c_int),
        ("sums", ctypes.POINTER(ctypes.c_double)),
    ]
    aux_field_names = ("sums",)


class AggregationResult(Sums):
    _fields_ = [("sums", ctypes.POINTER(ctypes.c_double))]
    aux_field_names = ("sums",)


def init_aggregation_result(global_params, aggregation_result=None):
    if aggregation_result is None:
        aggregation_result = AggregationResult()
        aggregation_result.init_aux_structures(global_params)
    sums = aggregation_result.get_ref("sums")
    for d in range(global_params.dims):
        sums[d] = 0.0
    return aggregation_result


def aggregate(global_params, running_aggregate, aggregation_result):
    total, part = running_aggregate.get_ref("sums"), aggregation_result.get_ref("sums")
    for d in range(global_params.dims):
        total[d] += part[d]
    return running_aggregate


def init_global_state(global_params, global_state=None):
    if global_state is None:
        global_state = GlobalState()
        global_state.init_aux_structures(global_params)
    global_state.done = 0
    global_state.iteration = 0
    return global_state


def update_global_state(global_params, aggregation_result, global_state):
    sums, total = global_state.get_ref("sums"), aggregation_result.get_ref("sums")
    for d in range(global_params.dims):
        sums[d] = total[d]
    global_state.iteration += 1
    global_state.done = int(global_state.iteration >= global_params.max_iterations)
    return global_state


def get_dataset_slice(global_params, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > len(full_dataset):
        raise IndexError("slice out of range")
    if dataset is None:
        dataset = Dataset()
    dataset.num_points = size
    dims = global_params.dims
    dataset.points_aux = full_dataset.get_ref("points")[start_idx * dims : (start_idx + size) * dims]
    return dataset
