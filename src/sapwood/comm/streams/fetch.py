"""Fetches: the flow control of large arrays, fetched in pieces from their owner. No I/O.

Where a link cannot share memory, a large array stays with its sender, who advertises its size.
A receiver fetches it: it sends a ``Draw`` for the next bytes whenever half of a window has
arrived, and so decides how much is under way (back-pressure). A sender answers each ``Draw`` with
the pieces that it names and remembers nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sapwood.comm import events as ev
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.core.errors import ProtocolError
from sapwood.core.rankset import Ranges

WINDOW_PIECES = 16
"""Pieces that are asked for and have not arrived: at most 4 MiB, wherever they are meanwhile."""

SMALLEST_PIECE = 64
"""Bytes: pieces begin at multiples of this, so that no element of an array is divided."""


class Sink(Protocol):
    """What becomes of bytes that were fetched."""

    def arrived(self, fetch: Fetch, start: int, view: memoryview) -> Effects:
        """Take the next bytes in."""


class Fetch:
    """Bytes that are being fetched from a neighbour.

    Args:
        number: Names it on the link.
        source: The neighbour.
        stream: The stream and the wave that it belongs to.
        ranks: Whose contribution it is; empty for the value of a wave.
        size: Bytes in all.
        sink: Where they go.
        start: Where to begin.

    Attributes:
        position: Bytes up to which all have arrived.
        asked: Bytes up to which they were asked for.
        piece: Bytes of a piece.
    """

    __slots__ = (
        "asked",
        "number",
        "piece",
        "position",
        "ranks",
        "sink",
        "size",
        "source",
        "stream",
        "wave",
    )

    def __init__(
        self,
        number: int,
        source: int,
        stream: tuple[int, int],
        ranks: Ranges,
        size: int,
        sink: Sink,
        start: int,
        piece: int,
    ) -> None:
        self.number = number
        self.source = source
        self.stream, self.wave = stream
        self.ranks = ranks
        self.size = size
        self.sink = sink
        self.position = self.asked = start
        self.piece = piece


class Fetches:
    """What one place fetches from its neighbours at present.

    Args:
        near: The neighbours.

    Attributes:
        touched: Whether there may be something large of a wave that is not over.
    """

    def __init__(self, near: PeerTable) -> None:
        self.touched = False
        self._near = near
        self._under_way: dict[int, Fetch] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._under_way)

    def has(self, stream: int) -> bool:
        """Whether something of a stream is being fetched."""
        return any(fetch.stream == stream for fetch in self._under_way.values())

    def fetches(self) -> tuple[Fetch, ...]:
        """Return what is being fetched."""
        return tuple(self._under_way.values())

    def begin(
        self,
        source: int,
        stream: tuple[int, int],
        ranks: Ranges,
        size: int,
        sink: Sink,
        *,
        start: int = 0,
        piece: int = 0,
    ) -> Fetch:
        """Begin to fetch from a neighbour; nothing is asked for yet."""
        piece = piece or self._near.timing.piece
        fetch = Fetch(self._next, source, stream, ranks, size, sink, start, piece)
        self._under_way[self._next] = fetch
        self.touched = True
        self._next += 1
        return fetch

    def ask(self, fetch: Fetch, stop: int) -> Effects:
        """Ask for the bytes up to ``stop``, as far as they were not asked for."""
        start, fetch.asked = fetch.asked, max(fetch.asked, min(stop, fetch.size))
        if fetch.asked == start:
            return []
        draw = Draw(
            fetch.stream, fetch.wave, fetch.ranks, fetch.number, start, fetch.asked, fetch.piece
        )
        return [ev.Transmit(self._near.links_to((fetch.source,)), draw)]

    def more(self, fetch: Fetch, done: int) -> Effects:
        """Ask for more when half of the window has been dealt with."""
        window = WINDOW_PIECES * fetch.piece
        return self.ask(fetch, done + window) if fetch.asked - done <= window // 2 else []

    def on_piece(self, link: Link, message: Piece, payload: Payload | None) -> Effects:
        """Handle bytes that have arrived; bytes of a cancelled fetch are dropped.

        Raises:
            ProtocolError: They are not those that were asked for.
        """
        fetch = self._under_way.get(message.number)
        if fetch is None or fetch.source != link.rank:
            return []
        start, size = message.start, payload.nbytes if payload is not None else 0
        if payload is None or start != fetch.position or start + size > fetch.asked:
            raise ProtocolError(f"rank {link.rank} sends bytes that were not requested")
        fetch.position += size
        return fetch.sink.arrived(fetch, start, payload.view)

    def is_open(self, fetch: Fetch) -> bool:
        """Whether bytes of it may still come."""
        return self._under_way.get(fetch.number) is fetch

    def end(self, fetch: Fetch) -> None:
        """Take no more of it."""
        self._under_way.pop(fetch.number, None)

    def end_of(self, source: int) -> None:
        """A neighbour is gone, or another place now."""
        self._end([fetch for fetch in self._under_way.values() if fetch.source == source])

    def end_values(self) -> None:
        """The parent is gone, or another place now."""
        self._end([fetch for fetch in self._under_way.values() if not fetch.ranks])

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over."""
        fetches = self._under_way.values()
        self._end([one for one in fetches if one.stream == stream and is_over(one.wave)])

    def _end(self, fetches: list[Fetch]) -> None:
        for fetch in fetches:
            self.end(fetch)


class Assembly:
    """A whole payload that is put together from its pieces.

    No room is made for what has only been announced.

    Args:
        fetches: What this place fetches.
        done: Called with it when it is whole.
    """

    __slots__ = ("_done", "_fetches", "_whole")

    def __init__(self, fetches: Fetches, done: Callable[[Payload], Effects]) -> None:
        self._fetches = fetches
        self._whole = bytearray()
        self._done = done

    def arrived(self, fetch: Fetch, _start: int, view: memoryview) -> Effects:
        """Take the next bytes in, and ask for more."""
        self._whole += view
        if fetch.position < fetch.size:
            return self._fetches.more(fetch, fetch.position)
        self._fetches.end(fetch)
        return self._done(Payload(self._whole))


def chunks_of(link: Link, message: Draw, payload: Payload) -> Effects:
    """Return the bytes that a draw asks for, in pieces.

    Raises:
        ProtocolError: They are not there, or too many pieces at a time.
    """
    check_fetch(link, message, payload.nbytes)
    effects: Effects = []
    for start in range(message.start, message.stop, message.piece):
        part = payload.part(start, min(start + message.piece, message.stop))
        piece = Piece(message.stream, message.wave, message.number, start)
        effects.append(ev.Transmit((link.number,), piece, part))
    return effects


def check_fetch(link: Link, message: Draw, size: int) -> None:
    """Raise ProtocolError where a draw asks for what cannot be."""
    start, stop, piece = message.start, message.stop, message.piece
    if not (
        0 <= start < stop <= size
        and piece >= SMALLEST_PIECE
        and piece % SMALLEST_PIECE == 0
        and stop - start <= WINDOW_PIECES * piece
    ):
        raise ProtocolError(f"rank {link.rank} fetches bytes {start} to {stop} of {size}")


def too_large(near: PeerTable, message: Offer | Announced, link: Link) -> str:
    """Say why a size is not acceptable; nothing if it is.

    Raises:
        ProtocolError: It is not a size.
    """
    if message.size <= 0:
        raise ProtocolError(f"rank {link.rank} offers {message.size} bytes")
    limit = near.timing.max_payload
    if message.size > limit:
        return f"arrays of {message.size} bytes are over the limit of {limit} (comm.max_message)"
    return ""
