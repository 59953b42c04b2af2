"""Ray: one actor for each worker, arrays in its shared object store."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import ray

from peers.work import SMALL, Clock, Work, check_sum, filled, touched


class Worker:
    """What an actor does."""

    def same(self, value: Any) -> Any:
        """Return the value."""
        return value

    def filled(self, nbytes: int, rank: int) -> Any:
        """Return this worker's part of a sum."""
        return filled(nbytes, rank)

    def total(self, *arrays: Any) -> Any:
        """Add arrays up."""
        result = arrays[0].copy()
        for array in arrays[1:]:
            result += array
        return result

    def touched(self, array: Any) -> float:
        """Look at each page of a read-only view."""
        return touched(array)

    def copied(self, array: Any) -> float:
        """Take a private copy."""
        return touched(array.copy())


def main() -> None:
    """Do the work."""
    work = Work.from_arguments()
    clock = Clock()
    if "RAY_ADDRESS" in os.environ:  # machines that were started elsewhere
        ray.init(log_to_driver=False)
    else:
        ray.init(num_cpus=work.agents, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(num_cpus=1)(Worker)
    actors = [remote.remote() for _ in range(work.agents)]
    ray.get([actor.same.remote(None) for actor in actors])

    def array_sum(nbytes: int) -> Any:
        parts = [actor.filled.remote(nbytes, rank) for rank, actor in enumerate(actors, start=1)]
        while len(parts) > 1:  # a tree of fan-out 8
            parts = [
                actors[first].total.remote(*parts[first : first + 8])
                for first in range(0, len(parts), 8)
            ]
        return ray.get(parts[0])

    def broadcast(method: str) -> None:
        kept = ray.put(array)
        ray.get([getattr(actor, method).remote(kept) for actor in actors])

    array = np.zeros(work.broadcast // 8)
    rounds = max(1, work.large_rounds // 2)
    clock.measure("round_trip", work.rounds, lambda: ray.get(actors[0].same.remote(None)))
    clock.measure(
        "gather", work.rounds, lambda: ray.get([actor.same.remote(SMALL) for actor in actors])
    )
    for nbytes in work.sums:
        clock.measure(f"sum_{nbytes}", work.large_rounds, partial(array_sum, nbytes))
        check_sum(array_sum(nbytes), work.agents)
    if work.broadcast:
        clock.measure("broadcast_view", rounds, lambda: broadcast("touched"))
        clock.measure("broadcast_copy", rounds, lambda: broadcast("copied"))
    ray.shutdown()
    clock.report()


if __name__ == "__main__":
    main()
