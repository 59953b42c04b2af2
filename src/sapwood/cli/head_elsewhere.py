"""Connections of commands with heads on other machines, by the credential that variables name."""

from __future__ import annotations

import os
from pathlib import Path

from sapwood.cli.credential_variables import CREDENTIAL_FILE, KEY_FILE
from sapwood.head_client.connection import SCHEME, ServiceClient
from sapwood.head_client.remote import open_client
from sapwood.security.capabilities import Capability, HolderKey
from sapwood.security.credential_file import read_secret


def open_elsewhere(cluster: str, seconds: float) -> ServiceClient:
    """Connect to a head on another machine for some calls.

    Args:
        cluster: ``sapwood://host:port``.
        seconds: How long the head may take for each answer.

    Raises:
        SecurityError: A credential is needed, or is refused.
        CommunicationError: The head is not reached.
    """
    return open_client(cluster, *credential_for(cluster), seconds)


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
