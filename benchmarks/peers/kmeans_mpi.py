"""k-means with mpi4py, each rank calling the same C function on its slice.

Run by ``mpirun`` with one argument, JSON: library, points, clusters, rounds, mode
(``allreduce``: every rank gets the sums and moves the centres; ``reduce_bcast``: rank 0 does,
and sends them). Rank 0 prints the seconds of each iteration and the last inertia as JSON.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from mpi4py import MPI

from assigning import Assign, next_centres


def main() -> None:
    """Run the iterations."""
    task = json.loads(sys.argv[1])
    clusters, mode = task["clusters"], task["mode"]
    world = MPI.COMM_WORLD
    data = np.load(task["points"])
    dimensions = data.shape[1]
    points = np.array_split(data, world.size)[world.rank].copy()
    centres = data[:clusters].astype(np.float64)
    del data
    assign = Assign(task["library"], points, clusters)
    total = np.empty_like(assign.packed)
    inertia = 0.0
    stamps = []
    world.Barrier()
    for _ in range(task["rounds"]):
        assign(centres)
        if mode == "allreduce":
            world.Allreduce(assign.packed, total)
            centres, inertia = next_centres(total, clusters, dimensions)
        else:
            world.Reduce(assign.packed, total, root=0)
            if world.rank == 0:
                centres, inertia = next_centres(total, clusters, dimensions)
            world.Bcast(centres, root=0)
        stamps.append(time.perf_counter())
    if world.rank == 0:
        print(json.dumps({"seconds": np.diff(stamps).tolist(), "inertia": inertia}))


if __name__ == "__main__":
    main()
