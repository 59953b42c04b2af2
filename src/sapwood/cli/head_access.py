"""The connection of a command with a cluster that is up, and with its nodes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sapwood.cli.head_elsewhere import credential_for
from sapwood.head_client.access import HeadAccess


@contextlib.contextmanager
def connected(name: str) -> Iterator[HeadAccess]:
    """Be connected to a head during the block.

    See :func:`open_head`.
    """
    head = open_head(name)
    try:
        yield head
    finally:
        head.close()


def open_head(name: str) -> HeadAccess:
    """Connect to a head, with the credential that variables name if it is on another machine.

    Args:
        name: Of the cluster; ``sapwood://host:port`` for a head on another machine.

    Raises:
        SecurityError: A credential is needed, or is refused.
        NodeLostError: No such head is up here.
        CommunicationError: It does not answer.
    """
    return HeadAccess(name, *credential_for(name))
