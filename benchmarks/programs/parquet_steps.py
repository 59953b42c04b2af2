"""The steps of k-means and logistic regression that all systems of ``datasets.py`` share.

They need numpy and pyarrow alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from pyarrow import parquet

BLOCK = 65_536
RATE = 0.5

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Given:
    """What a system is given to do.

    Attributes:
        file: The Parquet file, under the same path on all machines.
        task: ``kmeans`` or ``logistic``.
        workers: Processes that compute.
        limit: Memory of each, bytes.
        rounds: Iterations.
        switch: Namespace of the switch between the machines; empty where there is none.
        cluster: Where the system is; what it makes of that is its own.
    """

    file: str
    task: str
    workers: int
    limit: int
    rounds: int
    switch: str
    cluster: str

    def to_json(self) -> str:
        """Return it as the argument of a script."""
        return json.dumps(asdict(self))

    @classmethod
    def from_arguments(cls) -> Self:
        """Return what this script was given."""
        return cls(**json.loads(sys.argv[1]))


class Course:
    """Time and bytes on the wire, from the first look at the file to the result."""

    def __init__(self, given: Given) -> None:
        self._switch = given.switch
        self._sent = sent(given.switch)
        self._begin = time.perf_counter()

    def tell(self, result: Array) -> None:
        """Print the result as JSON."""
        seconds = time.perf_counter() - self._begin
        wire = sent(self._switch) - self._sent
        print(json.dumps({"seconds": seconds, "wire": wire, "result": result.tolist()}))


def sent(switch: str) -> int:
    """Return the bytes that all machines have sent to the others so far, headers included."""
    if not switch:
        return 0
    words = ["ip", "-n", switch, "-json", "-statistics", "link", "show", "type", "veth"]
    found = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return sum(one["stats64"]["rx"]["bytes"] for one in found)


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


def first_of(task: str, file: str) -> Array:
    """Return the state before the first iteration, read from a file."""
    return first(task, next(blocks(file, [0])))


def groups_of(file: str) -> list[int]:
    """Return the row groups of a file."""
    return list(range(parquet.read_metadata(file).num_row_groups))


def blocks(file: str, groups: list[int]) -> Iterator[Array]:
    """Yield rows of some row groups, in bounded memory."""
    opened = parquet.ParquetFile(file)
    for batch in opened.iter_batches(BLOCK, row_groups=groups, use_threads=False):
        yield np.stack([column.to_numpy() for column in batch.columns], axis=1)


def part_of_groups(task: str, file: str, groups: list[int], state: Array) -> Array:
    """Return what some row groups add."""
    total: Array = np.sum([part_of(task, rows, state) for rows in blocks(file, groups)], axis=0)
    return total


def ready(number: int) -> int:
    """Return the number: by then a worker is there, with numpy and pyarrow."""
    return number
