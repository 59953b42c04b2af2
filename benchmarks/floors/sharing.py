"""Floor of a broadcast: the parent writes an array into memory that it shares with children.

A round writes the array, sends each child one byte, and waits for one byte of each: a child has
then looked at one number of every page, or has taken a private copy. The memory is the same in
every round, so no page is faulted in.
"""

from __future__ import annotations

import mmap
import socket
import time

import numpy as np

from floors.children import collect, forked, release
from peers.work import touched

WARM_UP = 2
"""Rounds before the first that counts: they fault the memory in."""

VIEW, COPY = b"v", b"c"
"""Orders to a child: look at the array, take a copy of it."""


def measure(agents: int, nbytes: int, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each round: ``view`` and ``copy``, and ``ready`` without writing."""
    shared = np.frombuffer(mmap.mmap(-1, nbytes), np.float64)
    array = np.zeros_like(shared)

    def work(_rank: int, parent: socket.socket) -> None:
        while order := parent.recv(1):
            touched(shared.copy() if order == COPY else shared)
            parent.send(b"r")

    seconds: dict[str, list[float]] = {"view": [], "copy": [], "ready": []}
    with forked(agents, work) as children:
        for name, order in (("view", VIEW), ("copy", COPY), ("ready", VIEW)):
            for turn in range(WARM_UP + rounds):
                begin = time.perf_counter()
                if name != "ready":
                    np.copyto(shared, array)
                release(children, order)
                collect(children)
                if turn >= WARM_UP:
                    seconds[name].append(time.perf_counter() - begin)
    return seconds
