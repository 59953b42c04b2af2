"""Floors of an iteration: processes that do only the C calls of their slices.

``calls``: every child makes all its calls one after the other, without waiting. This is the
C function's own time, with as many processes at work as in the real thing.
``barrier``: every child makes one call when it is released by one byte and answers one byte.
Nothing is sent, reduced or updated, but the children wait for each other as in the real thing.
"""

from __future__ import annotations

import mmap
import socket
import time

import numpy as np

from assigning import Assign, packed_size
from floors.children import collect, forked, release

WARM_UP = 2
"""Rounds before the first that counts."""

REPETITIONS = 3
"""How often all calls are made in a row."""

ONE, ALL = b"1", b"a"
"""Orders to a child: make one call, make all calls."""


def measure(
    agents: int, library: str, points: str, clusters: int, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of a call in each child: ``barrier`` by round, ``calls`` by repetition.

    Args:
        agents: Number of children.
        library: Path of the built library.
        points: Path of the points, ``.npy``.
        clusters: Number of centres.
        rounds: Number of rounds, and of calls in a repetition.
    """
    data = np.load(points)
    slices = np.array_split(data, agents)
    centres = data[:clusters].astype(np.float64)
    size = packed_size(clusters, data.shape[1])
    results = [np.frombuffer(mmap.mmap(-1, size * 8), np.float64)[:size] for _ in range(agents)]

    def work(rank: int, parent: socket.socket) -> None:
        assign = Assign(library, slices[rank], clusters, results[rank])
        while order := parent.recv(1):
            for _ in range(rounds if order == ALL else 1):
                assign(centres)
            parent.send(b"r")

    with forked(agents, work) as children:

        def once(order: bytes) -> float:
            begin = time.perf_counter()
            release(children, order)
            collect(children)
            return time.perf_counter() - begin

        barrier = [once(ONE) for _ in range(WARM_UP + rounds)][WARM_UP:]
        calls = [once(ALL) / rounds for _ in range(REPETITIONS)]
    total = np.sum(results, axis=0)
    assert total[clusters * data.shape[1] : -1].sum() == len(data)
    return {"barrier": barrier, "calls": calls}
