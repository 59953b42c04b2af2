"""k-means as a C extension: everything that travels is plain JSON.

params = [num_points, dims, k, max_iterations, threshold]
state = [iteration, [numbers of all centres]]
partial = [[points of each centre], [sums of all centres]]
"""
import array
import random


# On the server.


def split_data(data):
    for line in data.strip().split("\n")[1:]:
        yield [float(value) for value in line.split(" ")[1:]]


def initialize_global_state(params):
    _, dims, k, _, _ = params
    return [0, [random.uniform(0, 1) for _ in range(k * dims)]]


def init_aggregation_result(params, aggregation_result=None):
    _, dims, k, _, _ = params
    return [[0] * k, [0.0] * (k * dims)]


def aggregate(params, aggregation_result, partial):
    for total, part in zip(aggregation_result, partial):
        for i, value in enumerate(part):
            total[i] += value
    return aggregation_result


def update_global_state(params, aggregation_result, state):
    _, dims, k, _, _ = params
    counts, sums = aggregation_result
    centres = list(state[1])
    for c in range(k):
        for d in range(dims):
            if counts[c]:
                centres[c * dims + d] = sums[c * dims + d] / counts[c]
    return [state[0] + 1, centres]


def terminate(params, prev_state, state):
    _, _, _, max_iterations, threshold = params
    moved = max(abs(a - b) for a, b in zip(prev_state[1], state[1]))
    return state[0] >= max_iterations or moved <= threshold


# On the clients.


def to_array(rows):
    return array.array("d", [value for row in rows for value in row])


def run_iteration(params, data_count, global_state, pinned, dataset):
    import user_program

    _, dims, k, _, _ = params
    sums = array.array("d", [0.0] * (k * dims))
    counts = array.array("i", [0] * k)
    user_program.kmeans_iteration(global_state, dataset, sums, counts, data_count, k, dims)
    return [counts.tolist(), sums.tolist()]
