"""k-means and logistic regression over a Parquet file by Ray; see ``datasets.py``.

An actor for each worker has a run of row groups, which it reads in each iteration; the sums of all
come to the driver, which adds them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import ray

from programs.parquet_steps import Course, Given, first_of, groups_of, moved, part_of_groups


class Worker:
    """What an actor does."""

    def take(self, task: str, file: str, groups: list[int]) -> None:
        """Take some row groups."""
        self.own = (task, file, groups)

    def part(self, state: Any) -> Any:
        """Return what they add."""
        return part_of_groups(*self.own, state)


def main() -> None:
    """Run it on machines that are there."""
    given = Given.from_arguments()
    ray.init(given.cluster, log_to_driver=False)
    remote = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(Worker)
    actors = [remote.remote() for _ in range(given.workers)]
    ray.get([actor.take.remote("", "", []) for actor in actors])
    course = Course(given)
    split = np.array_split(groups_of(given.file), given.workers)
    for actor, groups in zip(actors, split, strict=True):
        actor.take.remote(given.task, given.file, groups.tolist())
    state = first_of(given.task, given.file)
    for _ in range(given.rounds):
        kept = ray.put(state)
        state = moved(given.task, state, sum(ray.get([one.part.remote(kept) for one in actors])))
    course.tell(state)
    ray.shutdown()


if __name__ == "__main__":
    main()
