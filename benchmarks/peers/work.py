"""What every peer is given to do, and how it says what that took; needs numpy alone.

A peer is a script that gets a :class:`Work` as JSON and prints the seconds of each round by
figure, as JSON, in its last line.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

WARM_UP = 3
"""Rounds before the first that counts, at least."""

SMALL = np.arange(64, dtype=np.uint8)
"""What goes to and comes from each worker in the small figures."""


@dataclass(frozen=True)
class Work:
    """The work that is measured.

    Attributes:
        agents: Number of workers.
        rounds: Rounds of the small figures.
        large_rounds: Rounds of the large ones.
        sums: Sizes of the arrays to sum, bytes.
        broadcast: Size of the array to broadcast, bytes; 0 for none.
    """

    agents: int
    rounds: int
    large_rounds: int
    sums: tuple[int, ...]
    broadcast: int

    def to_json(self) -> str:
        """Return the work as the argument of a peer."""
        return json.dumps(asdict(self))

    @classmethod
    def from_arguments(cls) -> Work:
        """Return the work that this script was given."""
        return cls(**json.loads(sys.argv[1]))


class Clock:
    """Times rounds and collects the seconds by figure."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    def measure(self, figure: str, rounds: int, once: Callable[[], Any]) -> None:
        """Time some rounds; half as many go before them."""
        warm_up = max(WARM_UP, rounds // 2)
        for turn in range(warm_up + rounds):
            begin = time.perf_counter()
            once()
            if turn >= warm_up:
                self.seconds.setdefault(figure, []).append(time.perf_counter() - begin)

    def report(self) -> None:
        """Print all seconds, as the last line."""
        print(json.dumps(self.seconds), flush=True)


def filled(nbytes: int, rank: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return what a worker gives to a sum."""
    return np.full(nbytes // 8, float(rank))


def check_sum(total: np.ndarray[Any, np.dtype[np.float64]], agents: int) -> None:
    """Make sure that a sum over workers 1, 2, … is right, at its ends."""
    expected = agents * (agents + 1) / 2
    assert total[0] == expected, total[0]
    assert total[-1] == expected, total[-1]


def touched(array: np.ndarray[Any, Any]) -> float:
    """Look at one number of each page."""
    return float(array[:: 4096 // array.itemsize].sum())
