"""Floor of an iteration: processes that do only the C calls, released together by one byte.

Each child calls ``assign`` on its slice when it is released, and answers one byte; nothing is
sent, reduced or updated. What an iteration takes beyond this is the runtime's own.
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


def measure(agents: int, library: str, points: str, clusters: int, rounds: int) -> list[float]:
    """Return the seconds of each of ``rounds`` rounds of one call in each child.

    Args:
        agents: Number of children.
        library: Path of the built library.
        points: Path of the points, ``.npy``.
        clusters: Number of centres.
        rounds: Number of rounds.
    """
    data = np.load(points)
    slices = np.array_split(data, agents)
    centres = data[:clusters].astype(np.float64)
    size = packed_size(clusters, data.shape[1])
    results = [np.frombuffer(mmap.mmap(-1, size * 8), np.float64)[:size] for _ in range(agents)]

    def work(rank: int, parent: socket.socket) -> None:
        assign = Assign(library, slices[rank], clusters, results[rank])
        while parent.recv(1):
            assign(centres)
            parent.send(b"r")

    seconds = []
    with forked(agents, work) as children:
        for _ in range(WARM_UP + rounds):
            begin = time.perf_counter()
            release(children)
            collect(children)
            seconds.append(time.perf_counter() - begin)
    total = np.sum(results, axis=0)
    assert total[clusters * data.shape[1] : -1].sum() == len(data)
    return seconds[WARM_UP:]
