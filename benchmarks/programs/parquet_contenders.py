"""k-means and logistic regression over a Parquet file by several systems; see ``datasets.py``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from pyarrow import parquet

import sapwood
from sapwood.environment.settings import LimitSettings, Settings

BLOCK = 65_536
RATE = 0.5

Array = np.ndarray[Any, np.dtype[Any]]


def part_of(task: str, rows: Array, state: Array) -> Array:
    """Return what some rows add to the sums of an iteration."""
    points, truth = rows[:, :-1], rows[:, -1]
    if task == "kmeans":
        near = ((state**2).sum(axis=1) / 2 - points @ state.T).argmin(axis=1)
        own = np.eye(len(state), dtype=np.float32)[near]
        sums: Array = np.column_stack([own.T @ points, own.sum(axis=0)]).astype(float)
        return sums
    guess = 1 / (1 + np.exp(-(points @ state)))
    gradient: Array = np.append(points.T @ (guess - truth), len(rows)).astype(float)
    return gradient


def moved(task: str, state: Array, total: Array) -> Array:
    """Return the state after an iteration."""
    if task == "kmeans":
        counts = np.maximum(total[:, -1:], 1)
        means: Array = (total[:, :-1] / counts).astype(np.float32)
        return means
    weights: Array = (state - RATE * total[:-1] / total[-1]).astype(np.float32)
    return weights


def first(task: str, rows: Array) -> Array:
    """Return the state before the first iteration."""
    return rows[:8, :-1].copy() if task == "kmeans" else np.zeros(8, np.float32)


def blocks(file: str, groups: list[int]) -> Iterator[Array]:
    """Yield rows of some row groups, in bounded memory."""
    opened = parquet.ParquetFile(file)
    for batch in opened.iter_batches(BLOCK, row_groups=groups, use_threads=False):
        yield np.stack([column.to_numpy() for column in batch.columns], axis=1)


def part_of_groups(task: str, file: str, groups: list[int], state: Array) -> Array:
    """Return what some row groups add."""
    total: Array = np.sum([part_of(task, rows, state) for rows in blocks(file, groups)], axis=0)
    return total


class Task(sapwood.Program):
    """One of the two."""

    inputs = ("rows",)
    reduce: ClassVar = {"total": "sum"}
    task: str = sapwood.parameter("kmeans")
    rounds: int = sapwood.parameter(5)

    def init(self, data: Any) -> dict[str, Any]:
        """Begin with the first rows."""
        return {"state": first(self.task, data.rows(0, 8)["rows"]), "round": 0}

    def map(self, data: Any, state: dict[str, Any]) -> dict[str, Any]:
        """Add up some rows at a time."""
        rows = data["rows"]
        parts = (rows[at : at + BLOCK] for at in range(0, len(rows), BLOCK))
        return {"total": np.sum([part_of(self.task, one, state["state"]) for one in parts], axis=0)}

    def update(self, state: dict[str, Any], total: dict[str, Any]) -> dict[str, Any]:
        """Take the next state."""
        new = moved(self.task, state["state"], total["total"])
        return {"state": new, "round": state["round"] + 1}

    def done(self, state: dict[str, Any]) -> bool:
        """Stop after so many rounds."""
        return bool(state["round"] == self.rounds)


def by_sapwood(file: str, task: str, workers: int, limit: int, rounds: int) -> tuple[float, Array]:
    """Run it here."""
    settings = Settings(limits=LimitSettings(memory=limit * 2**20))
    with sapwood.local(workers, settings=settings) as cluster:
        for one in [cluster.submit(len, "warm") for _ in range(workers)]:
            one.result()
        began = time.perf_counter()
        run = cluster.run(Task(task=task, rounds=rounds), file)
        state = run.result()["state"]
        return time.perf_counter() - began, state


def by_dask(file: str, task: str, workers: int, limit: int, rounds: int) -> tuple[float, Array]:
    """Run it on a cluster of Dask: one task a row group."""
    from distributed import Client, LocalCluster  # noqa: PLC0415 - only where it is wanted

    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            memory_limit=limit * 2**20,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(workers)
        began = time.perf_counter()
        groups = range(parquet.read_metadata(file).num_row_groups)
        state = first(task, next(blocks(file, [0])))
        for _ in range(rounds):
            parts = [
                client.submit(part_of_groups, task, file, [group], state, pure=False)
                for group in groups
            ]
            state = moved(task, state, client.submit(sum, parts, pure=False).result())
        return time.perf_counter() - began, state


def by_mpi(file: str, task: str, _workers: int, _limit: int, rounds: int) -> tuple[float, Array]:
    """Run it as one rank of MPI: each has a run of row groups."""
    from mpi4py import MPI  # noqa: PLC0415 - as above

    world = MPI.COMM_WORLD
    world.Barrier()
    began = time.perf_counter()
    groups = range(parquet.read_metadata(file).num_row_groups)
    own = np.array_split(list(groups), world.size)[world.rank].tolist()
    state = first(task, next(blocks(file, [0])))
    for _ in range(rounds):
        state = moved(task, state, world.allreduce(part_of_groups(task, file, own, state)))
    seconds = time.perf_counter() - began
    if world.rank:
        sys.exit()
    return seconds, state


def main() -> None:
    """Run one contender, and print what came of it."""
    name, file, task, *numbers = sys.argv[1:]
    run = {"sapwood": by_sapwood, "dask": by_dask, "mpi": by_mpi}[name]
    seconds, state = run(file, task, *map(int, numbers))
    print(json.dumps({"seconds": seconds, "result": state.tolist()}))


if __name__ == "__main__":
    main()
