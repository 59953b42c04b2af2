"""Dask distributed: worker processes of one thread, tasks pinned to workers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

from peers.work import SMALL, Clock, Work, check_sum, filled, touched


def same(value: Any) -> Any:
    """Return the value."""
    return value


def total(*arrays: Any) -> Any:
    """Add arrays up."""
    result = arrays[0].copy()
    for array in arrays[1:]:
        result += array
    return result


def main() -> None:
    """Do the work."""
    work = Work.from_arguments()
    clock = Clock()
    with (
        LocalCluster(
            n_workers=work.agents, threads_per_worker=1, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(work.agents)
        workers = sorted(client.scheduler_info(n_workers=-1)["workers"])

        def everywhere(function: Any, arguments: list[Any]) -> list[Any]:
            return [
                client.submit(function, *argument, workers=[name], pure=False)
                for name, argument in zip(workers, arguments, strict=True)
            ]

        def round_trip() -> None:
            client.submit(same, None, workers=[workers[0]], pure=False).result()

        def gather() -> None:
            client.gather(everywhere(same, [(SMALL,)] * work.agents))

        def array_sum(nbytes: int) -> Any:
            arguments = [(nbytes, rank) for rank in range(1, work.agents + 1)]
            parts = everywhere(filled, arguments)
            while len(parts) > 1:  # a tree of fan-out 8
                parts = [
                    client.submit(total, *parts[first : first + 8], pure=False)
                    for first in range(0, len(parts), 8)
                ]
            return parts[0].result()

        array = np.zeros(work.broadcast // 8)

        def broadcast() -> None:
            kept = client.scatter(array, broadcast=True, hash=False)
            client.gather(everywhere(touched, [(kept,)] * work.agents))

        clock.measure("round_trip", work.rounds, round_trip)
        clock.measure("gather", work.rounds, gather)
        for nbytes in work.sums:
            clock.measure(f"sum_{nbytes}", work.large_rounds, partial(array_sum, nbytes))
            check_sum(array_sum(nbytes), work.agents)
        clock.measure("broadcast_copy", max(1, work.large_rounds // 2), broadcast)
        clock.report()


if __name__ == "__main__":
    main()
