"""Variables that name the credential with which commands ask heads on other machines."""

from __future__ import annotations

import os

CREDENTIAL_FILE = "SAPWOOD_CREDENTIAL_FILE"
"""Variable that names the file of the credential for heads on other machines."""

KEY_FILE = "SAPWOOD_KEY_FILE"
"""Variable that names the file with the key of its holder, if it is bound to one."""


def files_for(spec: str) -> tuple[str | None, str | None]:
    """Return the files of credential and key for the machines that a text names.

    Args:
        spec: As for :func:`sapwood.start`; only heads on other machines need any.
    """
    if not spec.startswith("head:sapwood://"):
        return None, None
    return os.environ.get(CREDENTIAL_FILE) or None, os.environ.get(KEY_FILE) or None
