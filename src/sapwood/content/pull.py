"""Which chunks of a piece of content are requested next, and from whom: decisions without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

import msgspec

from sapwood.content.refs import CHUNK
from sapwood.core.errors import invariant

WINDOW: Final = 4
"""Chunks of one piece of content that were requested and not written yet."""

S = TypeVar("S")


class ChunkRequest(msgspec.Struct, Generic[S], frozen=True):
    """A request for a chunk.

    Attributes:
        source: The place or node that is asked.
        offset: Where the chunk begins in the content.
        nbytes: Its size.
    """

    source: S
    offset: int
    nbytes: int


class Pull(Generic[S]):
    """One piece of content on its way here.

    A source that fails once is not asked again: its open requests go to the next one. Chunks may
    come in any order and are handed out in the order of the content, so a partial file grows from
    its beginning.

    Args:
        nbytes: Size of the content.
        offset: How many of its bytes are already here.
        sources: The places or nodes that may have it, the nearest first.

    Attributes:
        offset: How many bytes were handed out, or were here before.
        sources: The sources that did not fail.

    Example:
        >>> pull = Pull(3, 0, ["junction", "root"])
        >>> (first,) = pull.requests()
        >>> pull.failed(first)
        True
        >>> (second,) = pull.requests()
        >>> second.source, pull.received(second, b"abc"), pull.done
        ('root', [b'abc'], True)
    """

    def __init__(self, nbytes: int, offset: int, sources: Sequence[S]) -> None:
        self.nbytes = nbytes
        self.offset = offset
        self.sources = list(sources)
        self._next = offset
        self._again: list[ChunkRequest[S]] = []
        self._open: dict[int, ChunkRequest[S]] = {}
        self._early: dict[int, bytes] = {}

    @property
    def done(self) -> bool:
        """Whether all bytes were handed out."""
        return self.offset == self.nbytes

    def requests(self) -> list[ChunkRequest[S]]:
        """Return the requests that are to be sent now."""
        found, self._again = self._again, []
        while self._next < self.nbytes and len(self._open) + len(self._early) < WINDOW:
            count = min(CHUNK, self.nbytes - self._next)
            request = ChunkRequest(self.sources[0], self._next, count)
            self._open[request.offset] = request
            self._next += count
            found.append(request)
        self._check()
        return found

    def received(self, request: ChunkRequest[S], data: bytes) -> list[bytes]:
        """Return the chunks that are to be written now; none for an answer that came too late.

        Args:
            request: The answered request.
            data: The bytes, as many as were requested.
        """
        invariant(len(data) == request.nbytes, "a chunk has the requested size")
        if self._open.get(request.offset) is not request:
            return []
        del self._open[request.offset]
        self._early[request.offset] = data
        ready = []
        while (chunk := self._early.pop(self.offset, None)) is not None:
            ready.append(chunk)
            self.offset += len(chunk)
        self._check()
        return ready

    def failed(self, request: ChunkRequest[S]) -> bool:
        """Give up the source of a request; return whether another one is left.

        Other requests to the same source remain open until they are answered, or fail too.
        """
        if self._open.get(request.offset) is not request:
            return True
        if request.source in self.sources:
            self.sources.remove(request.source)
        if not self.sources:
            return False
        again = ChunkRequest(self.sources[0], request.offset, request.nbytes)
        self._open[request.offset] = again
        self._again.append(again)
        self._check()
        return True

    def _check(self) -> None:
        waiting = sorted([*self._open, *self._early])
        invariant(len(waiting) <= WINDOW, "no more chunks are under way than the window allows")
        invariant(self.offset <= self._next <= self.nbytes, "chunks are requested once, in order")
        invariant(
            self.offset in self._open or self.offset == self._next,
            "the next chunk that is to be written was requested",
        )
        invariant(
            all(one in self._open.values() for one in self._again),
            "only open requests are sent again",
        )
