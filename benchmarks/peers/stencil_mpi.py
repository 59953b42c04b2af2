"""The heat equation with mpi4py, each rank calling the same C function on its rows.

Run by ``mpirun`` with one argument, JSON: library, rows, columns, steps. Rank 0 prints the
seconds of a step, the seconds that copying the border rows takes, and the sum of the grid as JSON.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time

import numpy as np
from mpi4py import MPI


def main() -> None:
    """Run the steps."""
    task = json.loads(sys.argv[1])
    world = MPI.COMM_WORLD
    heat = ctypes.CDLL(task["library"]).heat
    heat.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    grid = np.random.default_rng(0).random((task["rows"], task["columns"]))
    part = np.array_split(grid, world.size)[world.rank]
    block, new = np.pad(part, 1, mode="edge"), np.empty_like(part)
    up = world.rank - 1 if world.rank else MPI.PROC_NULL
    down = world.rank + 1 if world.rank + 1 < world.size else MPI.PROC_NULL
    world.Barrier()
    began = time.perf_counter()
    for _ in range(task["steps"]):
        block[0], block[-1] = block[1], block[-2]
        world.Sendrecv(block[1], up, recvbuf=block[-1], source=down)
        world.Sendrecv(block[-2], down, recvbuf=block[0], source=up)
        block[:, 0], block[:, -1] = block[:, 1], block[:, -2]
        heat(block.ctypes.data, *block.shape, new.ctypes.data)
        block[1:-1, 1:-1] = new
    world.Barrier()
    seconds = (time.perf_counter() - began) / task["steps"]
    began = time.perf_counter()
    for _ in range(1000):
        block[0], block[-1] = block[1], block[-2]
    floor = (time.perf_counter() - began) / 1000
    total = world.reduce(float(new.sum()))
    if world.rank == 0:
        print(json.dumps({"seconds": seconds, "floor": floor, "sum": total}))


if __name__ == "__main__":
    main()
