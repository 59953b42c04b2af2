"""Addresses of session servers, for clients that connect while the head is down.

Each root has a small file in the folder of its head. The head knows more, and is asked first.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from sapwood.core import typed
from sapwood.environment.folders import make_private
from sapwood.head.folder import head_folder

UNKNOWN: Final = -1
"""When a process began whose notice cannot be read: no process began then."""


class SessionNotice(msgspec.Struct, frozen=True):
    """Where the root of a session is.

    Attributes:
        id: Of the session.
        name: What users call it.
        pid: The process of its root.
        started: When that began, as the kernel counts.
        socket: Where clients reach it; empty as long as it has no folder.
        ready: Whether it can be attached to.
    """

    id: str
    name: str
    pid: int
    started: int
    socket: str
    ready: bool = True


_read: Callable[[bytes], SessionNotice] = typed.json_reader(SessionNotice)


def write_notice(cluster: str, notice: SessionNotice) -> None:
    """Tell where a root is."""
    folder = head_folder(cluster) / "sessions"
    make_private(folder)
    temporary = folder / f".{notice.id}.{os.getpid()}"
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.encode(notice))
    temporary.replace(folder / f"{notice.id}.json")


def remove_notice(cluster: str, session: str) -> None:
    """Tell no more where a root is."""
    (head_folder(cluster) / "sessions" / f"{session}.json").unlink(missing_ok=True)


def notices(cluster: str) -> list[SessionNotice]:
    """Return the notices of roots; some may have been killed.

    A notice that cannot be read (of another version) is returned without a process: its root may
    still be running, so nothing of it may be removed.
    """
    found = []
    for file in sorted(Path(head_folder(cluster) / "sessions").glob("*.json")):
        try:
            found.append(_read(file.read_bytes()))
        except FileNotFoundError:
            continue  # the root has just removed it
        except (OSError, msgspec.MsgspecError):
            found.append(SessionNotice(file.stem, "", 0, UNKNOWN, "", ready=False))
    return found
