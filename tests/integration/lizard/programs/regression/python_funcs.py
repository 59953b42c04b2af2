#!/usr/bin/env python3
import ctypes

from lizard import user_prog_resources


class GlobalParams(user_prog_resources.EncodableStructure):
    _fields_ = [('dims', ctypes.c_int), ('max_iterations', ctypes.c_int),
                ('rate', ctypes.c_float), ('tolerance', ctypes.c_float)]


class Dataset(user_prog_resources.EncodableStructure):
    _fields_ = [('num_points', ctypes.c_int),
                ('points', ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
                ('targets', ctypes.POINTER(ctypes.c_float))]
    aux_field_names = ('points', 'targets')

    def __len__(self):
        return self.num_points

    def init_aux_structures(self, global_params):
        self.points_aux = [[0.0 for _ in range(global_params.dims)]
                           for _ in range(self.num_points)]
        self.targets_aux = [0.0 for _ in range(self.num_points)]

    def encode_dynamic(self, global_params):
        points, targets = self.get_ref('points'), self.get_ref('targets')
        data = {'points': [], 'targets': []}
        for i in range(self.num_points):
            data['points'].append([points[i][d] for d in range(global_params.dims)])
            data['targets'].append(targets[i])
        return user_prog_resources.b64_json_enc(data)

    def decode_dynamic(self, data, global_params):
        data = user_prog_resources.b64_json_dec(data)
        if bool(self.points):
            for i in range(self.num_points):
                for d in range(global_params.dims):
                    self.points[i][d] = data['points'][i][d]
                self.targets[i] = data['targets'][i]
        else:
            self.points_aux = data['points']
            self.targets_aux = data['targets']


class GlobalState(user_prog_resources.EncodableStructure):
    _fields_ = [('done', ctypes.c_int), ('iteration', ctypes.c_int),
                ('weights', ctypes.POINTER(ctypes.c_float)), ('loss', ctypes.c_double)]
    aux_field_names = ('weights',)

    def init_aux_structures(self, global_params):
        self.weights_aux = [0.0] * global_params.dims

    def encode_dynamic(self, global_params):
        w = self.get_ref('weights')
        return user_prog_resources.b64_json_enc([w[d] for d in range(global_params.dims)])

    def decode_dynamic(self, data, global_params):
        values = user_prog_resources.b64_json_dec(data)
        if bool(self.weights):
            for d in range(global_params.dims):
                self.weights[d] = values[d]
        else:
            self.weights_aux = values


class AggregationResult(user_prog_resources.EncodableStructure):
    _fields_ = [('gradient', ctypes.POINTER(ctypes.c_float)), ('loss', ctypes.c_double),
                ('count', ctypes.c_uint)]
    aux_field_names = ('gradient',)

    def init_aux_structures(self, global_params):
        self.gradient_aux = [0.0] * global_params.dims

    def encode_dynamic(self, global_params):
        g = self.get_ref('gradient')
        return user_prog_resources.b64_json_enc([g[d] for d in range(global_params.dims)])

    def decode_dynamic(self, data, global_params):
        self.gradient_aux = user_prog_resources.b64_json_dec(data)


def aggregate(global_params, running_aggregate, aggregation_result):
    for d in range(global_params.dims):
        running_aggregate.get_ref('gradient')[d] += aggregation_result.get_ref('gradient')[d]
    running_aggregate.loss += aggregation_result.loss
    running_aggregate.count += aggregation_result.count
    return running_aggregate


def init_aggregation_result(global_params, aggregation_result=None):
    if aggregation_result is None:
        aggregation_result = AggregationResult()
        aggregation_result.init_aux_structures(global_params)
    aggregation_result.loss = 0
    aggregation_result.count = 0
    for d in range(global_params.dims):
        aggregation_result.get_ref('gradient')[d] = 0
    return aggregation_result


def init_global_state(global_params, global_state=None):
    if global_state is None:
        global_state = GlobalState()
        global_state.init_aux_structures(global_params)
    global_state.iteration = 0
    global_state.done = False
    return global_state


def update_global_state(global_params, aggregation_result, global_state):
    g, w = aggregation_result.get_ref('gradient'), global_state.get_ref('weights')
    for d in range(global_params.dims):
        w[d] -= global_params.rate * g[d] / aggregation_result.count
    loss = aggregation_result.loss / aggregation_result.count
    global_state.iteration += 1
    if abs(loss - global_state.loss) < global_params.tolerance or global_state.iteration >= global_params.max_iterations:
        global_state.done = True
    global_state.loss = loss
    return global_state


def get_dataset_slice(global_params, full_dataset, start_idx, size, dataset=None):
    if size <= 0 or start_idx < 0 or start_idx + size > len(full_dataset):
        raise IndexError
    if dataset is None:
        dataset = Dataset()
    dataset.num_points = size
    dataset.init_aux_structures(global_params)
    for i in range(size):
        dataset.get_ref('targets')[i] = full_dataset.get_ref('targets')[start_idx + i]
        for d in range(global_params.dims):
            dataset.get_ref('points')[i][d] = full_dataset.get_ref('points')[start_idx + i][d]
    return dataset
