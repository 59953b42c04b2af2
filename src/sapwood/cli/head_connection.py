"""The connection of a command with a cluster that is up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sapwood.head.access import HeadAccess


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
