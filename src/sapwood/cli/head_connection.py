"""The connection of a command with a cluster that is up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from sapwood.head.access import HeadAccess
from sapwood.head.folder import find_head
from sapwood.head.service import ServiceClient


def asked_head(cluster: str, name: str, value: Any = None, timeout: float = 30.0) -> Any:
    """Call a head once and return its answer.

    Raises:
        NodeLostError: No such head is up here.
        SapwoodError: What the head says.
    """
    client = ServiceClient(find_head(cluster).socket)
    try:
        return client.call(name, value, timeout)
    finally:
        client.close()


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
