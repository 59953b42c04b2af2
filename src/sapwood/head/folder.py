"""The folder of a head: what it keeps there, and how clients of the same user find it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, NodeLostError
from sapwood.core.hints import DEFAULT_CLUSTER, command
from sapwood.core.shown import shown
from sapwood.environment.folders import (
    SOCKET_FOLDER,
    check_private,
    heads_folder,
    make_private,
)

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_INFO = "head.json"

STANDBY = "standby.json"
"""The file of a head that stands by here."""


class HeadInfo(msgspec.Struct, frozen=True):
    """Where a head is.

    Attributes:
        host: The machine, as it calls itself.
        pid: Its process.
        socket: Where clients reach it; empty while it stands by.
        cluster: Name of its cluster in certificates.
    """

    host: str
    pid: int
    socket: str
    cluster: str = ""


_read: Callable[[bytes], HeadInfo] = typed.json_reader(HeadInfo)


def head_folder(name: str, environment: Mapping[str, str] | None = None) -> Path:
    """Return where a head keeps what outlives it: ``$XDG_STATE_HOME/sapwood/heads/NAME``.

    Raises:
        ConfigurationError: A head cannot be called so.

    Example:
        >>> str(head_folder("lab", {"XDG_STATE_HOME": "/var/state"}))
        '/var/state/sapwood/heads/lab'
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{shown(name)} is not a name of a cluster",
            hint="use up to 32 small letters, digits and hyphens, such as lab-2",
        )
    return heads_folder(environment) / name


def write_info(folder: Path, info: HeadInfo, file: str = _INFO) -> None:
    """Tell clients where the head is."""
    make_private(folder)
    temporary = folder / f".{file}.{os.getpid()}"
    temporary.touch(mode=0o600)
    temporary.write_bytes(msgspec.json.encode(info))
    temporary.replace(folder / file)


def read_info(folder: Path, file: str = _INFO) -> HeadInfo | None:
    """Return where the head is, if that can be read."""
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        return _read((folder / file).read_bytes())
    return None


def remove_left_sockets(folder: Path) -> None:
    """Remove the sockets of a head that was killed; whoever calls this is the only head."""
    info = read_info(folder)
    if info is None:
        return
    with contextlib.suppress(OSError, ValueError):
        left = Path(info.socket)
        if info.host == socket.gethostname() and left.parent.name.startswith(SOCKET_FOLDER):
            if left.is_socket():
                left.unlink()
            left.parent.rmdir()


def remove_info(folder: Path, file: str = _INFO) -> None:
    """Remove the notice of a running head for clients, if this process wrote it."""
    info = read_info(folder, file)
    if info is not None and info.pid == os.getpid():
        with contextlib.suppress(OSError):
            (folder / file).unlink()


def running_heads() -> list[str]:
    """Return the names of the clusters whose heads serve on this machine.

    A head that was killed leaves its file; its process is gone.
    """
    own = socket.gethostname()
    found = []
    for file in sorted(heads_folder().glob(f"*/{_INFO}")):
        info = read_info(file.parent)
        if info is not None and info.host == own and _exists(info.pid):
            found.append(file.parent.name)
    return found


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def find_head(name: str = DEFAULT_CLUSTER) -> HeadInfo:
    """Return where the head of a cluster is.

    Raises:
        ConfigurationError: A cluster cannot be called so.
        NodeLostError: No head runs, or it does so on another machine.
    """
    folder = head_folder(name)
    with contextlib.suppress(FileNotFoundError):
        for one in (*folder.parents[1::-1], folder):
            check_private(one)  # else another user could name their own socket
    file = folder / _INFO
    up = command("up", cluster=name)
    try:
        info = _read(file.read_bytes())
    except FileNotFoundError:
        running = running_heads()
        if name == DEFAULT_CLUSTER and len(running) > 1:
            raise NodeLostError(
                f"several clusters are up here: {', '.join(running)}",
                hint=f"name one: --cluster {running[0]}, SAPWOOD_CLUSTER={running[0]}, in Python "
                f"sapwood.connect({shown(running[0])})",
            ) from None
        others = [
            f"'{one}' (--cluster {one}, --on head:{one}, sapwood.connect({shown(one)}))"
            for one in running
        ]
        raise NodeLostError(
            f"no cluster '{name}' is up here",
            hint=f"start it with {up}"
            + (f", or name one that is up: {', '.join(others)}" if others else ""),
        ) from None
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise NodeLostError(
            f"cannot read where the head is: {error}",
            where=str(file),
            hint=f"remove that file; if no head runs, {up} starts one",
        ) from error
    if info.host != socket.gethostname():
        raise NodeLostError(
            f"the head of the cluster '{name}' runs on {info.host}",
            hint="work there: a client is on the head's machine",
        )
    return info
