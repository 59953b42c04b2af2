"""The folder in which content is stored, each piece under the name of its SHA-256.

::

    SHA256         whole: written, hashed and then renamed
    SHA256.x       the same, for files that can be executed
    SHA256.part    a process is writing it, or was killed while writing it
    .room          locked while room is made

A partial file has room for all of the content, from its beginning on what is here of it, and at its
end the number of these bytes. So other processes can already pass it on, and the successor of a
process that was killed continues from the same byte.

The process that writes a partial file holds a lock on it. A process that uses content holds a
shared lock, so that it is not removed. Locks end with the process that holds them. A file with
several hard links, or with a pin, is not removed either.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.content.refs import CHUNK
from sapwood.content.room import ContentFile, Pins, removable
from sapwood.core.errors import DataValueError, ResourceError
from sapwood.environment.folders import make_private

COUNT: Final = struct.Struct("<Q")
"""How a partial file says at its end how many bytes of the content are there."""

MAX_VERIFIED: Final = 100_000
"""Files of which a process remembers that it has hashed them."""

PATIENCE: Final = 2.0
"""Seconds for which a thread waits for a lock."""

LOCK_PAUSE: Final = 0.01
"""Seconds between two attempts to lock a file."""

PART: Final = ".part"
EXECUTABLE: Final = ".x"
_ROOM = ".room"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_IN_USE = {errno.EAGAIN, errno.ETXTBSY}


class StoreTexts(msgspec.Struct, frozen=True):
    """What errors say of a store.

    Attributes:
        what: What the folder is.
        limit: What to do when its limit is reached.
        folder: The setting that chooses the folder.
    """

    what: str
    limit: str
    folder: str


class ContentStore:
    """A folder of content, as one process uses it.

    Args:
        folder: The folder; :meth:`make` makes it.
        limit: Bytes that it may hold; 0: no limit. The least recently used content that is not in
            use is removed first.
        texts: What its errors say.
        wait: Whether to wait for locks: not on an event loop. A process that is just being started
            has inherited them for a moment.
        pins: Content that must stay, whether it is in use or not.
    """

    def __init__(
        self,
        folder: Path,
        limit: int,
        texts: StoreTexts,
        *,
        wait: bool = False,
        pins: Pins | None = None,
    ) -> None:
        self.folder = folder
        self.limit = limit
        self.texts = texts
        self._patience = PATIENCE if wait else 0.0
        self._pins = pins or Pins(time.time)
        self._verified: set[tuple[int, int, int]] = set()

    def make(self) -> None:
        """Make the folder, for this user only.

        Raises:
            SecurityError: It is another user's, or others may write to it.
            OSError: It cannot be made.
        """
        make_private(self.folder)

    def path_of(self, sha256: str, ending: str = "") -> Path:
        """Return where whole content is; with an ending, a variant of it."""
        return self.folder / (sha256 + ending)

    # --- whole content -------------------------------------------------------------------------

    def hold(self, sha256: str, nbytes: int) -> int | None:
        """Return a locked descriptor of content that is here; None if it is not.

        Raises:
            BlockingIOError: It is being removed just now.
        """
        path = self.path_of(sha256)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            status = os.fstat(fd)
            if not status.st_nlink:
                raise BlockingIOError
            if status.st_size != nbytes:
                path.unlink(missing_ok=True)
                os.close(fd)
                return None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def is_verified(self, fd: int) -> bool:
        """Whether this process has hashed a file that was not written since."""
        return _identity(fd) in self._verified

    def used(self, fd: int) -> None:
        """Record that a file was used just now, and has the content of its name."""
        # The access time says when it was used; the time of the last change stays.
        with contextlib.suppress(OSError):
            os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))
        if len(self._verified) >= MAX_VERIFIED:
            self._verified.clear()  # they are hashed again
        self._verified.add(_identity(fd))

    def verify(self, path: Path, sha256: str) -> bool:
        """Whether a file has this content, which counts as used then; else it is removed."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        with open(fd, "rb", buffering=0) as file:  # noqa: PTH123 - it is open
            known = self.is_verified(fd)
            if not known and hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                path.unlink(missing_ok=True)
                return False
            self.used(fd)
        return True

    # --- content that is not whole yet -----------------------------------------------------------

    def arrived(self, sha256: str, nbytes: int) -> int | None:
        """Return how many bytes of content are here, from its beginning; None for no file of it."""
        fd = self._open(sha256, nbytes)
        if fd < 0:
            return None
        try:
            return _progress(fd, nbytes)
        finally:
            os.close(fd)

    def read(self, sha256: str, nbytes: int, offset: int, count: int = CHUNK) -> bytes | None:
        """Return bytes of content from an offset on, fewer if not all have arrived.

        Returns:
            No bytes if none have arrived; None if the folder has no file of the content.
        """
        fd = self._open(sha256, nbytes)
        if fd < 0:
            return None
        try:
            count = min(count, _progress(fd, nbytes) - offset)
            return os.pread(fd, count, offset) if count > 0 else b""
        finally:
            os.close(fd)

    def _open(self, sha256: str, nbytes: int) -> int:
        """Return a descriptor of what is here of content, which may grow; -1 for nothing."""
        for ending in ("", EXECUTABLE, PART):
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(self.path_of(sha256, ending), os.O_RDONLY | os.O_CLOEXEC)
                if os.fstat(fd).st_size in {0, nbytes, nbytes + COUNT.size}:
                    return fd
                os.close(fd)  # content of another size
        return -1

    def lead(self, sha256: str, nbytes: int) -> PartialContent | None:
        """Return a locked partial file; None while another process has it.

        It is empty, or has what an earlier process has written of content of this size.
        """
        path = self.path_of(sha256, PART)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(fd)
            if path.stat().st_ino != os.fstat(fd).st_ino:
                raise BlockingIOError  # it became whole, or was removed, before it was locked
            if os.fstat(fd).st_size != nbytes + COUNT.size:
                os.ftruncate(fd, 0)
        except (BlockingIOError, FileNotFoundError):
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return PartialContent(self, sha256, nbytes, fd)

    # --- room ----------------------------------------------------------------------------------

    def reserve(self, part: PartialContent) -> bool:
        """Make room for content and take it, if that was not done; False while another one does so.

        Raises:
            ResourceError: Content in use leaves too little.
            OSError: The disk is full.
        """
        if os.fstat(part.fd).st_size:
            return True
        lock = os.open(self.folder / _ROOM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._lock(lock)
            self.make_room(part.nbytes, f"{part.sha256[:16]} in ")
            # From here on it counts, though nothing is written yet.
            os.ftruncate(part.fd, part.nbytes + COUNT.size)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def make_room(self, nbytes: int, where: str = "") -> None:
        """Remove content until there is room for more.

        Raises:
            ResourceError: Content in use leaves too little.
            OSError: The disk is full.
        """
        files = self.files()
        oldest = removable(files, self._pins)
        held = sum(file.nbytes for file in files)
        while (over := held + nbytes > (self.limit or sys.maxsize)) or self._free() < nbytes:
            removed = next((file for file in oldest if self._remove(file)), None)
            if removed is not None:
                held -= removed.nbytes
            elif over:
                raise ResourceError(
                    f"{self.texts.what} has no room for {nbytes} bytes: {held} of its "
                    f"{self.limit} bytes are in use",
                    where=f"{where}{self.folder}",
                    hint=self.texts.limit,
                )
            else:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def remove_oldest(self) -> bool:
        """Remove the least recently used content that is not in use; False if there is none."""
        return any(self._remove(file) for file in removable(self.files(), self._pins))

    def files(self) -> list[ContentFile]:
        """Return what is in the folder."""
        found = []
        with contextlib.suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.name != _ROOM:
                        status = entry.stat(follow_symlinks=False)
                        found.append(
                            ContentFile(
                                status.st_atime, status.st_size, entry.name, status.st_nlink
                            )
                        )
        return found

    def _lock(self, fd: int) -> None:
        """Lock a file exclusively.

        Raises:
            BlockingIOError: Another process has it.
        """
        end = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                time.sleep(LOCK_PAUSE)
            else:
                return

    def _free(self) -> int:
        """Return how many bytes this user may still write to the disk."""
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def _remove(self, file: ContentFile) -> bool:
        """Remove a file, unless it is in use."""
        path = self.folder / file.name
        try:
            with _opened_to_lock(path) as fd:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if path.stat().st_ino == os.fstat(fd).st_ino:
                    path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in _IN_USE:
                raise
            return False
        return True

    def put(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        """Write to a file; if the disk is full, old content goes first.

        Raises:
            OSError: It cannot be written.
        """
        view = memoryview(data)
        while view:
            try:
                count = os.pwrite(fd, view, offset)
            except OSError as error:
                if error.errno in _FULL and self.remove_oldest():
                    continue
                raise
            offset += count
            view = view[count:]

    def explained(self, error: OSError) -> ResourceError:
        """Return what an error of the folder means."""
        texts = self.texts
        if error.errno in _FULL:
            return ResourceError(
                f"the disk of {texts.what} is full",
                where=str(self.folder),
                hint=f"free space, or choose another folder by {texts.folder}",
            )
        return ResourceError(
            f"{texts.what} cannot be used: {error.strerror or error}",
            where=str(error.filename or self.folder),
            hint=f"choose another folder by {texts.folder}",
        )


class PartialContent:
    """A partial file that this process writes; it holds the lock.

    Args:
        store: The folder.
        sha256: The content.
        nbytes: Its size.
        fd: The locked file.

    Attributes:
        written: Bytes that are here, hashed.
    """

    __slots__ = ("_hasher", "_store", "fd", "nbytes", "sha256", "written")

    def __init__(self, store: ContentStore, sha256: str, nbytes: int, fd: int) -> None:
        self._store = store
        self._hasher: Any = hashlib.sha256()
        self.sha256 = sha256
        self.nbytes = nbytes
        self.fd = fd
        self.written = 0

    def resume(self) -> bool:
        """Hash a chunk that an earlier process has written; return whether there was one."""
        end = _progress(self.fd, self.nbytes)
        data = os.pread(self.fd, min(CHUNK, end - self.written), self.written)
        self._hasher.update(data)
        self.written += len(data)
        return bool(data)

    def append(self, data: bytes | memoryview) -> None:
        """Write the next bytes, then their number: so no reader gets missing bytes."""
        self._hasher.update(data)
        self._store.put(self.fd, data, self.written)
        self.written += len(data)
        self._store.put(self.fd, COUNT.pack(self.written), self.nbytes)

    def finish(self) -> int:
        """Make the file a whole one; return its descriptor, which is the caller's now.

        Raises:
            DataValueError: It is not the content that its name says; it is removed.
        """
        found = self._hasher.hexdigest()
        if found != self.sha256:
            self.abandon()
            raise DataValueError(
                "the received bytes differ from the announced ones",
                where=f"{self.sha256[:16]} of {self.nbytes} bytes: came {found[:16]}",
                hint="do not write to a file while it is being transferred",
            )
        os.ftruncate(self.fd, self.nbytes)
        os.fchmod(self.fd, 0o444)
        self._store.path_of(self.sha256, PART).rename(self._store.path_of(self.sha256))
        self._store.used(self.fd)
        fd, self.fd = self.fd, -1
        return fd

    def close(self) -> None:
        """Let another process continue."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def abandon(self) -> None:
        """Leave nothing behind: waiting processes fetch it instead."""
        if self.fd >= 0:
            self._store.path_of(self.sha256, PART).unlink(missing_ok=True)
            self.close()


def _progress(fd: int, nbytes: int) -> int:
    """Return how many bytes of content are in a file, partial or whole."""
    size = os.fstat(fd).st_size
    if size == nbytes:
        return nbytes
    if size != nbytes + COUNT.size:
        return 0
    found = os.pread(fd, COUNT.size, nbytes)  # it may become whole in this moment
    return min(COUNT.unpack(found)[0], nbytes) if len(found) == COUNT.size else nbytes


@contextlib.contextmanager
def _opened_to_lock(path: Path) -> Iterator[int]:
    """Open a file for writing: NFS locks exclusively only through such a descriptor."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError:  # whole content is read-only, for users other than root
        mode = path.stat().st_mode
        path.chmod(mode | 0o200)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.chmod(mode)
    try:
        yield fd
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_mtime_ns, status.st_size
