"""What commands do with a cluster that is up, and with processes that begin in the background."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Iterator

from sapwood.head.access import HeadAccess

LOG_END = 2000
"""Characters of the head's log that are shown if it ends without a word."""


def read_line(descriptor: int, end: float) -> bytes:
    """Return the next line of a descriptor; nothing if the other side ends or is too slow."""
    data = b""
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        more = os.read(descriptor, 65536) if ready else b""
        if not more:
            return b""
        data += more
    return data


@contextlib.contextmanager
def connected(name: str) -> Iterator[HeadAccess]:
    """Be connected to a head during the block.

    Raises:
        NodeLostError: No such head is up here.
        CommunicationError: It does not answer.
    """
    head = HeadAccess(name)
    try:
        yield head
    finally:
        head.close()
