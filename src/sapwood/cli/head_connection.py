"""Single calls of a command to a cluster that is up; ``head_access.py`` keeps a connection."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from sapwood.head.protocol.call import HeadCall
from sapwood.head_client.connection import SCHEME, open_here

CALL_TIMEOUT = 30.0
"""Seconds in which a head answers what it need not wait for."""

P = ParamSpec("P")
R = TypeVar("R")


def asked_head(
    cluster: str, seconds: float, call: HeadCall[P, R], *args: P.args, **kwargs: P.kwargs
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
        from sapwood.cli.head_elsewhere import (  # noqa: PLC0415 - TLS and credentials are slow
            open_elsewhere,
        )

        client = open_elsewhere(cluster, seconds)
    else:
        client = open_here(cluster)
    return client.call_once(seconds, call, *args, **kwargs)
