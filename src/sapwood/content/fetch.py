"""How a process of a tree gets content: from the folder of its node, or from places above.

Content comes from the nearest junction above that is on another machine, and from the root where
there is none, or where that does not have it.

The fetching process holds the lock on the partial file; others of the node wait until it is whole,
or until its holder has ended, and then fetch it themselves.

Nothing here blocks: the event loop of the process runs between two chunks.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.loop import Loop, Timer
from sapwood.content.messages import GET, NAME
from sapwood.content.pull import ChunkRequest, Pull
from sapwood.content.refs import CHUNK, ContentRef, checked_sha256
from sapwood.content.store import ContentStore, PartialContent, StoreTexts
from sapwood.core.errors import DataValueError, SapwoodError
from sapwood.core.topology import ROOT

PAUSE: Final = 0.01
"""Seconds between two looks whether another process of the node has fetched content."""

ATTEMPTS: Final = 2
"""How often content is fetched whose bytes do not match its hash."""

CACHE_TEXTS: Final = StoreTexts(
    what="the content cache",
    limit="raise cluster.content_cache, or use fewer or smaller parts at a time",
    folder="cluster.content_folder",
)


class AskPlace(Protocol):
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
    """The content folder of a node, as one place of a tree uses it.

    Args:
        folder: The folder; it is made when it is needed.
        limit: Bytes that it may hold; 0: no limit.
        ask: Asks another place.
        loop: The loop of the process.
        sources: The places that may have content, nearest first.
    """

    def __init__(
        self,
        folder: str,
        limit: int,
        ask: AskPlace,
        loop: Loop,
        sources: Sequence[int] = (ROOT,),
    ) -> None:
        self.store = ContentStore(Path(folder), limit, CACHE_TEXTS)
        self.sources = tuple(sources)
        self.loop = loop
        self._ask = ask

    def fetch(
        self,
        refs: Sequence[ContentRef],
        on_done: Callable[[HeldContent], None],
        on_error: Callable[[SapwoodError], None],
        on_written: Callable[[], None] = lambda: None,
    ) -> ContentFetch:
        """Fetch contents, one after the other; present content is not fetched again.

        Args:
            refs: The needed contents.
            on_done: Gets the holder, which is to be closed; perhaps before this returns.
            on_error: Receives why it cannot be had.
            on_written: Called when more of it is in the folder.
        """
        fetch = ContentFetch(self, refs, on_done, on_error, on_written)
        fetch.go_on()
        return fetch

    def ask_chunk(
        self,
        request: ChunkRequest[int],
        ref: ContentRef,
        on_answer: Callable[[ev.Answered], None],
    ) -> None:
        """Request a chunk; of no bytes, to ask whether the place offers the content."""
        body = plain.encode([ref.sha256, ref.nbytes, request.offset, request.nbytes])
        self._ask(request.source, GET, body, on_answer)

    def ask_name(self, ref: ContentRef, on_answer: Callable[[ev.Answered], None]) -> None:
        """Request the SHA-256 of a part of a file of the root."""
        assert ref.file is not None  # noqa: S101 - the client makes no others
        stamp = [ref.file.path, ref.file.size, ref.file.mtime_ns]
        self._ask(ROOT, NAME, plain.encode([stamp, ref.offset, ref.nbytes]), on_answer)


class ContentFetch:
    """Content that is being fetched, one after the other.

    Args:
        cache: Where it goes.
        refs: The needed contents.
        on_done: Gets the holder.
        on_error: Receives why it cannot be had.
        on_written: Called when more of it is in the folder.
    """

    def __init__(
        self,
        cache: ContentCache,
        refs: Sequence[ContentRef],
        on_done: Callable[[HeldContent], None],
        on_error: Callable[[SapwoodError], None],
        on_written: Callable[[], None],
    ) -> None:
        self._cache = cache
        self._refs = list(reversed(refs))
        self._on_done = on_done
        self._on_error = on_error
        self._on_written = on_written
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
                self._cache.ask_name(ref, partial(self._guarded, self._named, ref))
            else:
                self._attempts = 0
                self._guarded(self._begin)
            return
        if not self._ended:
            self._end()
            self._on_done(self._held)

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
        cache, store, ref = self._cache, self._cache.store, self._refs[-1]
        checked_sha256(ref.sha256)
        store.make()
        try:
            fd = store.hold(ref.sha256, ref.nbytes)
        except BlockingIOError:
            self._later()
            return
        if fd is not None:
            self._held.add(fd)
            if store.is_verified(fd):
                self._have(fd)
            else:
                self._verify(fd, hashlib.sha256(), 0)
            return
        part = store.lead(ref.sha256, ref.nbytes)
        if part is None:
            self._later()
            return
        try:
            if store.path_of(ref.sha256).exists() or not store.reserve(part):
                part.abandon()
                self._later()
                return
        except BaseException:
            part.abandon()
            raise
        # What junctions have passed on was wrong: the root has it right.
        sources = (ROOT,) if self._attempts else cache.sources
        self._download = _Download(cache, ref, part, sources, self._fetched, self._on_written)
        self._download.begin()

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
        path = self._cache.store.path_of(ref.sha256)
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
            self._fail(self._cache.store.explained(problem))
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
        self._cache.store.used(fd)
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
            self._fail(self._cache.store.explained(error))

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
            self._download.part.abandon()
            self._download = None


class _Download:
    """One piece of content on its way into a partial file of which this process has the lock."""

    def __init__(
        self,
        cache: ContentCache,
        ref: ContentRef,
        part: PartialContent,
        sources: tuple[int, ...],
        on_end: Callable[[int, SapwoodError | OSError | None], None],
        on_written: Callable[[], None],
    ) -> None:
        self.part = part
        self._cache = cache
        self._ref = ref
        self._on_end = on_end
        self._on_written = on_written
        self._sources = sources
        self._pull: Pull[int] = Pull(ref.nbytes, 0, sources)

    @property
    def _ended(self) -> bool:
        return self.part.fd < 0

    def begin(self) -> None:
        """Begin; what a process before this one has fetched is hashed first, a chunk at a time."""
        if self._ended:
            return
        try:
            resumed = self.part.resume()
        except OSError as error:
            self._end(error)
            return
        if resumed:
            self._cache.loop.call_later(0.0, self.begin)
            return
        self._pull = Pull(self._ref.nbytes, self.part.written, self._sources)
        self._go_on()

    def _go_on(self) -> None:
        """Request the next chunks; without any, this is all."""
        for request in self._pull.requests():
            self._cache.ask_chunk(request, self._ref, partial(self._came, request))
        if self._pull.done and not self._ended:
            self._finish()

    def _came(self, request: ChunkRequest[int], answer: ev.Answered) -> None:
        if self._ended:
            return
        try:
            if answer.error is not None:
                raise SapwoodError.from_record(answer.error)
            data = b"" if answer.payload is None else bytes(answer.payload.view)
            if len(data) != request.nbytes:
                raise self._damaged(f"a chunk of {len(data)} bytes")
        except SapwoodError as error:
            if self._pull.failed(request):
                self._go_on()
            else:
                self._end(error)
            return
        try:
            for chunk in self._pull.received(request, data):
                self.part.append(chunk)
                self._on_written()
        except OSError as error:
            self._end(error)
        else:
            self._go_on()

    def _finish(self) -> None:
        try:
            fd = self.part.finish()
        except DataValueError:
            self._end(self._damaged("content with another hash"))
            return
        except OSError as error:
            self._end(error)
            return
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

    def _end(self, error: SapwoodError | OSError) -> None:
        self.part.abandon()
        self._on_end(-1, error)
