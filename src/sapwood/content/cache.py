"""The folder of a node in which its processes keep the content that they fetched.

::

    SHA256         whole: written, hashed and then renamed
    SHA256.part    a process is fetching it, or was killed while fetching it
    .room          locked while room is made

A partial file has room for all of the content, from its beginning on what is here of it, and at its
end the number of these bytes. So other processes can already relay it, and the successor of
a process that was killed continues from the same byte.

Content comes from the nearest junction above that is on another machine, and from the root where
there is none, or where that does not have it.

The fetching process holds a lock on the partial file; others of the node wait until it is whole, or
until its holder has ended, and then fetch it themselves. A process that uses content holds a shared
lock on it, so that it is not removed. Locks end with the process that holds them.

Nothing here blocks: the event loop of the process runs between two chunks.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.loop import Loop, Timer
from sapwood.content.refs import CHUNK, GET, NAME, RELAY, ContentRef, checked_sha256
from sapwood.core.errors import DataValueError, ResourceError, SapwoodError
from sapwood.core.topology import ROOT
from sapwood.environment.folders import make_private

UNDER_WAY: Final = 4
"""Chunks that one process has asked for and not got."""

PAUSE: Final = 0.01
"""Seconds between two looks whether another process of the node has fetched content."""

ATTEMPTS: Final = 2
"""How often content is fetched whose bytes do not match its hash."""

COUNT: Final = struct.Struct("<Q")
"""How a partial file says at its end how many bytes of the content are there."""

PART: Final = ".part"
_ROOM = ".room"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_BUSY = (BlockingIOError, FileNotFoundError)


class AskRoot(Protocol):
    """Sends a request; see :class:`sapwood.session.member.OutgoingRequests`."""

    def __call__(
        self,
        destination: int,
        handler: str,
        body: bytes,
        on_answer: Callable[[ev.Answered], None] | None = None,
        /,
    ) -> None:
        """Send a request to a place."""


class HeldContent:
    """Content that is in the folder and stays there until this is closed.

    Attributes:
        names: SHA-256 of what was named only here, by path and offset of its file.
    """

    __slots__ = ("_descriptors", "names")

    def __init__(self) -> None:
        self.names: list[tuple[bytes, int, str]] = []
        self._descriptors: list[int] = []

    def add(self, fd: int) -> None:
        """Hold a file that is locked."""
        self._descriptors.append(fd)

    def close(self) -> None:
        """Let others remove it."""
        while self._descriptors:
            os.close(self._descriptors.pop())


class ContentCache:
    """The content folder, as one place of a tree uses it.

    Args:
        folder: The folder; it is made when it is needed.
        limit: Bytes that it may hold; the least recently used content that is not open is removed
        first. ask: Asks another place. loop: The loop of the process. sources: The places that may
        have content, nearest first.

    Attributes:
        on_written: Told when more of some content is in the folder.
    """

    def __init__(
        self,
        folder: str,
        limit: int,
        ask: AskRoot,
        loop: Loop,
        sources: Sequence[int] = (ROOT,),
    ) -> None:
        self.sources = tuple(sources)
        self.on_written: Callable[[], None] = _nobody_waits
        self.folder = Path(folder)
        self.limit = limit
        self.ask = ask
        self.loop = loop
        self.verified: set[tuple[int, int]] = set()
        """Inode and time of files whose bytes this process has hashed."""

    def fetch(
        self,
        refs: Sequence[ContentRef],
        on_done: Callable[[HeldContent], None],
        on_error: Callable[[SapwoodError], None],
    ) -> ContentFetch:
        """Fetch contents, one after the other; present content is not fetched again.

        Args:
            refs: The needed contents.
            on_done: Gets the holder, which is to be closed; perhaps before this returns.
            on_error: Told why it cannot be had.
        """
        fetch = ContentFetch(self, refs, on_done, on_error)
        fetch.go_on()
        return fetch

    # --- the folder ----------------------------------------------------------------------------

    def make(self) -> None:
        """Make the folder, for this user only.

        Raises:
            SecurityError: It is another user's, or others may write to it.
            OSError: It cannot be made.
        """
        make_private(self.folder)

    def hold(self, sha256: str, nbytes: int) -> int | None:
        """Return a locked descriptor of content that is here; None if it is not.

        Raises:
            BlockingIOError: It is being removed just now.
        """
        path = self.folder / sha256
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
        return _identity(fd) in self.verified

    def used(self, fd: int) -> None:
        """Note that a file was used just now, and is what its name says."""
        # The access time says when it was used; the time of the last change stays.
        with contextlib.suppress(OSError):
            os.utime(fd, ns=(time.time_ns(), os.fstat(fd).st_mtime_ns))
        self.verified.add(_identity(fd))

    def part_of(self, sha256: str) -> Path:
        """Return the partial file of some content."""
        return self.folder / (sha256 + PART)

    def progress(self, fd: int, nbytes: int) -> int:
        """Return how many bytes of content are in a file, partial or whole."""
        status = os.fstat(fd)
        if status.st_size == nbytes and not status.st_mode & 0o222:
            return nbytes
        if status.st_size != nbytes + COUNT.size:
            return 0
        found = os.pread(fd, COUNT.size, nbytes)  # it may become whole in this moment
        return min(COUNT.unpack(found)[0], nbytes) if len(found) == COUNT.size else nbytes

    def lead(self, sha256: str, nbytes: int) -> int | None:
        """Return a locked descriptor of a partial file; None while another process has it.

        It is empty, or has what a process that was killed had fetched of content of this size.
        """
        path = self.part_of(sha256)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.stat().st_ino != os.fstat(fd).st_ino:
                raise BlockingIOError  # it became whole, or was removed, before it was locked
            if os.fstat(fd).st_size != nbytes + COUNT.size:
                os.ftruncate(fd, 0)
        except _BUSY:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        return fd

    def reserve(self, fd: int, nbytes: int, sha256: str) -> bool:
        """Make room for content and take it, if that was not done; False while another one does so.

        Raises:
            ResourceError: Content in use leaves too little.
            OSError: The disk is full.
        """
        if os.fstat(fd).st_size:
            return True
        lock = os.open(self.folder / _ROOM, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            while (held := sum(size for _, size, _ in self._entries())) + nbytes > self.limit:
                if not self.remove_oldest():
                    raise ResourceError(
                        f"the content cache has no room for {nbytes} bytes: {held} of its "
                        f"{self.limit} bytes are in use",
                        where=f"{sha256[:16]} in {self.folder}",
                        hint="raise cluster.content_cache, or use fewer or smaller parts at a time",
                    )
            while self._free() < nbytes:
                if not self.remove_oldest():
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            # From here on it counts, though nothing is written yet.
            os.ftruncate(fd, nbytes + COUNT.size)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def _free(self) -> int:
        """Return how many bytes this user may still write to the disk."""
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def _entries(self) -> list[tuple[float, int, str]]:
        """Return time of last use, size and name of what is in the folder, oldest first."""
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.name != _ROOM:
                        status = entry.stat(follow_symlinks=False)
                        found.append((status.st_atime, status.st_size, entry.name))
        return sorted(found)

    def remove_oldest(self) -> bool:
        """Remove the least recently used content that is not open; False if there is none."""
        for _, size, name in self._entries():
            if not size:
                continue  # nothing is gained; a process may have just created it
            path = self.folder / name
            try:
                # Writable: NFS locks exclusively only through such a descriptor.
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return True
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            except _BUSY:
                continue
            else:
                return True
            finally:
                os.close(fd)
        return False

    def explained(self, error: OSError) -> ResourceError:
        """Return what an error of the folder means."""
        if error.errno in _NO_SPACE:
            return ResourceError(
                "the disk of the content cache is full",
                where=str(self.folder),
                hint="free space, or choose another folder by cluster.content_folder",
            )
        return ResourceError(
            f"the content cache cannot be used: {error.strerror or error}",
            where=str(error.filename or self.folder),
            hint="choose another folder by cluster.content_folder",
        )


class ContentFetch:
    """Content that is being fetched, one after the other.

    Args:
        cache: Where it goes.
        refs: The needed contents.
        on_done: Gets the holder.
        on_error: Told why it cannot be had.
    """

    def __init__(
        self,
        cache: ContentCache,
        refs: Sequence[ContentRef],
        on_done: Callable[[HeldContent], None],
        on_error: Callable[[SapwoodError], None],
    ) -> None:
        self._cache = cache
        self._refs = list(reversed(refs))
        self._on_done = on_done
        self._on_error = on_error
        self._held = HeldContent()
        self._ended = False
        self._timer: Timer | None = None
        self._download: _Download | None = None
        self._attempts = 0

    def cancel(self) -> None:
        """End it silently."""
        if not self._ended:
            self._end()
            self._held.close()

    def go_on(self) -> None:
        """Look at the next piece of content that is needed."""
        while self._refs and not self._ended:
            ref = self._refs[-1]
            if ref.file is not None and ref.file.is_here():
                self._refs.pop()
                continue
            if not ref.sha256:
                self._ask_for_name(ref)
            else:
                self._attempts = 0
                self._guarded(self._begin)
            return
        if not self._ended:
            self._end()
            self._on_done(self._held)

    def _ask_for_name(self, ref: ContentRef) -> None:
        assert ref.file is not None  # noqa: S101 - the client makes no others
        stamp = [ref.file.path, ref.file.size, ref.file.mtime_ns]
        body = plain.encode([stamp, ref.offset, ref.nbytes])
        self._cache.ask(ROOT, NAME, body, lambda answer: self._guarded(self._named, ref, answer))

    def _named(self, ref: ContentRef, answer: ev.Answered) -> None:
        assert ref.file is not None  # noqa: S101 - as above
        if answer.error is not None:
            raise SapwoodError.from_record(answer.error)
        sha256 = checked_sha256(str(plain.decode(answer.body)))
        self._held.names.append((ref.file.path, ref.offset, sha256))
        self._refs[-1] = ContentRef(sha256, ref.nbytes)
        self.go_on()

    def _begin(self) -> None:
        """Take what is here, fetch what is not, or wait for whoever fetches it."""
        cache, ref = self._cache, self._refs[-1]
        checked_sha256(ref.sha256)
        cache.make()
        try:
            fd = cache.hold(ref.sha256, ref.nbytes)
        except BlockingIOError:
            self._later()
            return
        if fd is not None:
            self._held.add(fd)
            if cache.is_verified(fd):
                self._have(fd)
            else:
                self._verify(fd, hashlib.sha256(), 0)
            return
        fd = cache.lead(ref.sha256, ref.nbytes)
        if fd is None:
            self._later()
            return
        # What junctions have passed on was wrong: the root has it right.
        sources = (ROOT,) if self._attempts else cache.sources
        download = _Download(cache, ref, fd, sources, self._fetched)
        try:
            if (cache.folder / ref.sha256).exists() or not cache.reserve(
                fd, ref.nbytes, ref.sha256
            ):
                download.abandon()
                self._later()
                return
        except BaseException:
            download.abandon()
            raise
        self._download = download
        download.begin()

    def _later(self) -> None:
        self._timer = self._cache.loop.call_later(PAUSE, self._guarded, self._begin)

    def _verify(self, fd: int, hasher: Any, offset: int) -> None:
        """Hash what another process has fetched, a chunk at a time."""
        data = os.pread(fd, CHUNK, offset)
        if data:
            hasher.update(data)
            # Not at once, but after the received messages: this may take long.
            self._timer = self._cache.loop.call_later(
                0.0, self._guarded, self._verify, fd, hasher, offset + len(data)
            )
            return
        ref = self._refs[-1]
        if hasher.hexdigest() == ref.sha256:
            self._have(fd)
            return
        path = self._cache.folder / ref.sha256
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(fd).st_ino:
                path.unlink()  # damaged: it is fetched again
        self._begin()

    def _fetched(self, fd: int, problem: SapwoodError | OSError | None) -> None:
        """A download has ended: with a locked descriptor, a problem, or just too late."""
        self._download = None
        self._attempts += 1
        if isinstance(problem, DataValueError) and self._attempts < ATTEMPTS:
            self._guarded(self._begin)
        elif isinstance(problem, OSError):
            self._fail(self._cache.explained(problem))
        elif problem is not None:
            self._fail(problem)
        elif fd >= 0:
            self._held.add(fd)
            self._have(fd)
        else:
            self._guarded(self._begin)

    def _have(self, fd: int) -> None:
        if not os.fstat(fd).st_nlink:
            self._guarded(self._begin)  # it was removed before it was locked
            return
        self._cache.used(fd)
        self._refs.pop()
        self.go_on()

    def _guarded(self, step: Callable[..., None], *args: object) -> None:
        """Make a step; what goes wrong ends the fetch."""
        if self._ended:
            return
        try:
            step(*args)
        except SapwoodError as error:
            self._fail(error)
        except OSError as error:
            self._fail(self._cache.explained(error))

    def _fail(self, error: SapwoodError) -> None:
        if not self._ended:
            self._end()
            self._held.close()
            self._on_error(error)

    def _end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._download is not None:
            self._download.abandon()
            self._download = None


class _Download:
    """One piece of content on its way into a partial file that this process has locked."""

    def __init__(
        self,
        cache: ContentCache,
        ref: ContentRef,
        fd: int,
        sources: tuple[int, ...],
        on_end: Callable[[int, SapwoodError | OSError | None], None],
    ) -> None:
        self._cache = cache
        self._ref = ref
        self._fd = fd
        self._sources = sources
        self._on_end = on_end
        self._part = cache.part_of(ref.sha256)
        self._hasher = hashlib.sha256()
        self._asked = 0
        self._written = 0
        self._early: dict[int, bytes] = {}
        self._under_way = 0

    def begin(self) -> None:
        """Begin; what a process before this one has fetched is hashed first, a chunk at a time."""
        if self._fd < 0:
            return
        end = self._cache.progress(self._fd, self._ref.nbytes)
        data = os.pread(self._fd, min(CHUNK, end - self._written), self._written)
        if data:
            self._hasher.update(data)
            self._written = self._asked = self._written + len(data)
            self._cache.loop.call_later(0.0, self.begin)
        else:
            self.ask_for_more()

    def ask_for_more(self) -> None:
        """Ask for the next chunks; without any, this is all."""
        nbytes = self._ref.nbytes
        while self._under_way < UNDER_WAY and self._asked < nbytes and self._fd >= 0:
            offset, count = self._asked, min(CHUNK, nbytes - self._asked)
            self._asked += count
            self._under_way += 1
            self._ask(offset, count)
        if self._written == nbytes and self._fd >= 0:
            self._finish()

    def _ask(self, offset: int, count: int) -> None:
        """Ask the nearest place for a chunk that may have it."""
        source, ref = self._sources[0], self._ref
        came = partial(self._came, source, offset, count)
        if source == ROOT:
            self._cache.ask(ROOT, GET, plain.encode([ref.sha256, offset, count]), came)
        else:
            body = plain.encode([ref.sha256, ref.nbytes, offset, count])
            self._cache.ask(source, RELAY, body, came)

    def _came(self, source: int, offset: int, count: int, answer: ev.Answered) -> None:
        if self._fd < 0:
            return
        try:
            if answer.error is not None:
                raise SapwoodError.from_record(answer.error)
            data = b"" if answer.payload is None else bytes(answer.payload.view)
            if len(data) != count:
                raise self._damaged(f"a chunk of {len(data)} bytes")
        except SapwoodError as error:
            if source == ROOT:
                self._ended(error)
                return
            if source == self._sources[0]:  # else the others have said so already
                self._sources = self._sources[1:]
            self._ask(offset, count)
            return
        self._under_way -= 1
        try:
            self._early[offset] = data
            while (data := self._early.pop(self._written, b"")) != b"":
                self._hasher.update(data)
                self._write(data)
        except (SapwoodError, OSError) as error:
            self._ended(error)
        else:
            self.ask_for_more()

    def _write(self, data: bytes) -> None:
        """Write the next bytes, then their number: so no reader gets missing bytes."""
        self._put(data, self._written)
        self._written += len(data)
        self._put(COUNT.pack(self._written), self._ref.nbytes)
        self._cache.on_written()

    def _put(self, data: bytes, offset: int) -> None:
        view = memoryview(data)
        while view:
            try:
                count = os.pwrite(self._fd, view, offset)
            except OSError as error:
                if error.errno in _NO_SPACE and self._cache.remove_oldest():
                    continue
                raise
            offset += count
            view = view[count:]

    def _finish(self) -> None:
        try:
            if self._hasher.hexdigest() != self._ref.sha256:
                raise self._damaged(f"content with the hash {self._hasher.hexdigest()[:16]}…")
            os.ftruncate(self._fd, self._ref.nbytes)
            os.fchmod(self._fd, 0o400)
            whole = self._cache.folder / self._ref.sha256
            self._part.rename(whole)
        except (SapwoodError, OSError) as error:
            self._ended(error)
            return
        fd, self._fd = self._fd, -1
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:  # in this moment it is removed again
            os.close(fd)
            fd = -1
        self._on_end(fd, None)

    def _damaged(self, what: str) -> DataValueError:
        return DataValueError(
            f"content from the client is damaged: {what} came instead",
            where=f"{self._ref.sha256} of {self._ref.nbytes} bytes, fetched {ATTEMPTS} times",
            hint="do not write to a program's libraries or to a data file during a run",
        )

    def _ended(self, error: SapwoodError | OSError) -> None:
        self.abandon()
        self._on_end(-1, error)

    def abandon(self) -> None:
        """Leave nothing behind: waiting processes fetch it instead."""
        if self._fd >= 0:
            self._part.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def _nobody_waits() -> None:
    pass


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_mtime_ns
