# -*- coding: utf-8 -*-
"""Tabs, Windows line ends, and habits of Python 2."""
from __future__ import absolute_import, division, print_function

import base64
import ctypes
import json

from lizard.user_prog_resources import *
from codec_of_odd import pack, unpack


class GlobalParams(EncodableStructure, object):
	_fields_ = [('dims', ctypes.c_uint), ('scale', ctypes.c_double), ('phase', ctypes.c_int)]


class Dataset(EncodableStructure):
	_fields_ = [('kind', ctypes.c_short), ('num_points', ctypes.c_int), ('label', ctypes.c_void_p),
		('values', ctypes.POINTER(ctypes.c_float)), ('weights', ctypes.POINTER(ctypes.c_ulong))]
	aux_field_names = ('label', 'values', 'weights')

	def __init__(self, *args, **kwargs):
		super(Dataset, self).__init__(*args, **kwargs)
		self.label_aux = 'odd'

	def __len__(self):
		return self.num_points

	def init_aux_structures(self, global_params):
		pass

	def encode_dynamic(self, global_params):
		dims = global_params.dims
		values, weights = self.get_ref('values'), self.get_ref('weights')
		return pack([values[i] for i in range(dims * len(self))], [weights[i] for i in range(len(self))])

	def decode_dynamic(self, encoded, global_params):
		values, weights = unpack(encoded)
		if not self.values:
			self.values_aux, self.weights_aux = values, weights
			return
		for i, value in enumerate(values): self.values[i] = value
		for i, value in enumerate(weights): self.weights[i] = value


class GlobalState(EncodableStructure):
	_fields_ = [('sums', ctypes.POINTER(ctypes.c_double)), ('done', ctypes.c_bool),
		('last', (ctypes.c_float * 3) * 2)]
	aux_field_names = ('sums')

	def init_aux_structures(self, global_params):
		self.sums_aux = [0.] * global_params.dims

	def encode_dynamic(self, global_params):
		from lizard import user_prog_resources
		sums = self.get_ref('sums')
		return user_prog_resources.b64_json_enc([sums[i] for i in range(global_params.dims)])

	def decode_dynamic(self, encoded, global_params):
		sums = b64_json_dec(encoded)
		if self.sums:
			for i, value in enumerate(sums): self.sums[i] = value
		else:
			self.sums_aux = sums


class AggregationResult(EncodableStructure):
	_fields_ = [('sums', ctypes.POINTER(ctypes.c_double)), ('weight', ctypes.c_ulong)]
	aux_field_names = ['sums']
	init_aux_structures = GlobalState.init_aux_structures
	encode_dynamic = GlobalState.encode_dynamic
	decode_dynamic = GlobalState.decode_dynamic


def init_aggregation_result(params, aggregation_result=None):
	result = AggregationResult()
	result.init_aux_structures(params)
	return result


def aggregate(params, running_aggregate, aggregation_result):
	running_aggregate.weight += aggregation_result.weight
	running_aggregate.sums_aux = [a + b for a, b in
		zip(running_aggregate.sums_aux, aggregation_result.sums_aux)]


def init_global_state(params, global_state=None):
	state = GlobalState()
	state.init_aux_structures(params)
	return state


def update_global_state(params, aggregation_result, global_state):
	global_state.last[1][2] += 1
	global_state.sums_aux = list(aggregation_result.sums_aux)
	global_state.last[0][0] = aggregation_result.weight
	global_state.done = global_state.last[1][2] == 3


def get_dataset_slice(params, full_dataset, start_idx, size, dataset=None):
	if size <= 0: raise IndexError('empty')
	part = Dataset()
	part.kind, part.num_points = full_dataset.kind, size
	part.values_aux = full_dataset.values_aux[start_idx * params.dims:(start_idx + size) * params.dims]
	part.weights_aux = full_dataset.weights_aux[start_idx:start_idx + size]
	return part
