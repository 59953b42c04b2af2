"""Floor of a sum: numpy in the parent adds arrays that children filled in shared memory.

Each child has its array in memory that it shares with the parent. A round sends each child
one byte; the child fills its array and sends one byte back; the parent adds each array to the
sum as its child answers. The memory is the same in every round, so no page is faulted in.
"""

from __future__ import annotations

import mmap
import selectors
import socket
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from floors.children import Child, forked, release

WARM_UP = 2
"""Rounds before the first that counts: they fault the memory in."""


def measure(agents: int, nbytes: int, rounds: int) -> list[float]:
    """Return the seconds of each of ``rounds`` sums of arrays of ``nbytes`` from each child."""
    arrays = [np.frombuffer(mmap.mmap(-1, nbytes), np.float64) for _ in range(agents)]

    def fill(rank: int, parent: socket.socket) -> None:
        turn = 0
        while parent.recv(1):
            arrays[rank].fill(rank + turn)
            parent.send(b"r")
            turn += 1

    total = np.empty_like(arrays[0])
    seconds = []
    with forked(agents, fill) as children, selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.socket, selectors.EVENT_READ, child)
        for turn in range(WARM_UP + rounds):
            begin = time.perf_counter()
            _one_round(children, selector, arrays, total)
            seconds.append(time.perf_counter() - begin)
            assert (total == sum(rank + turn for rank in range(agents))).all()
    return seconds[WARM_UP:]


def _one_round(
    children: Sequence[Child],
    selector: selectors.BaseSelector,
    arrays: list[np.ndarray[Any, np.dtype[np.float64]]],
    total: np.ndarray[Any, np.dtype[np.float64]],
) -> None:
    release(children)
    waiting = len(children)
    while waiting:
        for key, _ in selector.select():
            key.data.socket.recv(1)
            if waiting == len(children):
                np.copyto(total, arrays[key.data.rank])
            else:
                np.add(total, arrays[key.data.rank], out=total)
            waiting -= 1
