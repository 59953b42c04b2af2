"""The lock that lets one process at a time have the folder of a store."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import fcntl
import os
import socket
import threading
from pathlib import Path

import msgspec

from sapwood.core import typed
from sapwood.core.errors import StoreError, StoreInUseError

NAME = "store.lock"
"""File of the lock in the folder."""

MAX_HOLDER = 4096
"""Bytes of the file that are read."""


class LockHolder(msgspec.Struct, frozen=True):
    """The holder of a folder.

    Attributes:
        host: Name of the machine.
        pid: Number of the process there.
        since: When it took the folder, ISO 8601.
    """

    host: str
    pid: int
    since: str


class FolderLock:
    """Holds a folder until :meth:`release`, or until the process ends, however it ends.

    The system keeps the lock (``fcntl``), so a dead process blocks no other. The
    file names the holder, for the error of a second process; it stays without a holder.
    Children of ``fork`` do not inherit the lock.

    Args:
        folder: The folder, which exists.

    Raises:
        StoreInUseError: Another process has the folder, or this one a second time.
        StoreError: The folder cannot be written, or its file system has no locks.
    """

    _held: set[tuple[int, int]] = set()  # noqa: RUF012 - of the process, as the system's locks are
    _guard = threading.Lock()

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        status = folder.stat()
        self._folder = (status.st_dev, status.st_ino)
        self._pid = os.getpid()
        with self._guard:
            # A process never refuses itself, and closing any descriptor would end its lock.
            if self._folder in self._held:
                raise StoreInUseError(
                    "this process has the store open already",
                    where=str(folder),
                    hint="close it first, or share the one that is open",
                )
            self._descriptor = self._take()
            self._held.add(self._folder)

    def _take(self) -> int:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"the store cannot be locked: {error.strerror}",
                where=str(self._path),
                hint="the user of the head must be able to write the folder",
            ) from error
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                refusal: StoreError = self._in_use(descriptor)
            else:
                refusal = StoreError(
                    f"the store cannot be locked: {error.strerror}",
                    where=str(self._path),
                    hint="put the store into a folder on a disk of this machine",
                )
            os.close(descriptor)
            raise refusal from error
        self._sign(descriptor)
        return descriptor

    def _in_use(self, descriptor: int) -> StoreInUseError:
        who = "another process"
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            holder = typed.json_reader(LockHolder)(os.pread(descriptor, MAX_HOLDER, 0))
            who = f"process {holder.pid} on {holder.host}, since {holder.since},"
        return StoreInUseError(
            f"{who} has the store open",
            where=str(self._path.parent),
            hint="use that head, end it, or give this one another folder",
        )

    @staticmethod
    def _sign(descriptor: int) -> None:
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        text = msgspec.json.encode(LockHolder(socket.gethostname(), os.getpid(), now))
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text, 0)

    def release(self) -> None:
        """Release the folder; a second time, or in a child of ``fork``, it does nothing."""
        if os.getpid() != self._pid:
            return
        with self._guard:
            if self._folder in self._held and self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                self._held.discard(self._folder)
