"""Floor of a start: bare forks of a Python that has imported numpy, one byte from each child."""

from __future__ import annotations

import socket
import time

import numpy  # noqa: ICN001, F401 - imported for its weight: the children shall be able to compute

from floors.children import collect, forked
from memory import total_pss


def measure(agents: int) -> dict[str, float]:
    """Return the seconds from the first fork to the last byte, and PSS per child in bytes."""
    begin = time.perf_counter()
    with forked(agents, _answer) as children:
        collect(children)
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "pss": total_pss(c.pid for c in children) / agents}


def _answer(_rank: int, parent: socket.socket) -> None:
    parent.send(b"r")
    parent.recv(1)  # until the parent closes
