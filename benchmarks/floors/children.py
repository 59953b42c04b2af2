"""Forked children, each at the end of a socket pair: what all floors are made of."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Work = Callable[[int, socket.socket], None]
"""What a child does: called with its rank and its end of the socket pair."""


@dataclass(frozen=True)
class Child:
    """A forked child, as its parent sees it."""

    rank: int
    pid: int
    socket: socket.socket


@contextmanager
def forked(count: int, work: Work) -> Iterator[Sequence[Child]]:
    """Fork ``count`` children that do ``work``; afterwards close their sockets and reap them.

    Raises:
        ChildProcessError: A child ended with an error.
    """
    children: list[Child] = []
    for rank in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            # Else a child would hold its siblings' sockets open, and they never see the end.
            for child in children:
                child.socket.close()
            ours.close()
            _run(work, rank, theirs)
        theirs.close()
        children.append(Child(rank, pid, ours))
    try:
        yield children
    finally:
        for child in children:
            child.socket.close()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1]) for child in children]
    if any(codes):
        raise ChildProcessError(f"children of a floor ended with {codes}")


def release(children: Sequence[Child], order: bytes = b"g") -> None:
    """Send each child one byte."""
    for child in children:
        child.socket.send(order)


def collect(children: Sequence[Child]) -> None:
    """Wait for one byte of each child."""
    for child in children:
        if not child.socket.recv(1):
            raise ChildProcessError(f"child {child.rank} of a floor is gone")


def _run(work: Work, rank: int, theirs: socket.socket) -> None:
    code = 1
    try:
        work(rank, theirs)
        code = 0
    finally:
        os._exit(code)
