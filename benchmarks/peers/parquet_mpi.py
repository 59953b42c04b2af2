"""k-means and logistic regression over a Parquet file by mpi4py; see ``datasets.py``.

Each rank has a run of row groups, which it reads in each iteration.
"""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
from mpi4py import MPI

from programs.parquet_steps import Course, Given, first_of, groups_of, moved, part_of_groups


def reserved() -> int:
    """Return the bytes that the libraries of this process have reserved, most of them unused."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmData:"))) << 10


def main() -> None:
    """Run it as one rank."""
    given = Given.from_arguments()
    world = MPI.COMM_WORLD
    world.Barrier()
    most = reserved() + given.limit
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    course = Course(given) if world.rank == 0 else None
    own = np.array_split(groups_of(given.file), world.size)[world.rank].tolist()
    state = first_of(given.task, given.file)
    for _ in range(given.rounds):
        part = part_of_groups(given.task, given.file, own, state)
        total = np.empty_like(part)
        world.Allreduce(part, total)
        state = moved(given.task, state, total)
    if course is not None:
        course.tell(state)


if __name__ == "__main__":
    main()
