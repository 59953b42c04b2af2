"""Large buffers of calls in files, which are written once, and which agents map or fetch."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import threading
import time
import weakref
from pathlib import Path
from typing import Any, Final

import numpy as np

from sapwood.client.cluster import Cluster
from sapwood.content.refs import ContentRef, FileStamp
from sapwood.core.errors import ResourceError

SHARED_SIZE: Final = 2**20
"""Bytes from which a buffer is written into a file once, and mapped by all calls that use it."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - the folder below it is made by mkdtemp

_PREFIX: Final = "sapwood-shared-"

_SETTLED: Final = 10.0
"""Seconds after which a folder is locked, or abandoned."""


class SharedFolder:
    """A folder that only this user can read, and that is removed when its process is gone.

    A process that is killed leaves its folder behind; the next one that makes a folder at the same
    place removes it. Folders are locked by the processes that use them.

    Args:
        where: The folder in which it is made.

    Raises:
        OSError: It cannot be made.
    """

    def __init__(self, where: Path) -> None:
        _remove_abandoned(where)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=where))
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        self._finalizer = weakref.finalize(self, _remove_folder, self.path, self._lock, os.getpid())

    def write(self, name: str, data: memoryview) -> Path | None:
        """Write a file; None if there is not enough room for it."""
        path = self.path / name
        try:
            path.write_bytes(data)
        except OSError:
            path.unlink(missing_ok=True)
            return None
        return path

    def close(self) -> None:
        """Remove it with all its files."""
        self._finalizer()


def _remove_folder(path: Path, lock: int, made_by: int) -> None:
    os.close(lock)
    if os.getpid() == made_by:  # a forked process leaves it to the one that made it
        shutil.rmtree(path, ignore_errors=True)


def _remove_abandoned(where: Path) -> None:
    """Remove the folders of this user whose processes were killed."""
    for path in where.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                # A folder that was just made is not locked yet.
                old = time.time() - os.fstat(lock).st_mtime > _SETTLED
                if old and os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)


class SharedBuffer:
    """A buffer in a file.

    Attributes:
        ref: What agents open, and fetch where they do not see the file.
        users: Calls that are not over; the owner of the memory counts as one while it lives.
    """

    __slots__ = ("owner", "path", "ref", "users")

    def __init__(self, path: Path, ref: ContentRef, owner: weakref.ref[Any]) -> None:
        self.path = path
        self.ref = ref
        self.owner = owner
        self.users = 1


class SharedBuffers:
    """Writes each large buffer once, and removes its file after its last use.

    A buffer is known by the object that owns its memory, as long as that lives. What an array
    holds must therefore not be changed while calls use it, as with other pools of processes.

    Args:
        cluster: Whose agents are to read them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.RLock()
        self._known: dict[tuple[int, int, int], SharedBuffer] = {}
        self._folders: dict[Path, SharedFolder] = {}
        self._number = 0
        self._pid = os.getpid()
        self.closed = False

    def take(self, raw: memoryview) -> SharedBuffer | None:
        """Return the file of a buffer, with one more user; None where the buffer is to be sent.

        Raises:
            ResourceError: There is no room for the file.
        """
        owner = raw.obj
        array = np.frombuffer(raw, np.uint8)
        key = (id(owner), array.ctypes.data, array.nbytes)
        with self._lock:
            if self.closed:  # a call that was submitted while its owner ended
                return None
            known = self._known.get(key)
            if known is None or known.owner() is not owner:
                try:
                    reference = weakref.ref(owner, lambda _: self._dropped(key))
                except TypeError:
                    return None
                known = self._known[key] = self._written(array, reference)
            elif not known.ref.sha256 and not self._session.shares_machine():
                # Agents of other machines have joined.
                known.ref = self._offered(known.path, array)
            known.users += 1
            return known

    def release(self, taken: list[SharedBuffer], _future: object = None) -> None:
        """Say that a call is over."""
        with self._lock:
            for one in taken:
                self._leave(one)

    def close(self) -> None:
        """Remove all files; calls that have opened one keep it."""
        with self._lock:
            self.closed = True
            for one in self._known.values():
                if one.users:
                    one.users = 0
                    self._remove(one)
            self._known.clear()
            for folder in self._folders.values():
                folder.close()
            self._folders.clear()

    def _written(self, array: np.ndarray[Any, Any], owner: weakref.ref[Any]) -> SharedBuffer:
        self._number += 1
        path = self._stored(str(self._number), array.data)
        if self._session.shares_machine():
            stamp = FileStamp.of(os.fsencode(path))
            return SharedBuffer(path, ContentRef("", array.nbytes, stamp), owner)
        return SharedBuffer(path, self._offered(path, array), owner)

    def _stored(self, name: str, data: memoryview) -> Path:
        folders = [_MEMORY, Path(tempfile.gettempdir())]
        for parent in folders:
            with contextlib.suppress(OSError):
                folder = self._folders.get(parent)
                if folder is None:
                    folder = self._folders[parent] = SharedFolder(parent)
                path = folder.write(name, data)
                if path is not None:
                    return path
        raise ResourceError(
            f"cannot store an array of {data.nbytes / 2**20:.1f} MiB for calls to share",
            where=" and ".join(map(str, folders)),
            hint="make room there, or name another folder by the environment variable TMPDIR",
        )

    def _offered(self, path: Path, array: np.ndarray[Any, Any]) -> ContentRef:
        sha256 = hashlib.sha256(array.data).hexdigest()
        stamp = FileStamp.of(os.fsencode(path))
        offered: ContentRef = self._session.content.offer_file(stamp, 0, array.nbytes, sha256)
        return offered

    @property
    def _session(self) -> Any:
        return self._cluster._session  # noqa: SLF001 - of one family

    def _dropped(self, key: tuple[int, int, int]) -> None:
        with self._lock:
            known = self._known.pop(key, None)
            if known is not None:
                self._leave(known)

    def _leave(self, one: SharedBuffer) -> None:
        if one.users:
            one.users -= 1
            if not one.users:
                self._remove(one)

    def _remove(self, one: SharedBuffer) -> None:
        if os.getpid() != self._pid:
            return  # a forked process leaves the files to the one that wrote them
        one.path.unlink(missing_ok=True)
        if one.ref.sha256 and not self._cluster.closed:
            self._session.content.withdraw(one.ref)
