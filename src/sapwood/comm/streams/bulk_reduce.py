"""Chunked reduce: large contributions are fetched from children and reduced chunk by chunk. No I/O.

A place holds no more of them than the window of whoever wants the result: the root, which has it
as a whole, or a place that shares memory with its parent, and so gives it that way.
"""

from __future__ import annotations

from collections.abc import Callable

from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Draw, Piece
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.fetch import Assembly, Fetch, Fetches, check_fetch
from sapwood.comm.streams.wave import Advertised, Chunk, ChunkedReduction
from sapwood.core.errors import ProtocolError

OnReduced = Callable[[bytearray], Effects]
OnDrawn = Callable[[Advertised, Payload], Effects]


class _ChunkedReduce:
    """Contributions that are fetched at the same time and put together piece by piece.

    Args:
        fetches: What this place fetches.
        stream: Numbers of the stream and the wave.
        sources: The contributions.
        reduction: How they are put together.
    """

    def __init__(
        self,
        fetches: Fetches,
        stream: tuple[int, int],
        sources: tuple[Advertised, ...],
        reduction: ChunkedReduction,
    ) -> None:
        self.sources = sources
        self.size = reduction.size
        self._fetches = fetches
        self._stream = stream
        self._reduction = reduction
        self._under_way: list[Fetch] = []
        self._weights: dict[int, float] = {}
        self._chunks: dict[int, Chunk] = {}

    def begin(self, piece: int = 0) -> None:
        """Begin to fetch from all of them."""
        self.stop()
        for one in self.sources:
            fetch = self._fetches.begin(
                one.child, self._stream, one.ranks, self.size, self, piece=piece
            )
            self._under_way.append(fetch)
            self._weights[fetch.number] = one.weight

    def ask(self, stop: int) -> Effects:
        """Ask all of them for the bytes up to ``stop``."""
        return [effect for fetch in self._under_way for effect in self._fetches.ask(fetch, stop)]

    def arrived(self, fetch: Fetch, start: int, view: memoryview) -> Effects:
        """Take the next bytes of one of them in; pass them on when all others are there."""
        chunk = self._chunks.get(start)
        if chunk is None:
            chunk = self._chunks[start] = self._reduction.chunk(start)
        chunk.add(view, self._weights[fetch.number])
        if chunk.count < len(self.sources):
            return []
        del self._chunks[start]
        return self._complete(start, chunk.view)

    def _complete(self, start: int, view: memoryview) -> Effects:
        raise NotImplementedError

    def stop(self) -> None:
        """Fetch no more, and forget what has come."""
        for fetch in self._under_way:
            self._fetches.end(fetch)
        self._under_way.clear()
        self._weights.clear()
        self._chunks.clear()


class BufferedReduce(_ChunkedReduce):
    """Keeps the result of contributions as a whole, and gives it away when it is complete."""

    def __init__(
        self,
        fetches: Fetches,
        stream: tuple[int, int],
        sources: tuple[Advertised, ...],
        reduction: ChunkedReduction,
        done: OnReduced,
    ) -> None:
        super().__init__(fetches, stream, sources, reduction)
        self._result = bytearray()
        self._done = done

    def start(self) -> Effects:
        """Begin to fetch."""
        self.begin()
        return [effect for fetch in self._under_way for effect in self._fetches.more(fetch, 0)]

    def _complete(self, start: int, view: memoryview) -> Effects:
        self._result += view  # pieces are complete in order
        stop = start + len(view)
        if stop < self.size:
            return [
                effect for fetch in self._under_way for effect in self._fetches.more(fetch, stop)
            ]
        self.stop()
        return self._done(self._result)


class PassThroughReduce(_ChunkedReduce):
    """Passes pieces of the result on to the parent, as that fetches them, and keeps nothing."""

    def __init__(
        self,
        near: PeerTable,
        fetches: Fetches,
        stream: tuple[int, int],
        sources: tuple[Advertised, ...],
        reduction: ChunkedReduction,
    ) -> None:
        super().__init__(fetches, stream, sources, reduction)
        self.body = reduction.body
        self._near = near
        self._number = 0

    def on_draw(self, link: Link, message: Draw) -> Effects:
        """Fetch as the parent does; a new number is a new beginning.

        Raises:
            ProtocolError: It does not begin at the beginning, or asks for what there is not.
        """
        check_fetch(link, message, self.size)
        if message.number != self._number:
            if message.start:
                raise ProtocolError("a draw begins in the middle of a contribution")
            self.begin(message.piece)
            self._number = message.number
        return self.ask(message.stop)

    def _complete(self, start: int, view: memoryview) -> Effects:
        piece = Piece(*self._stream, self._number, start)
        effects = self._near.to_parent(piece, Payload(view))
        if start + len(view) == self.size:
            self.stop()
        return effects

    def stop(self) -> None:
        """Fetch no more, and forget what has come."""
        super().stop()
        self._number = 0


class WholeFetches:
    """Fetches each contribution as a whole.

    Args:
        fetches: What this place fetches.
        stream: Numbers of the stream and the wave.
        sources: The contributions.
        done: Called with each.
    """

    def __init__(
        self,
        fetches: Fetches,
        stream: tuple[int, int],
        sources: tuple[Advertised, ...],
        done: OnDrawn,
    ) -> None:
        self.sources = sources
        self._fetches = fetches
        self._stream = stream
        self._done = done
        self._under_way: list[Fetch] = []

    def start(self) -> Effects:
        """Begin to fetch."""
        effects: Effects = []
        for one in self.sources:
            assembly = Assembly(self._fetches, self._whole(one))
            fetch = self._fetches.begin(one.child, self._stream, one.ranks, one.size, assembly)
            self._under_way.append(fetch)
            effects += self._fetches.more(fetch, 0)
        return effects

    def _whole(self, offer: Advertised) -> Callable[[Payload], Effects]:
        def done(payload: Payload) -> Effects:
            self.sources = tuple(one for one in self.sources if one is not offer)
            return self._done(offer, payload)

        return done

    def stop(self) -> None:
        """Fetch no more."""
        for fetch in self._under_way:
            self._fetches.end(fetch)
        self._under_way.clear()
