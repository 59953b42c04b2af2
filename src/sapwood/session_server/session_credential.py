"""The credential of a session as a line of text: all that a client on another machine needs."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable

import msgspec

from sapwood.core import typed
from sapwood.core.errors import InputError, SapwoodError
from sapwood.head.folder import find_head
from sapwood.head.session_records import SessionCredential
from sapwood.head_client.connection import SCHEME

PREFIX = "sws1."
"""How the text of a credential begins."""

_read: Callable[[bytes], SessionCredential] = typed.unpacker(SessionCredential)


def credential_text(credential: SessionCredential) -> str:
    """Return a credential as one line of text, which is a secret.

    Example:
        >>> made = SessionCredential("5b9a", "night", "s3", "s-5b9a.c", b"PEM", ["h:1"])
        >>> read_credential(credential_text(made)) == made
        True
    """
    return PREFIX + base64.urlsafe_b64encode(msgspec.msgpack.encode(credential)).decode("ascii")


def read_credential(text: str) -> SessionCredential:
    """Return the credential that a text is.

    Raises:
        InputError: It is none.
    """
    try:
        return _read(base64.urlsafe_b64decode(text.strip().removeprefix(PREFIX)))
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(
            "this is not a credential of a session",
            hint="copy the whole line that `sapwood session credential SESSION` shows",
        ) from error


def cluster_of(credential: SessionCredential) -> str:
    """Return what names the cluster of a session in commands that are typed on this machine.

    Example:
        >>> cluster_of(SessionCredential("5b9a", "night", "s3", "s-5b9a.c", b"PEM", ["h:1"]))
        'sapwood://h:1'
    """
    with contextlib.suppress(SapwoodError):
        if find_head(credential.cluster).cluster == credential.node.partition(".")[2]:
            return credential.cluster
    return f"{SCHEME}{','.join(credential.addresses)}"
