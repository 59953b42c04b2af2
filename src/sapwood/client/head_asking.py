"""One call of a head for each question of a program: no connection is kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from sapwood.head.protocol.call import HeadCall
    from sapwood.head_client.access import HeadAccess

CALL_TIMEOUT = 30.0
"""Seconds in which a head answers."""

File = str | os.PathLike[str]
P = ParamSpec("P")
R = TypeVar("R")


class AskWithin(Protocol):
    """Calls a head."""

    def __call__(
        self, seconds: float, call: HeadCall[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return the answer, within some seconds."""


def open_head(cluster: str, credential: File | None = None, key: File | None = None) -> HeadAccess:
    """Connect to a head.

    Args:
        cluster: What ``sapwood up --cluster`` was given, or ``sapwood://host:port``.
        credential: A credential, or the file with one.
        key: The key of the credential's holder, or the file with it.

    Raises:
        NodeLostError: There is no such head.
        CommunicationError: The head is not reached.
        SecurityError: The head is another one, or refuses the credential.
    """
    from sapwood.head_client.access import HeadAccess  # noqa: PLC0415 - imports cryptography
    from sapwood.security.credential_file import (  # noqa: PLC0415 - as above
        find_credential,
        find_holder_key,
    )

    return HeadAccess(
        cluster,
        None if credential is None else find_credential(credential),
        None if key is None else find_holder_key(key),
    )


def asker(cluster: str, credential: File | None = None, key: File | None = None) -> AskWithin:
    """Return what calls a head, and connects for each call; arguments as for :func:`open_head`."""

    def ask(seconds: float, call: HeadCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        head = open_head(cluster, credential, key)
        try:
            return head.client.call_within(seconds, call, *args, **kwargs)
        finally:
            head.close()

    return ask
