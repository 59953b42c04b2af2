"""Content that the client offers to places that see neither its memory nor its files.

Offers are counted: content is there until it was withdrawn as often as it was offered. Agents ask
for chunks of it by hash. Separate threads read and hash, so the event loop never waits for a
disk; they begin with the first request.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedRef, open_block
from sapwood.content.refs import (
    CHUNK,
    ContentChunk,
    ContentRef,
    FileStamp,
    WantedChunk,
    checked_sha256,
)
from sapwood.content.serving import SendQueue
from sapwood.core import typed
from sapwood.core.errors import ClosedError, DataMissingError, ProtocolError, ResourceError

MAX_COUNTED: Final = 10_000
"""Pieces of content for which a session remembers how many bytes it sent."""

MAX_NAMING: Final = 4096
"""Requests for the hashes of parts of files that wait."""

_PartKey = tuple[FileStamp, int, int]


class ContentRequest(Protocol):
    """A request of a place, to be answered once, from any thread."""

    @property
    def asked(self) -> ev.Asked:
        """The request."""

    def value(self) -> Any:
        """Return the argument."""

    def give(self, value: Any, payload: Payload | None) -> None:
        """Answer with a value without arrays, and bytes beside it."""

    def answered_with_errors(self) -> AbstractContextManager[None]:
        """Answer with what is raised inside."""


class _OpenSource:
    """A descriptor that offers share; closed by the last."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0


class _Offer:
    """Bytes of a source, by whichever names they are known."""

    def __init__(
        self, source: _OpenSource, offset: int, nbytes: int, stamp: FileStamp | None, sha256: str
    ) -> None:
        self.source = source
        self.offset = offset
        self.nbytes = nbytes
        self.stamp = stamp
        self.sha256 = sha256
        self.count = 0


class _Chunk(msgspec.Struct, frozen=True):
    """A requested chunk of an offer."""

    request: ContentRequest
    wanted: WantedChunk


class ContentOffers:
    """What a client offers, by its hash.

    All methods may be called from any thread. Offered files are held open: a file that is removed
    meanwhile is still sent.

    Attributes:
        sent: Bytes that were sent, by SHA-256.

    Example:
        >>> offers = ContentOffers()
        >>> ref = offers.offer(b"abc")
        >>> ref.sha256[:8], ref.nbytes
        ('ba7816bf', 3)
        >>> offers.withdraw(ref)
        >>> len(offers)
        0
    """

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._sources: dict[tuple[int, int], _OpenSource] = {}
        self._named: dict[str, _Offer] = {}
        self._parts: dict[_PartKey, _Offer] = {}
        self._queue: SendQueue[_Chunk] = SendQueue()
        self._naming = 0
        self._closed = False
        self._reader = ThreadPoolExecutor(1, "sapwood-content")
        self._namer = ThreadPoolExecutor(1, "sapwood-content-names")

    def __len__(self) -> int:
        with self._lock:
            return len(self._named) + len(self._parts)

    # --- offering ------------------------------------------------------------------------------

    def offer(self, data: bytes | bytearray | memoryview, sha256: str = "") -> ContentRef:
        """Offer bytes, of which a copy is made.

        Args:
            data: The bytes.
            sha256: Their hash, if it is known.
        """
        fd = os.memfd_create("sapwood-content", os.MFD_CLOEXEC)
        try:
            view, done = memoryview(data).cast("B"), 0
            while done < len(view):
                done += os.write(fd, view[done:])
            return self._add(fd, 0, len(view), None, sha256 or hashlib.sha256(view).hexdigest())
        finally:
            os.close(fd)

    def offer_memory(self, memory: SharedRef) -> ContentRef:
        """Offer shared memory of this process, which must not change meanwhile.

        Raises:
            ProtocolError: It is another process's, or gone.
        """
        fd = _opened_memory(memory)
        try:
            sha256 = _hash_of(fd, memory.offset, memory.nbytes)
            return self._add(fd, memory.offset, memory.nbytes, None, sha256)
        finally:
            os.close(fd)

    def offer_memory_of(self, memory: SharedRef, sha256: str) -> ContentRef:
        """Offer shared memory of another process of this machine, which must not change meanwhile.

        Args:
            memory: Where it lies; the process may end.
            sha256: The hash of what is in it.

        Raises:
            ProtocolError: It is gone.
        """
        fd = open_block(memory, os.O_RDONLY)
        try:
            return self._add(fd, memory.offset, memory.nbytes, None, checked_sha256(sha256))
        finally:
            os.close(fd)

    def offer_file(
        self, stamp: FileStamp, offset: int = 0, nbytes: int | None = None, sha256: str = ""
    ) -> ContentRef:
        """Offer a file, or a part of it; places that see the same file are to use that.

        Args:
            stamp: The file as its content was.
            offset: Where the part begins.
            nbytes: How long it is; by default as long as the file.
            sha256: Its hash, if it is known. Else it is found out when the first agent asks.

        Raises:
            DataMissingError: The file is gone, cannot be read or has changed.
        """
        length = stamp.size - offset if nbytes is None else nbytes
        fd = _opened_file(stamp)
        try:
            return self._add(fd, offset, length, stamp, sha256)
        finally:
            os.close(fd)

    def withdraw(self, ref: ContentRef) -> None:
        """Offer something once less."""
        with self._lock:
            offer = self._find(ref)
            if offer is None:
                return
            offer.count -= 1
            if not offer.count:
                self._forget(offer)

    def read(self, ref: ContentRef) -> bytes:
        """Return what is offered, as a whole.

        Raises:
            DataMissingError: It is not offered, or has changed.
        """
        with self._lock:
            offer = self._find(ref)
            if offer is None:
                raise DataMissingError("content is not offered any more", where=ref.sha256[:16])
            return _read(offer, 0, offer.nbytes)

    def close(self) -> None:
        """Withdraw everything and end the threads."""
        with self._lock:
            self._closed = True
            for offer in {*self._named.values(), *self._parts.values()}:
                self._forget(offer)
            waiting = self._queue.clear()
        for chunk in waiting:
            self._answering(chunk.request, _refuse)
        self._reader.shutdown()
        self._namer.shutdown()

    def _add(
        self, fd: int, offset: int, nbytes: int, stamp: FileStamp | None, sha256: str
    ) -> ContentRef:
        """Note an offer; the descriptor stays the caller's."""
        ref = ContentRef(sha256, nbytes, stamp, offset)
        status = os.fstat(fd)
        with self._lock:
            if self._closed:
                raise ClosedError("the cluster was closed")
            offer = self._find(ref)
            if offer is None:
                source = self._sources.get((status.st_dev, status.st_ino))
                if source is None:
                    source = _OpenSource(os.dup(fd))
                    self._sources[status.st_dev, status.st_ino] = source
                source.users += 1
                offer = _Offer(source, offset, nbytes, stamp, sha256)
                if sha256:
                    self._named[sha256] = offer
                else:
                    self._parts[_part_key(ref)] = offer
            offer.count += 1
        return ref

    def _find(self, ref: ContentRef) -> _Offer | None:
        return self._named.get(ref.sha256) if ref.sha256 else self._parts.get(_part_key(ref))

    def _forget(self, offer: _Offer) -> None:
        self._named = {key: one for key, one in self._named.items() if one is not offer}
        self._parts = {key: one for key, one in self._parts.items() if one is not offer}
        for part in self._parts.values():
            if part.sha256 and part.sha256 == offer.sha256:
                self._named[part.sha256] = part  # the same bytes are still offered as this
        self._let_go(offer.source)

    def _let_go(self, source: _OpenSource) -> None:
        source.users -= 1
        if not source.users:
            self._sources = {key: one for key, one in self._sources.items() if one is not source}
            os.close(source.fd)

    # --- answering -----------------------------------------------------------------------------

    def asked_for_chunk(self, request: ContentRequest) -> None:
        """Answer ``[sha256, size, offset, nbytes]`` with that chunk, soon."""
        self._answering(request, self._chunk_asked)

    def asked_for_name(self, request: ContentRequest) -> None:
        """Answer ``[file, offset, nbytes]`` with the SHA-256 of that part of a file, soon."""
        self._answering(request, self._name_asked)

    def _name_asked(self, request: ContentRequest) -> None:
        with self._lock:
            if self._naming >= MAX_NAMING:
                raise ResourceError(f"more than {MAX_NAMING} requests for hashes wait")
            if not self._closed:
                self._naming += 1
                self._namer.submit(self._answering, request, self._name)

    def _answering(self, request: ContentRequest, answer: Callable[[ContentRequest], None]) -> None:
        with request.answered_with_errors():
            answer(request)

    def _chunk_asked(self, request: ContentRequest) -> None:
        wanted = typed.convert(request.value(), WantedChunk)
        wanted.check(least=0)
        with self._lock:
            offer = self._offered(self._named.get(wanted.sha256))
            if wanted.size != offer.nbytes:
                raise ProtocolError(f"content of {offer.nbytes} bytes, not {wanted.size}")
            if wanted.nbytes:
                self._queue.add(request.asked.source, _Chunk(request, wanted), wanted.nbytes)
                self._send_next()
        if not wanted.nbytes:
            request.give(None, None)

    def _send_next(self) -> None:
        """Have chunks read whose turn it is; with the lock held."""
        while not self._closed and (ready := self._queue.next()) is not None:
            source, chunk, _ = ready
            send = partial(self._send, source, chunk)
            self._reader.submit(self._answering, chunk.request, send)

    def _send(self, source: int, chunk: _Chunk, request: ContentRequest) -> None:
        wanted = chunk.wanted
        owner = ContentChunk(partial(self._taken, source, wanted.nbytes))
        try:
            with self._reading(lambda: self._named.get(wanted.sha256)) as offer:
                data = _read(offer, wanted.offset, wanted.nbytes)
        except BaseException:
            owner.taken()
            raise
        with self._lock:
            if len(self.sent) >= MAX_COUNTED and wanted.sha256 not in self.sent:
                self.sent.clear()
            self.sent[wanted.sha256] += wanted.nbytes
        request.give(None, Payload(data, owner=owner))

    def _name(self, request: ContentRequest) -> None:
        with self._lock:
            self._naming -= 1
        stamp, offset, nbytes = typed.convert(request.value(), tuple[FileStamp, int, int])
        with self._reading(lambda: self._parts.get((stamp, offset, nbytes))) as offer:
            sha256 = offer.sha256
            if not sha256:
                sha256 = _hash_of(offer.source.fd, offset, nbytes, lambda: self._closed)
                _must_be_unchanged(offer)
            with self._lock:
                offer.sha256 = sha256
                if offer.count:
                    self._named.setdefault(sha256, offer)
            request.give(sha256, None)

    @contextlib.contextmanager
    def _reading(self, find: Callable[[], _Offer | None]) -> Iterator[_Offer]:
        """Hold what is offered while it is read."""
        with self._lock:
            offer = self._offered(find())
            offer.source.users += 1
        try:
            yield offer
        finally:
            with self._lock:
                self._let_go(offer.source)

    def _offered(self, offer: _Offer | None) -> _Offer:
        """Return an offer; with the lock held.

        Raises:
            ClosedError: There is none any more.
        """
        if self._closed or offer is None:
            raise ClosedError(
                "the client does not offer this content any more",
                hint="what needed it has ended meanwhile",
            )
        return offer

    def _taken(self, source: int, nbytes: int) -> None:
        with self._lock:
            self._queue.taken(source, nbytes)
            self._send_next()


def _refuse(_request: ContentRequest) -> None:
    raise ClosedError("the cluster was closed")


def _part_key(ref: ContentRef) -> _PartKey:
    if ref.file is None:
        raise ProtocolError("content has neither a hash nor a file")
    return ref.file, ref.offset, ref.nbytes


def hash_of_memory(memory: SharedRef) -> str:
    """Return the SHA-256 of shared memory of this process.

    Raises:
        ProtocolError: It is another process's, or gone.
    """
    fd = _opened_memory(memory)
    try:
        return _hash_of(fd, memory.offset, memory.nbytes)
    finally:
        os.close(fd)


def _opened_memory(memory: SharedRef) -> int:
    try:
        if memory.pid == os.getpid() and os.fstat(memory.fd).st_ino == memory.inode:
            return os.dup(memory.fd)
    except OSError:
        pass
    raise ProtocolError("the memory of content is not this process's")


def _opened_file(stamp: FileStamp) -> int:
    where = os.fsdecode(stamp.path)
    try:
        fd = os.open(stamp.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DataMissingError(
            f"a file that agents need cannot be opened: {error.strerror}",
            where=where,
            hint="keep the file until the run is done",
        ) from error
    status = os.fstat(fd)
    if (status.st_size, status.st_mtime_ns) != (stamp.size, stamp.mtime_ns):
        os.close(fd)
        raise _changed(where)
    return fd


def _changed(where: str) -> DataMissingError:
    return DataMissingError(
        "a data file has changed since the dataset was loaded",
        where=where,
        hint="load it again, and do not write to it during a run",
    )


def _must_be_unchanged(offer: _Offer) -> None:
    stamp = offer.stamp
    if stamp is not None:
        status = os.fstat(offer.source.fd)
        if (status.st_size, status.st_mtime_ns) != (stamp.size, stamp.mtime_ns):
            raise _changed(os.fsdecode(stamp.path))


def _read(offer: _Offer, offset: int, nbytes: int) -> bytes:
    _must_be_unchanged(offer)
    parts, missing = [], nbytes
    while missing:
        part = os.pread(offer.source.fd, missing, offer.offset + offset + nbytes - missing)
        if not part:
            raise _changed(os.fsdecode(offer.stamp.path) if offer.stamp else "memory")
        parts.append(part)
        missing -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _hash_of(fd: int, offset: int, nbytes: int, ended: Callable[[], bool] = bool) -> str:
    """Return the SHA-256 of a part of a file, up to where the file ends."""
    hasher = hashlib.sha256()
    buffer = memoryview(bytearray(min(CHUNK, nbytes)))
    end = offset + nbytes
    while offset < end:
        if ended():
            raise ClosedError("the cluster was closed")
        count = os.preadv(fd, [buffer[: min(len(buffer), end - offset)]], offset)
        if not count:
            break
        hasher.update(buffer[:count])
        offset += count
    return hasher.hexdigest()
