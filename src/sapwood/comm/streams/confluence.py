"""Large contributions on their way together: drawn from children, a piece at a time. No I/O.

A place holds no more of them than the window of whoever wants the result: the root, which has it
as a whole, or a place that shares memory with its parent, and so gives it that way.
"""

from __future__ import annotations

from collections.abc import Callable

from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Draw, Piece
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.draws import Assembly, Draws, Flow, must_be_sensible
from sapwood.comm.streams.offered import Blend, Offered, Strip
from sapwood.core.errors import ProtocolError

OnBlended = Callable[[bytearray], Effects]
OnDrawn = Callable[[Offered, Payload], Effects]


class _Together:
    """Contributions that are drawn at the same time and put together piece by piece.

    Args:
        draws: What this place draws.
        stream: Numbers of the stream and the wave.
        sources: The contributions.
        blend: How they are put together.
    """

    def __init__(
        self, draws: Draws, stream: tuple[int, int], sources: tuple[Offered, ...], blend: Blend
    ) -> None:
        self.sources = sources
        self.size = blend.size
        self._draws = draws
        self._stream = stream
        self._blend = blend
        self._flows: list[Flow] = []
        self._weights: dict[int, float] = {}
        self._strips: dict[int, Strip] = {}

    def begin(self, piece: int = 0) -> None:
        """Begin to draw from all of them."""
        self.stop()
        for one in self.sources:
            flow = self._draws.begin(
                one.child, self._stream, one.ranks, self.size, self, piece=piece
            )
            self._flows.append(flow)
            self._weights[flow.number] = one.weight

    def ask(self, stop: int) -> Effects:
        """Ask all of them for the bytes up to ``stop``."""
        return [effect for flow in self._flows for effect in self._draws.ask(flow, stop)]

    def arrived(self, flow: Flow, start: int, view: memoryview) -> Effects:
        """Take the next bytes of one of them in; pass them on when all others are there."""
        strip = self._strips.get(start)
        if strip is None:
            strip = self._strips[start] = self._blend.strip(start)
        strip.add(view, self._weights[flow.number])
        if strip.count < len(self.sources):
            return []
        del self._strips[start]
        return self._complete(start, strip.view)

    def _complete(self, start: int, view: memoryview) -> Effects:
        raise NotImplementedError

    def stop(self) -> None:
        """Draw no more, and forget what has come."""
        for flow in self._flows:
            self._draws.end(flow)
        self._flows.clear()
        self._weights.clear()
        self._strips.clear()


class Basin(_Together):
    """Keeps the result of contributions as a whole, and gives it away when it is complete."""

    def __init__(
        self,
        draws: Draws,
        stream: tuple[int, int],
        sources: tuple[Offered, ...],
        blend: Blend,
        done: OnBlended,
    ) -> None:
        super().__init__(draws, stream, sources, blend)
        self._result = bytearray()
        self._done = done

    def start(self) -> Effects:
        """Begin to draw."""
        self.begin()
        return [effect for flow in self._flows for effect in self._draws.more(flow, 0)]

    def _complete(self, start: int, view: memoryview) -> Effects:
        self._result += view  # pieces are complete in order
        stop = start + len(view)
        if stop < self.size:
            return [effect for flow in self._flows for effect in self._draws.more(flow, stop)]
        self.stop()
        return self._done(self._result)


class River(_Together):
    """Passes pieces of the result on to the parent, as that draws them, and keeps nothing."""

    def __init__(
        self,
        near: PeerTable,
        draws: Draws,
        stream: tuple[int, int],
        sources: tuple[Offered, ...],
        blend: Blend,
    ) -> None:
        super().__init__(draws, stream, sources, blend)
        self._near = near
        self._number = 0

    def drawn(self, link: Link, message: Draw) -> Effects:
        """Draw as the parent does; a new number is a new beginning.

        Raises:
            ProtocolError: It does not begin at the beginning, or asks for what there is not.
        """
        must_be_sensible(link, message, self.size)
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
        """Draw no more, and forget what has come."""
        super().stop()
        self._number = 0


class OneByOne:
    """Draws each contribution as a whole.

    Args:
        draws: What this place draws.
        stream: Numbers of the stream and the wave.
        sources: The contributions.
        done: Called with each.
    """

    def __init__(
        self, draws: Draws, stream: tuple[int, int], sources: tuple[Offered, ...], done: OnDrawn
    ) -> None:
        self.sources = sources
        self._draws = draws
        self._stream = stream
        self._done = done
        self._flows: list[Flow] = []

    def start(self) -> Effects:
        """Begin to draw."""
        effects: Effects = []
        for one in self.sources:
            assembly = Assembly(self._draws, self._whole(one))
            flow = self._draws.begin(one.child, self._stream, one.ranks, one.size, assembly)
            self._flows.append(flow)
            effects += self._draws.more(flow, 0)
        return effects

    def _whole(self, offer: Offered) -> Callable[[Payload], Effects]:
        def done(payload: Payload) -> Effects:
            self.sources = tuple(one for one in self.sources if one is not offer)
            return self._done(offer, payload)

        return done

    def stop(self) -> None:
        """Draw no more."""
        for flow in self._flows:
            self._draws.end(flow)
        self._flows.clear()
