"""The user's folders: cache, state and data, by the XDG base directory specification.

A container's user may have no entry in ``passwd``, no ``HOME``, or a home that cannot be written.
Such a user gets a private folder below the temporary folder instead, which every process of the
same user and environment finds again.
"""

from __future__ import annotations

import os
import pwd
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sapwood.core.errors import ResourceError, SecurityError

CACHE = ("XDG_CACHE_HOME", ".cache")
STATE = ("XDG_STATE_HOME", ".local/state")
DATA = ("XDG_DATA_HOME", ".local/share")

PRIVATE = 0o700
"""Mode of every folder that is made here."""

SOCKET_FOLDER = "sapwood-"
"""How the names of temporary folders with sockets begin."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def home_folder(environment: Mapping[str, str] | None = None) -> Path | None:
    """Return the user's home folder; None if the user has none.

    Example:
        >>> str(home_folder({"HOME": "/home/ann"}))
        '/home/ann'
    """
    variables = os.environ if environment is None else environment
    if variables.get("HOME", "").startswith("/"):
        return Path(variables["HOME"])
    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        return None


def expand_user(text: str | Path) -> Path:
    """Return a path with a leading ``~`` or ``~user`` replaced by that home folder.

    Only ``~`` and ``~user`` with an existing user are replaced: a file may be named ``~notes``.

    Raises:
        ResourceError: The path begins with ``~/`` and the user has no home folder.
    """
    path = Path(text)
    first = path.parts[0] if path.parts else ""
    if not first.startswith("~"):
        return path
    if first != "~":
        try:
            return Path(pwd.getpwnam(first[1:]).pw_dir, *path.parts[1:])
        except KeyError:
            return path
    home = home_folder()
    if home is None:
        raise ResourceError(
            "this user has no home folder",
            where=str(path),
            hint="set HOME, or give an absolute path",
        )
    return Path(home, *path.parts[1:])


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what can be made again; it need not exist yet.

    Example:
        >>> str(cache_folder({"XDG_CACHE_HOME": "/var/cache/ann"}))
        '/var/cache/ann/sapwood'
    """
    return _folder(CACHE, environment)


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of what outlives processes; it need not exist yet.

    Example:
        >>> str(state_folder({"XDG_STATE_HOME": "/var/state"}))
        '/var/state/sapwood'
    """
    return _folder(STATE, environment)


def heads_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder in which each head of this user has a folder of its name.

    Example:
        >>> str(heads_folder({"XDG_STATE_HOME": "/var/state"}))
        '/var/state/sapwood/heads'
    """
    return state_folder(environment) / "heads"


def data_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the user's data; it need not exist yet.

    Example:
        >>> str(data_folder({"XDG_DATA_HOME": "/var/data"}))
        '/var/data/sapwood'
    """
    return _folder(DATA, environment)


def _folder(kind: tuple[str, str], environment: Mapping[str, str] | None) -> Path:
    variable, below_home = kind
    variables = os.environ if environment is None else environment
    base = variables.get(variable, "")
    if base.startswith("/"):
        return Path(base) / "sapwood"
    home = home_folder(variables)
    if home is not None and _can_be_written(home / below_home / "sapwood"):
        return home / below_home / "sapwood"
    name = Path(below_home).name
    return Path(tempfile.gettempdir()) / _fallback() / name / "sapwood"


def _can_be_written(path: Path) -> bool:
    """Whether a folder can be written, or made by this user."""
    for one in (path, *path.parents):
        if os.path.lexists(one):
            return os.access(one, os.W_OK | os.X_OK, effective_ids=True)
    return False


def make_private(folder: Path) -> Path:
    """Make a folder and its missing parents, for this user only, and return it.

    The mode is 0700 whatever the umask: in a folder that others may write to, they can replace
    libraries that this user's processes load, or the address of a cluster.

    Raises:
        SecurityError: It belongs to another user, or others may write to it.
        OSError: It cannot be made.
    """
    missing = []
    one = folder
    while not os.path.lexists(one):
        missing.append(one)
        one = one.parent
    for each in reversed(missing):
        each.mkdir(mode=PRIVATE, exist_ok=True)
    check_private(folder)
    return folder


def check_private(folder: Path) -> None:
    """Check that a folder or file belongs to this user or root, and no other user may write to it.

    The private group of a user does not count as others. Of a folder below the one that replaces a
    missing home folder, that one is checked too, because another user may have made it.

    Raises:
        SecurityError: It does not, or others may.
        OSError: It cannot be looked at, or does not exist.
    """
    for one in folder.parents:
        if one.name == _fallback():
            _check_private(one)
    _check_private(folder)


def _fallback() -> str:
    """Return the name of the folder that replaces a missing home folder."""
    return f"sapwood-of-{os.geteuid()}"


def _check_private(folder: Path) -> None:
    status = folder.stat()
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file"
    if status.st_uid not in {os.geteuid(), 0}:
        raise SecurityError(
            f"the {kind} belongs to another user",
            where=f"{folder}, of user {status.st_uid}",
            hint="choose another folder, by XDG_CACHE_HOME or XDG_STATE_HOME",
        )
    writers = status.st_mode & OTHERS_WRITE
    if writers & stat.S_IWOTH or (writers and not _is_private_group(status.st_gid)):
        raise SecurityError(
            f"other users may write to the {kind}, so its content cannot be trusted",
            where=f"{folder}, mode {stat.S_IMODE(status.st_mode):04o}",
            hint=f"check what is in it, then: chmod -R go-w {folder}",
        )


def _is_private_group(gid: int) -> bool:
    """Whether a group has this user as its only member, as ``useradd`` makes it."""
    import grp  # noqa: PLC0415 - rarely needed, and name services are slow to load

    if gid != os.getegid():
        return False
    try:
        group = grp.getgrgid(gid)
        user = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}
