"""Single calls of a command to a cluster that is up; ``head_access.py`` keeps a connection."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ParamSpec, TypeVar

from sapwood.cli.credential_variables import CREDENTIAL_FILE, KEY_FILE
from sapwood.head.protocol.call import HeadCall
from sapwood.head_client.remote import SCHEME, open_client
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.credential_file import read_secret

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
    client = open_client(cluster, *credential_for(cluster), seconds)
    return client.call_once(seconds, call, *args, **kwargs)


def credential_for(cluster: str) -> tuple[Capability | None, HolderKey | None]:
    """Return the credential and the key that variables name for a head on another machine.

    Args:
        cluster: What the user calls the cluster; ``sapwood://host:port`` on another machine.

    Raises:
        SecurityError: A file cannot be used.
    """
    credential, key = None, None
    if cluster.startswith(SCHEME) and os.environ.get(CREDENTIAL_FILE):
        credential = Capability.parse(read_secret(Path(os.environ[CREDENTIAL_FILE])))
        if os.environ.get(KEY_FILE):
            key = HolderKey.parse(read_secret(Path(os.environ[KEY_FILE])))
    return credential, key
