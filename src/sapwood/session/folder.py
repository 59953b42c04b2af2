"""The folder of a session: it contains its sockets and nothing else.

Its name says which process has made it. If all processes of a session are killed at once, none is
left to remove it: the next session of the user does.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sapwood.contexts.local_user import LocalUser
from sapwood.core.errors import ResourceError, SecurityError
from sapwood.environment.folders import SOCKET_FOLDER, check_private

SHORT = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - the folder made there is ours alone
"""Where to go when the folders that the environment names cannot hold sockets."""

EMPTY_FOR = 3600.0
"""Seconds after which an empty folder of a process that is not seen counts as left."""

_TRIAL = "try"
"""A file by which it is tried whether there is room."""

LONGEST = 80
"""Bytes of a folder that sockets fit into: their whole path has 107 at most."""

_MADE_BY = re.compile(re.escape(SOCKET_FOLDER) + r"([0-9a-f]{6})\w\w")
"""Names of folders: the process in hexadecimal digits, and what tells its folders apart."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"

_NAMES = 10_000
"""Names that are tried; a process that has so many sessions at once does not exist."""


def make_folder(owner: LocalUser | None = None) -> Path:
    """Make a folder that only this user may enter, in the first place that will do.

    First ``$XDG_RUNTIME_DIR``, then what :mod:`tempfile` takes (``$TMPDIR`` and so on). A place
    whose path is too long for a socket, no text, not writable or full is passed over. What the
    environment of this process names is not for others: a folder for one of them is in ``/tmp``.

    Args:
        owner: The user who may enter it; by default the user of this process.

    Raises:
        ResourceError: None will do.

    Example:
        >>> folder = make_folder()
        >>> folder.name.startswith(SOCKET_FOLDER)
        True
        >>> folder.rmdir()
    """
    tried: dict[str, str] = {}
    other = owner is not None and not owner.is_this_process
    for base in SHORT if other else _candidates():
        reason = tried[base] = _unfit(base)
        if reason:
            continue
        _remove_abandoned(base)
        try:
            made = _made(base)
        except OSError as error:
            tried[base] = error.strerror or str(error)
            continue
        try:
            (made / _TRIAL).touch()
            (made / _TRIAL).unlink()
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


def _made(base: str) -> Path:
    """Make a folder whose name says by whom."""
    for _ in range(_NAMES):
        one, other = secrets.choice(_LETTERS), secrets.choice(_LETTERS)
        path = Path(base, f"{SOCKET_FOLDER}{os.getpid():06x}{one}{other}")
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=0o700)
            return path
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


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
    try:
        if not os.stat(base).st_mode & stat.S_ISVTX:  # noqa: PTH116 - as the rest
            check_private(Path(base))
    except OSError as error:
        return error.strerror or str(error)
    except SecurityError:
        return "other users could replace what is in it"
    return ""


def _remove_abandoned(base: str) -> None:
    """Remove folders that killed processes of this user have left and in which none listens."""
    with contextlib.suppress(OSError), os.scandir(base) as entries:
        for entry in entries:
            match = _MADE_BY.fullmatch(entry.name)
            if (
                match is not None
                and _is_gone(int(match[1], 16))
                and entry.is_dir(follow_symlinks=False)
                and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                and _has_nobody(Path(entry.path))
            ):
                shutil.rmtree(entry.path, ignore_errors=True)


def _is_gone(pid: int) -> bool:
    """Whether there is no such process; another one may have got its number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _has_nobody(folder: Path) -> bool:
    """Whether no process listens in a folder. An empty one may have been made a moment ago."""
    left = list(folder.iterdir())
    if not left:
        return time.time() - folder.stat().st_mtime > EMPTY_FOR
    return all(map(_is_abandoned, left))


def _is_abandoned(path: Path) -> bool:
    """Whether a file is a socket on which no process listens.

    That its process is not seen does not suffice: it may be in a container that shares the folder.
    """
    if not path.is_socket():
        return path.name == _TRIAL
    with socket.socket(socket.AF_UNIX) as tried:
        tried.settimeout(0.0)  # a full queue is an answer, too
        try:
            tried.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False
