"""The connection of a command with a cluster that is up."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import ParamSpec, TypeVar

from sapwood.cli.credential_variables import CREDENTIAL_FILE, KEY_FILE
from sapwood.head.folder import find_head
from sapwood.head.protocol.call import Call
from sapwood.head_client.access import HeadAccess
from sapwood.head_client.connection import ServiceClient, UnixWay
from sapwood.head_client.remote import SCHEME
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.credential_file import read_secret

CALL_TIMEOUT = 30.0
"""Seconds in which a head answers what it need not wait for."""

P = ParamSpec("P")
R = TypeVar("R")


def asked_head(
    cluster: str, seconds: float, call: Call[P, R], *args: P.args, **kwargs: P.kwargs
) -> R:
    """Call a head once and return its answer.

    Args:
        cluster: What the user calls the cluster.
        seconds: How long the head may take.
        call: The call.
        args: Its arguments.
        kwargs: Likewise.

    Raises:
        SecurityError: A credential is needed, or is refused.
        NodeLostError: No such head is up here.
        SapwoodError: What the head says.
    """
    if cluster.startswith(SCHEME):
        with connected(cluster) as head:
            return head.client.call_within(seconds, call, *args, **kwargs)
    client = ServiceClient(UnixWay(find_head(cluster).socket, cluster))
    try:
        return client.call_within(seconds, call, *args, **kwargs)
    finally:
        client.close()


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
    credential, key = None, None
    if name.startswith(SCHEME) and os.environ.get(CREDENTIAL_FILE):
        credential = Capability.parse(read_secret(Path(os.environ[CREDENTIAL_FILE])))
        if os.environ.get(KEY_FILE):
            key = HolderKey.parse(read_secret(Path(os.environ[KEY_FILE])))
    return HeadAccess(name, credential, key)
