import ctypes
import random

from lizard import user_prog_resources

float_rows = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))


class GlobalParams(user_prog_resources.EncodableStructure):
    _fields_ = [
        ("dims", ctypes.c_int),
        ("max_iterations", ctypes.c_int),
        ("num_centroids", ctypes.c_int),
        ("threshold", ctypes.c_float),
    ]


class Dataset(user_prog_resources.EncodableStructure):
    _fields_ = [("num_points", ctypes.c_int), ("points", float_rows)]
    aux_field_names = ("points",)

    def __len__(self):
        return self.num_points

    def init_aux_structures(self, global_params):
        self.points_aux = rows_of_zeros(self.num_points, global_params.dims)

    def encode_dynamic(self, global_params):
        rows = read_rows(self.get_ref("points"), self.num_points, global_params.dims)
        return user_prog_resources.b64_json_enc(rows)

    def decode_dynamic(self, encoded, global_params):
        rows = user_prog_resources.b64_json_dec(encoded)
        if self.points:
            write_rows(self.points, rows)
        else:
            self.points_aux = rows


class GlobalState(user_prog_resources.EncodableStructure):
    _fields_ = [("done", ctypes.c_int), ("iteration", ctypes.c_int), ("centroids", float_rows)]
    aux_field_names = ("centroids",)

    def init_aux_structures(self, global_params):
        self.centroids_aux = rows_of_zeros(global_params.num_centroids, global_params.dims)

    def encode_dynamic(self, global_params):
        params = global_params
        rows = read_rows(self.get_ref("centroids"), params.num_centroids, params.dims)
        return user_prog_resources.b64_json_enc(rows)

    def decode_dynamic(self, encoded, global_params):
        rows = user_prog_resources.b64_json_dec(encoded)
        if self.centroids:
            write_rows(self.centroids, rows)
        else:
            self.centroids_aux = rows


class AggregationResult(user_prog_resources.EncodableStructure):
    _fields_ = [("centroid_updates", float_rows), ("update_counts", ctypes.POINTER(ctypes.c_int))]
    aux_field_names = ("centroid_updates", "update_counts")

    def init_aux_structures(self, global_params):
        self.centroid_updates_aux = rows_of_zeros(global_params.num_centroids, global_params.dims)
        self.update_counts_aux = [0] * global_params.num_centroids

    def encode_dynamic(self, global_params):
        k = global_params.num_centroids
        updates = read_rows(self.get_ref("centroid_updates"), k, global_params.dims)
        counts = self.get_ref("update_counts")
        return user_prog_resources.b64_json_enc({"updates": updates, "counts": counts[:k]})

    def decode_dynamic(self, encoded, global_params):
        data = user_prog_resources.b64_json_dec(encoded)
        if self.centroid_updates:
            write_rows(self.centroid_updates, data["updates"])
        else:
            self.centroid_updates_aux = data["updates"]
        if self.update_counts:
            for i, count in enumerate(data["counts"]):
                self.update_counts[i] = count
        else:
            self.update_counts_aux = data["counts"]


def rows_of_zeros(count, dims):
    return [[0.0] * dims for _ in range(count)]


def read_rows(rows, count, dims):
    return [[rows[i][d] for d in range(dims)] for i in range(count)]


def write_rows(rows, values):
    for i, row in enumerate(values):
        for d, value in enumerate(row):
            rows[i][d] = value


def init_aggregation_result(global_params, aggregation_result=None):
    if aggregation_result is None:
        aggregation_result = AggregationResult()
        aggregation_result.init_aux_structures(global_params)
        return aggregation_result
    updates = aggregation_result.get_ref("centroid_updates")
    write_rows(updates, rows_of_zeros(global_params.num_centroids, global_params.dims))
    counts = aggregation_result.get_ref("update_counts")
    for i in range(global_params.num_centroids):
        counts[i] = 0
    return aggregation_result


def aggregate(global_params, running_aggregate, aggregation_result):
    updates = running_aggregate.get_ref("centroid_updates")
    counts = running_aggregate.get_ref("update_counts")
    more = aggregation_result.get_ref("centroid_updates")
    more_counts = aggregation_result.get_ref("update_counts")
    for i in range(global_params.num_centroids):
        counts[i] += more_counts[i]
        for d in range(global_params.dims):
            updates[i][d] += more[i][d]


def init_global_state(global_params, global_state=None):
    if global_state is None:
        global_state = GlobalState()
    global_state.done = 0
    global_state.iteration = 0
    global_state.centroids_aux = [
        [random.uniform(0, 1) for _ in range(global_params.dims)]
        for _ in range(global_params.num_centroids)
    ]
    return global_state


def update_global_state(global_params, aggregation_result, global_state):
    updates = aggregation_result.get_ref("centroid_updates")
    counts = aggregation_result.get_ref("update_counts")
    centroids = global_state.get_ref("centroids")
    moved = 0.0
    for i in range(global_params.num_centroids):
        if counts[i] == 0:
            continue
        for d in range(global_params.dims):
            value = updates[i][d] / counts[i]
            moved = max(moved, abs(value - centroids[i][d]))
            centroids[i][d] = value
    global_state.iteration += 1
    last = global_state.iteration >= global_params.max_iterations
    global_state.done = 1 if last or moved <= global_params.threshold else 0
    return global_state


def get_dataset_slice(global_params, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > len(full_dataset):
        raise IndexError("slice out of range")
    dataset = dataset if dataset is not None else Dataset()
    dataset.num_points = size
    dataset.points_aux = full_dataset.get_ref("points")[start_idx : start_idx + size]
    return dataset
