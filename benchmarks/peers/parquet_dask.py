"""k-means and logistic regression over a Parquet file by Dask; see ``datasets.py``.

A task for each row group in each iteration, to whichever worker is free, and a tree of sums.
"""

from __future__ import annotations

from distributed import Client

from programs.parquet_steps import (
    Course,
    Given,
    first_of,
    groups_of,
    moved,
    part_of_groups,
    ready,
)

FAN_IN = 8


def main() -> None:
    """Run it on workers that are there."""
    given = Given.from_arguments()
    with Client(given.cluster) as client:
        client.wait_for_workers(given.workers)
        client.run(ready, 0)
        course = Course(given)
        groups = groups_of(given.file)
        state = first_of(given.task, given.file)
        for _ in range(given.rounds):
            parts = [
                client.submit(part_of_groups, given.task, given.file, [group], state, pure=False)
                for group in groups
            ]
            while len(parts) > 1:
                several = [parts[at : at + FAN_IN] for at in range(0, len(parts), FAN_IN)]
                parts = [client.submit(sum, some, pure=False) for some in several]
            state = moved(given.task, state, parts[0].result())
        course.tell(state)


if __name__ == "__main__":
    main()
