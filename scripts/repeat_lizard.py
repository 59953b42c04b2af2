#!/usr/bin/env python3
"""Runs the lizard examples again and again on 1, 2, 3, 4 and 7 agents and compares all results.

    python scripts/repeat_lizard.py --times 100

Each round makes new clusters. Prints a line for each round, and at the end how many results
differed from numpy's by more than the tolerance of a float; exits with 1 if any did.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sapwood
from sapwood_lizard.directory import read_directory
from sapwood_lizard.execution import run_with_runner
from sapwood_lizard.launch import Checked, check
from sapwood_lizard.runner_module import RunnerModule
from sapwood_lizard.structures import b64_json_dec

EXAMPLES = Path(__file__).parents[1] / "examples" / "lizard"
AGENTS = (1, 2, 3, 4, 7)
TOLERANCE = 1e-4

Array = np.ndarray[Any, Any]
Read = Callable[[Any], Array]


class Case:
    """A program, its settings, and what must come out."""

    def __init__(self, name: str, settings: dict[str, Any], read: Read, expected: Array) -> None:
        self.name = name
        self.settings = settings
        self.read = read
        self.expected = expected
        folder = EXAMPLES / name
        self.checked: Checked = check(read_directory(folder), origin=str(folder))
        self.runner = RunnerModule(
            folder / "runner.py", python=folder / self.checked.program.definition.python.name
        )

    def differs(self, cluster: sapwood.Cluster) -> float:
        """Run once; return the largest difference relative to the tolerance."""
        outcome = run_with_runner(cluster, self.checked, self.runner, self.settings)
        found = self.read(outcome.end_global_state)
        scale = TOLERANCE * (1 + np.abs(self.expected))
        return float(np.max(np.abs(found - self.expected) / scale))


def cases() -> list[Case]:
    """Return the programs; that of k-means is compared with its own result on one agent."""
    table = EXAMPLES / "column_sums" / "points.csv"
    points = np.loadtxt(table, delimiter=",")
    settings = {"dims": 3, "max_iterations": 3, "input_file": table}
    found = [
        Case("column_sums", settings, _dynamic, points.astype(np.float32).sum(0)),
        Case("covariance", settings, _covariance, np.cov(points.T, bias=True)),
    ]
    file = EXAMPLES / "kmeans" / "points.txt"
    centres = {
        "dims": 2,
        "num_centroids": 3,
        "max_iterations": 50,
        "threshold": 1e-5,
        "input_file": file,
    }
    expected = np.array([[0.2005, 0.2024], [0.5053, 0.8075], [0.8017, 0.3010]])
    found.append(Case("kmeans", centres, _sorted_rows, expected))
    extension = {**centres, "num_points": 210}
    found.append(Case("kmeans_extension", extension, _sorted_flat, expected))
    return found


def _dynamic(text: str) -> Array:
    return np.array(b64_json_dec(b64_json_dec(text)["dynamic"]))


def _covariance(text: str) -> Array:
    return np.array(b64_json_dec(b64_json_dec(text)["dynamic"])["covariance"])


def _sorted_rows(text: str) -> Array:
    return np.round(np.array(sorted(_dynamic(text).tolist())), 4)


def _sorted_flat(state: list[Any]) -> Array:
    return np.round(np.array(sorted(np.reshape(state[1], (-1, 2)).tolist())), 4)


def main() -> int:
    """Run the rounds; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    rounds = parser.parse_args().times
    wanted = cases()
    wrong = 0
    for number in range(1, rounds + 1):
        begin = time.perf_counter()
        for agents in AGENTS:
            with sapwood.local(agents, fanout=2 if number % 2 else 0) as cluster:
                for case in wanted:
                    difference = case.differs(cluster)
                    if not difference <= 1:
                        wrong += 1
                        print(f"{case.name} on {agents} agents: {difference:.3g} tolerances off")
        print(f"round {number} of {rounds}: {time.perf_counter() - begin:.1f} s", flush=True)
    print(f"{rounds * len(AGENTS) * len(wanted)} runs, {wrong} of them wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
