"""Passes content on to machines below: a junction fetches it once, for its node and for them.

Chunks are passed on while the rest still arrives, whichever process of the node fetches it: the
partial file says how much of it is there. A place below that gets no answer asks further up, from
the byte at which it is.

The folder of the node has the content of all sessions of its user. A junction passes on only
content that the root of its session offers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import plain
from sapwood.comm.loop import Timer
from sapwood.comm.payload import Payload
from sapwood.content.fetch import PAUSE, ContentCache, ContentFetch, HeldContent
from sapwood.content.pull import ChunkRequest
from sapwood.content.refs import ContentChunk, ContentRef, WantedChunk
from sapwood.content.serving import SendQueue
from sapwood.core import typed
from sapwood.core.errors import ClosedError, ProtocolError, SapwoodError
from sapwood.core.topology import ROOT

IDLE: Final = 10.0
"""Seconds for which unused content is held."""

MAX_AWAITED: Final = 4096
"""Chunks that places wait for and that have not arrived at this junction yet."""

_OFFERED = 0  # bytes of a chunk by which the root is asked whether it offers the content


class _Chunk(msgspec.Struct, frozen=True):
    """A requested chunk."""

    asked: ev.Asked
    offset: int
    nbytes: int


class _Passed:
    """One piece of content, and who waits for parts of it.

    Attributes:
        offered: Whether the root has said that it offers the content.
        awaited: Requested chunks that are not here.
        queued: How many wait for their turn.
    """

    def __init__(self, ref: ContentRef, used: float) -> None:
        self.ref = ref
        self.offered = False
        self.fetch: ContentFetch | None = None
        self.held: HeldContent | None = None
        self.awaited: list[_Chunk] = []
        self.queued = 0
        self.used = used

    def close(self) -> None:
        if self.fetch is not None:
            self.fetch.cancel()
        if self.held is not None:
            self.held.close()


class ContentRelay:
    """What a junction does for machines below it.

    Args:
        cache: The content folder of its node.
        answer: Answers a request with bytes.
        fail: Answers a request with an error.

    Attributes:
        passed: Bytes that were passed on.
    """

    def __init__(
        self,
        cache: ContentCache,
        answer: Callable[[ev.Asked, Payload], None],
        fail: Callable[[ev.Asked, SapwoodError], None],
    ) -> None:
        self._cache = cache
        self._answer = answer
        self._fail = fail
        self._content: dict[str, _Passed] = {}
        self._queue: SendQueue[tuple[_Passed, _Chunk]] = SendQueue()
        self._timer: Timer | None = None
        self._looks_soon = False
        self.passed = 0

    def asked(self, asked: ev.Asked) -> None:
        """Pass a chunk on, when it is here.

        Raises:
            ProtocolError: The request is malformed, or there are too many.
        """
        ref, chunk = _read(asked)
        if sum(len(one.awaited) for one in self._content.values()) >= MAX_AWAITED:
            raise ProtocolError(f"more than {MAX_AWAITED} requests for content wait here")
        one = self._content.get(ref.sha256)
        if one is not None and one.ref.nbytes != ref.nbytes:
            raise ProtocolError(f"content of {one.ref.nbytes} bytes, not {ref.nbytes}")
        begins = one is None
        if one is None:
            one = self._content[ref.sha256] = _Passed(ref, self._cache.loop.time())
        one.awaited.append(chunk)
        if begins:
            self._begin(one)
        self._serve()

    def close(self) -> None:
        """Pass nothing on any more."""
        if self._timer is not None:
            self._timer.cancel()
        for one in self._content.values():
            one.close()
        self._content.clear()

    def _begin(self, one: _Passed) -> None:
        """Have content fetched, and ask whether it may be passed on."""
        ended = False

        def done(held: HeldContent) -> None:
            nonlocal ended
            ended = True
            one.fetch, one.held = None, held
            if self._content.get(one.ref.sha256) is not one:
                held.close()
            self._serve()

        def failed(error: SapwoodError) -> None:
            nonlocal ended
            ended = True
            one.fetch = None
            self._refuse(one, error)

        def answered(answer: ev.Answered) -> None:
            if answer.error is not None:
                self._refuse(one, SapwoodError.from_record(answer.error))
            else:
                one.offered = True
                self._serve()

        self._cache.ask_chunk(ChunkRequest(ROOT, 0, _OFFERED), one.ref, answered)
        fetch = self._cache.fetch([one.ref], done, failed, self._serve)
        if not ended:
            one.fetch = fetch

    def _refuse(self, one: _Passed, error: SapwoodError) -> None:
        self._forget(one)
        awaited, one.awaited = one.awaited, []
        for chunk in awaited:
            self._fail(chunk.asked, error)

    def _forget(self, one: _Passed) -> None:
        if self._content.get(one.ref.sha256) is one:
            del self._content[one.ref.sha256]
        one.close()

    def _serve(self) -> None:
        """Answer what can be answered; look again soon if something is left."""
        now = self._cache.loop.time()
        for one in list(self._content.values()):
            self._queue_arrived(one)
            if not (one.awaited or one.queued) and now - one.used > IDLE:
                self._forget(one)
        while (ready := self._queue.next()) is not None:
            source, (one, chunk), nbytes = ready
            self._send(source, one, chunk, nbytes)
        if self._content and self._timer is None:
            waits = any(one.awaited for one in self._content.values())
            self._timer = self._cache.loop.call_later(PAUSE if waits else IDLE, self._look)

    def _look(self) -> None:
        self._timer = None
        self._serve()

    def _queue_arrived(self, one: _Passed) -> None:
        """Queue the chunks that are here."""
        if not (one.awaited and one.offered):
            return
        arrived = self._cache.store.arrived(one.ref.sha256, one.ref.nbytes) or 0
        awaited, one.awaited = one.awaited, []
        for chunk in awaited:
            if chunk.offset + chunk.nbytes > arrived:
                one.awaited.append(chunk)
                continue
            try:
                self._queue.add(chunk.asked.source, (one, chunk), chunk.nbytes)
            except SapwoodError as error:
                self._fail(chunk.asked, error)
            else:
                one.queued += 1

    def _send(self, source: int, one: _Passed, chunk: _Chunk, nbytes: int) -> None:
        one.queued -= 1
        if self._content.get(one.ref.sha256) is not one:
            self._queue.taken(source, nbytes)
            self._fail(chunk.asked, ClosedError("this content is not here any more"))
            return
        ref = one.ref
        data = self._cache.store.read(ref.sha256, ref.nbytes, chunk.offset, nbytes) or b""
        if len(data) != nbytes:  # the process that fetched it gave up meanwhile
            self._queue.taken(source, nbytes)
            one.awaited.append(chunk)
            return
        one.used = self._cache.loop.time()
        self.passed += nbytes
        owner = ContentChunk(partial(self._taken, source, nbytes))
        self._answer(chunk.asked, Payload(data, owner=owner))

    def _taken(self, source: int, nbytes: int) -> None:
        self._queue.taken(source, nbytes)
        if not self._looks_soon:
            self._looks_soon = True
            self._cache.loop.call_later(0.0, self._look_soon)

    def _look_soon(self) -> None:
        self._looks_soon = False
        self._serve()


def _read(asked: ev.Asked) -> tuple[ContentRef, _Chunk]:
    """Return what is requested.

    Raises:
        ProtocolError: The request is malformed.
    """
    try:
        wanted = typed.convert(plain.decode(asked.body), WantedChunk)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"malformed request for content: {error}") from error
    wanted.check()
    return ContentRef(wanted.sha256, wanted.size), _Chunk(asked, wanted.offset, wanted.nbytes)
