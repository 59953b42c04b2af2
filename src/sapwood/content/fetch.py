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
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

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
        fetch.resume()
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

    The steps are a generator: each ``yield`` waits for an answer or a pause.

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
        self._refs = refs
        self._on_done = on_done
        self._on_error = on_error
        self._on_written = on_written
        self._held = HeldContent()
        self._part: PartialContent | None = None
        self._timer: Timer | None = None
        self._steps = self._fetch()
        self._events: deque[_Event] = deque()
        self._running = False
        self._ended = False

    def cancel(self) -> None:
        """End it silently."""
        if not self._ended:
            self._end()
            self._held.close()

    def resume(self, event: _Event = None) -> None:
        """Continue until the next wait.

        Args:
            event: An answer; None after a pause.
        """
        self._events.append(event)
        while self._events and not (self._running or self._ended):
            self._running = True  # an answer may come while it is being requested
            try:
                self._steps.send(self._events.popleft())
            except StopIteration:
                if not self._ended:
                    self._end()
                    self._on_done(self._held)
            except SapwoodError as error:
                self._fail(error)
            except OSError as error:
                self._fail(self._cache.store.explained(error))
            finally:
                self._running = False

    def _fail(self, error: SapwoodError) -> None:
        if not self._ended:
            self._end()
            self._held.close()
            self._on_error(error)

    def _end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._part is not None:
            self._part.abandon()

    # --- steps ---------------------------------------------------------------------------------

    def _fetch(self) -> _Steps[None]:
        for ref in self._refs:
            if ref.file is not None and ref.file.is_here():
                continue
            yield from self._have(ref if ref.sha256 else (yield from self._name(ref)))

    def _pause(self, seconds: float) -> _Steps[None]:
        self._timer = self._cache.loop.call_later(seconds, self.resume)
        yield

    def _name(self, ref: ContentRef) -> _Steps[ContentRef]:
        """Ask the root for the hash of a part of a file."""
        assert ref.file is not None  # noqa: S101 - the client makes no others
        answer: _Event = None
        self._cache.ask_name(ref, self.resume)
        while not isinstance(answer, ev.Answered):  # or a late chunk of other content
            answer = yield
        if answer.error is not None:
            raise SapwoodError.from_record(answer.error)
        sha256 = checked_sha256(str(plain.decode(answer.body)))
        self._held.names.append((ref.file.path, ref.offset, sha256))
        return ContentRef(sha256, ref.nbytes)

    def _have(self, ref: ContentRef) -> _Steps[None]:
        """Take what is here, fetch what is not, or wait for the process that fetches it."""
        store, attempts = self._cache.store, 0
        checked_sha256(ref.sha256)
        store.make()
        while True:
            try:
                fd = store.hold(ref.sha256, ref.nbytes)
                part = self._lead(ref) if fd is None else None
            except BlockingIOError:
                fd = part = None
            if fd is not None:
                self._held.add(fd)
                sound = store.is_verified(fd) or (yield from self._verify(ref, fd))
            elif part is not None:
                # What junctions have passed on was wrong: the root has it right.
                sources = (ROOT,) if attempts else self._cache.sources
                attempts += 1
                try:
                    fd = yield from self._download(ref, part, sources)
                except DataValueError:
                    if attempts >= ATTEMPTS:
                        raise
                    continue
                self._held.add(fd)
                sound = _share(fd)
            else:
                yield from self._pause(PAUSE)
                continue
            if sound and os.fstat(fd).st_nlink:  # else it was removed before it was locked
                store.used(fd)
                return

    def _verify(self, ref: ContentRef, fd: int) -> _Steps[bool]:
        """Hash what another process has fetched; damaged content is removed."""
        hasher, offset = hashlib.sha256(), 0
        while data := os.pread(fd, CHUNK, offset):
            hasher.update(data)
            offset += len(data)
            yield from self._pause(0.0)  # received messages come first: this may take long
        sound = hasher.hexdigest() == ref.sha256
        path = self._cache.store.path_of(ref.sha256)
        with contextlib.suppress(FileNotFoundError):
            if not sound and path.stat().st_ino == os.fstat(fd).st_ino:
                path.unlink()
        return sound

    def _lead(self, ref: ContentRef) -> PartialContent | None:
        """Return the partial file, if this process is to fetch the content."""
        store = self._cache.store
        part = store.lead(ref.sha256, ref.nbytes)
        if part is None:
            return None
        try:
            if not store.path_of(ref.sha256).exists() and store.reserve(part):
                return part
        except BaseException:
            part.abandon()
            raise
        part.abandon()
        return None

    def _download(
        self, ref: ContentRef, part: PartialContent, sources: tuple[int, ...]
    ) -> _Steps[int]:
        """Fetch content into a partial file; return the descriptor of the whole one."""
        self._part = part
        try:
            while part.resume():  # what a process before this one has fetched
                yield from self._pause(0.0)
            pull: Pull[int] = Pull(ref.nbytes, part.written, sources)
            while not pull.done:
                for request in pull.requests():
                    self._cache.ask_chunk(request, ref, partial(self._came, request))
                event = yield
                if isinstance(event, tuple):
                    self._take(ref, part, pull, *event)
            try:
                return part.finish()
            except DataValueError as error:
                raise _damaged(ref, "content with another hash") from error
        except (SapwoodError, OSError):
            part.abandon()
            raise

    def _came(self, request: ChunkRequest[int], answer: ev.Answered) -> None:
        if self._ended:
            return
        if answer.error is not None:
            self.resume((request, SapwoodError.from_record(answer.error)))
        else:
            payload = answer.payload
            self.resume((request, b"" if payload is None else bytes(payload.view)))

    def _take(
        self,
        ref: ContentRef,
        part: PartialContent,
        pull: Pull[int],
        request: ChunkRequest[int],
        data: bytes | SapwoodError,
    ) -> None:
        """Write a chunk, or request it from the next source."""
        if isinstance(data, bytes) and len(data) != request.nbytes:
            data = _damaged(ref, f"a chunk of {len(data)} bytes")
        if isinstance(data, SapwoodError):
            if not pull.failed(request):
                raise data
            return
        for chunk in pull.received(request, data):
            part.append(chunk)
            self._on_written()


_Event = tuple[ChunkRequest[int], bytes | SapwoodError] | ev.Answered | None
"""What a fetch waits for: a chunk or its error, the answer with a name, or the end of a pause."""

_T = TypeVar("_T")
_Steps = Generator[None, _Event, _T]


def _share(fd: int) -> bool:
    """Lock content that is whole now; False if it is being removed again in this moment."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _damaged(ref: ContentRef, what: str) -> DataValueError:
    return DataValueError(
        f"content from the client is damaged: {what} came instead",
        where=f"{ref.sha256} of {ref.nbytes} bytes, fetched {ATTEMPTS} times",
        hint="do not write to a program's libraries or to a data file during a run",
    )
