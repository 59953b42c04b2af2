"""Large arrays of streams at one place, made when the first one comes.

Most places never see an array that a link cannot share. What draws, offers and announces them
(``pieces.py``) is imported here, with the first of them, and nowhere else: agents start faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Offer, Piece, Retracted
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave

if TYPE_CHECKING:
    from sapwood.comm.streams.draws import Flow
    from sapwood.comm.streams.pieces import Host, Pieces

OnMessage = Callable[[Link, Any, Payload | None], Effects]


class Large:
    """Large arrays at one place, if there ever was one.

    Args:
        near: The neighbours.
        streams: The open streams.
        host: Goes on with waves.
        is_agent: Whether this place is a leaf.

    Attributes:
        pieces: What there is of them; None as long as there was none.
        on_message: Who takes which message.
    """

    def __init__(
        self, near: PeerTable, streams: dict[int, Stream], host: Host, *, is_agent: bool
    ) -> None:
        self.pieces: Pieces | None = None
        self._near = near
        self._open = streams
        self._host = host
        self._is_agent = is_agent
        kinds = (Offer, Retracted, Announced, Draw, Piece)
        self.on_message: dict[type[Any], OnMessage] = dict.fromkeys(kinds, self._take)

    def __len__(self) -> int:
        return len(self.pieces) if self.pieces is not None else 0

    def begun(self) -> Pieces:
        """Return what there is of large arrays, from now on."""
        if self.pieces is None:
            from sapwood.comm.streams.pieces import Pieces  # noqa: PLC0415 - as said above

            self.pieces = Pieces(self._near, self._open, self._host, is_agent=self._is_agent)
        return self.pieces

    def _take(self, link: Link, message: Any, payload: Payload | None) -> Effects:
        return self.begun().on_message[type(message)](link, message, payload)

    def announce(self, children: Collection[int], message: msg.Down, payload: Payload) -> Effects:
        """Tell children of a value that is theirs to draw."""
        return self.begun().forwarding.announce(children, message, payload)

    def full(self, stream: Stream, wave: Wave) -> Effects:
        """Put the large contributions to a wave together.

        Raises:
            SapwoodError: They do not fit together.
        """
        return self.begun().offers.full(stream, wave)

    def is_moving(self, stream: int) -> bool:
        """Whether arrays of a stream are on their way to this place."""
        return self.pieces is not None and self.pieces.is_moving(stream)

    def flows(self) -> tuple[Flow, ...]:
        """Return what is being drawn."""
        return self.pieces.flows() if self.pieces is not None else ()

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        return self.pieces.child_left(child) if self.pieces is not None else []

    def parent_changed(self) -> None:
        """The former parent draws no more, and nothing more comes from it."""
        if self.pieces is not None:
            self.pieces.parent_changed()

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over: nothing of them comes or goes any more."""
        if self.pieces is not None:
            self.pieces.over(stream, is_over)
