"""mpi4py: rank 0 is the client, the others are workers; run by ``mpirun``."""

from __future__ import annotations

from typing import Any

import numpy as np
from mpi4py import MPI

from peers.work import SMALL, Clock, Work, check_sum, filled, touched

Array = np.ndarray[Any, np.dtype[np.float64]]


def main() -> None:
    """Do the work on every rank."""
    work = Work.from_arguments()
    world = MPI.COMM_WORLD
    clock = Clock()
    nothing = np.zeros(0, np.uint8)

    def round_trip() -> None:
        if world.rank == 0:
            world.Send(nothing, dest=1)
            world.Recv(nothing, source=1)
        elif world.rank == 1:
            world.Recv(nothing, source=0)
            world.Send(nothing, dest=0)

    def gather() -> None:
        sent = SMALL.copy() if world.rank == 0 else np.empty_like(SMALL)
        world.Bcast(sent, root=0)
        got = np.empty((world.size, SMALL.size), np.uint8) if world.rank == 0 else None
        world.Gather(sent, got, root=0)

    clock.measure("round_trip", work.rounds, round_trip)
    clock.measure("gather", work.rounds, gather)
    for nbytes in work.sums:
        total = np.empty(nbytes // 8)

        def array_sum(nbytes: int = nbytes, total: Array = total) -> None:
            world.Barrier()
            world.Reduce(filled(nbytes, world.rank), total, root=0)

        clock.measure(f"sum_{nbytes}", work.large_rounds, array_sum)
        if world.rank == 0:
            check_sum(total, work.agents)
    array = np.zeros(work.broadcast // 8)

    def broadcast() -> None:
        world.Barrier()
        world.Bcast(array, root=0)
        touched(array)
        world.Barrier()

    if work.broadcast:
        clock.measure("broadcast_copy", max(1, work.large_rounds // 2), broadcast)
    if world.rank == 0:
        clock.report()


if __name__ == "__main__":
    main()
