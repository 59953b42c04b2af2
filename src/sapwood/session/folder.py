"""The folder of a session: its sockets lie there, and nothing else."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sapwood.contexts.local_user import LocalUser
from sapwood.core.errors import ResourceError

PREFIX = "sapwood-"
LONGEST = 80
"""Bytes of a folder that sockets fit into: their whole path has 107 at most."""

SHORT = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the folder made there is ours alone
"""Where to go when the folders that the environment names cannot hold sockets."""


def make_folder(owner: LocalUser | None = None) -> Path:
    """Make a folder that only this user may enter, in the first place that will do.

    First ``$XDG_RUNTIME_DIR``, then what :mod:`tempfile` takes (``$TMPDIR`` and so on). A place
    whose path is too long for a socket, no text, not writable or full is passed over. What the
    environment of this process names is not for others: a folder for one of them is in ``/tmp``.

    Args:
        owner: Who may enter it; by default the user of this process.

    Raises:
        ResourceError: None will do.

    Example:
        >>> folder = make_folder()
        >>> folder.name.startswith(PREFIX)
        True
        >>> folder.rmdir()
    """
    tried: dict[str, str] = {}
    other = owner is not None and not owner.is_this_process
    for base in SHORT if other else _candidates():
        reason = tried[base] = _unfit(base)
        if reason:
            continue
        try:
            made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
        except OSError as error:
            tried[base] = error.strerror or str(error)
            continue
        try:
            (made / "try").touch()
            (made / "try").unlink()
        except OSError as error:
            tried[base] = error.strerror or str(error)
            made.rmdir()
            continue
        if owner is not None and other:
            os.chown(made, owner.uid, owner.gid)
        return made
    raise ResourceError(
        "no folder for the sockets of a session",
        hint="let TMPDIR name a folder that has a short path and some room",
        details={"tried": "\n".join(f"{base!a}: {reason}" for base, reason in tried.items())},
    )


def _candidates() -> Iterator[str]:
    if wanted := os.environ.get("XDG_RUNTIME_DIR", ""):
        yield wanted
    with contextlib.suppress(FileNotFoundError):  # none of its places can be written
        yield tempfile.gettempdir()
    yield from SHORT


def _unfit(base: str) -> str:
    """Return why sockets cannot be in a folder; nothing if they can."""
    if len(os.fsencode(base)) > LONGEST:
        return f"its path is longer than {LONGEST} bytes"
    try:
        base.encode()
    except UnicodeEncodeError:
        return "its path is not UTF-8"
    return ""
