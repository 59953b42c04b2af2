from ctypes import POINTER, c_double, c_int, c_longlong

from lizard.user_prog_resources import EncodableStructure, b64_json_dec, b64_json_enc


class GlobalParams(EncodableStructure):
    _fields_ = [("dims", c_int)]


class Structure(EncodableStructure):
    """Encodes vectors and matrices by their sizes."""

    def shapes(self, global_params):
        """Return the sizes of all arrays by name; each kind of structure has its own."""
        raise NotImplementedError

    def init_aux_structures(self, global_params):
        for name, shape in self.shapes(global_params).items():
            setattr(self, name + "_aux", zeros(shape))

    def encode_dynamic(self, global_params):
        shapes = self.shapes(global_params)
        return b64_json_enc({name: read(self.get_ref(name), shape) for name, shape in shapes.items()})

    def decode_dynamic(self, encoded, global_params):
        values = b64_json_dec(encoded)
        for name, shape in self.shapes(global_params).items():
            if getattr(self, name):
                write(getattr(self, name), values[name])
            else:
                setattr(self, name + "_aux", values[name])


class Dataset(Structure):
    _fields_ = [("n", c_int), ("rows", POINTER(POINTER(c_double)))]
    aux_field_names = ("rows",)

    def __len__(self):
        return self.n

    def shapes(self, global_params):
        return {"rows": (self.n, global_params.dims)}


class GlobalState(Structure):
    _fields_ = [
        ("done", c_int),
        ("mean", POINTER(c_double)),
        ("covariance", POINTER(POINTER(c_double))),
    ]
    aux_field_names = ("mean", "covariance")

    def shapes(self, global_params):
        d = global_params.dims
        return {"mean": (d,), "covariance": (d, d)}


class AggregationResult(Structure):
    _fields_ = [
        ("count", c_longlong),
        ("sums", POINTER(c_double)),
        ("products", POINTER(POINTER(c_double))),
    ]
    aux_field_names = ("sums", "products")

    def shapes(self, global_params):
        d = global_params.dims
        return {"sums": (d,), "products": (d, d)}


def zeros(shape):
    if len(shape) == 1:
        return [0.0] * shape[0]
    return [zeros(shape[1:]) for _ in range(shape[0])]


def read(memory, shape):
    if len(shape) == 1:
        return [memory[i] for i in range(shape[0])]
    return [read(memory[i], shape[1:]) for i in range(shape[0])]


def write(memory, values):
    for i, value in enumerate(values):
        if isinstance(value, list):
            write(memory[i], value)
        else:
            memory[i] = value


def init_aggregation_result(global_params, aggregation_result=None):
    result = AggregationResult() if aggregation_result is None else aggregation_result
    result.count = 0
    for name, shape in result.shapes(global_params).items():
        if getattr(result, name):
            write(getattr(result, name), zeros(shape))
        else:
            setattr(result, name + "_aux", zeros(shape))
    return result


def aggregate(global_params, running_aggregate, aggregation_result):
    running_aggregate.count += aggregation_result.count
    total, part = running_aggregate.get_ref("sums"), aggregation_result.get_ref("sums")
    products, more = running_aggregate.get_ref("products"), aggregation_result.get_ref("products")
    for a in range(global_params.dims):
        total[a] += part[a]
        for b in range(global_params.dims):
            products[a][b] += more[a][b]
    return running_aggregate


def init_global_state(global_params, global_state=None):
    state = GlobalState() if global_state is None else global_state
    state.init_aux_structures(global_params)
    state.done = 0
    return state


def update_global_state(global_params, aggregation_result, global_state):
    count, dims = aggregation_result.count, range(global_params.dims)
    sums, products = aggregation_result.get_ref("sums"), aggregation_result.get_ref("products")
    mean = [sums[a] / count for a in dims]
    global_state.mean_aux = mean
    global_state.covariance_aux = [
        [products[a][b] / count - mean[a] * mean[b] for b in dims] for a in dims
    ]
    global_state.done = 1
    return global_state


def get_dataset_slice(global_params, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > full_dataset.n:
        raise IndexError("no such points")
    part = Dataset() if dataset is None else dataset
    part.n = size
    part.rows_aux = full_dataset.get_ref("rows")[start_idx : start_idx + size]
    return part
