"""The streams of one place: who takes which event and which message."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.emissions import Taken
from sapwood.comm.messages.pieces import Piece
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.emissions import Emissions
from sapwood.comm.streams.opening import Life, Opening
from sapwood.comm.streams.parameters import Parameters
from sapwood.comm.streams.stream import Position, Stream
from sapwood.comm.streams.sweeps import Sweeps
from sapwood.comm.streams.wave import NewGathering
from sapwood.comm.streams.waves import Waves
from sapwood.core.errors import ProtocolError

OnEvent = Callable[[float, Any], Effects]
OnMessage = Callable[[Link, Any, Payload | None], Effects]


class Streams:
    """The open streams of one place.

    Args:
        near: The neighbours.
        gather: Makes what puts contributions together.
        is_agent: Whether this place is a leaf.
        depth: Levels between this place and the root.

    Attributes:
        open: The streams by number.
        large: Large arrays on their way.
    """

    def __init__(
        self, near: PeerTable, gather: NewGathering, *, is_agent: bool, depth: int = 0
    ) -> None:
        self.open: dict[int, Stream] = {}
        position = Position(near.rank, depth)
        sweeps = self._sweeps = Sweeps(near, self._has_large, self._moving, is_agent=is_agent)
        emissions = self._emissions = Emissions(near, self.open, sweeps.sent_arrived)
        self._waves = Waves(near, self.open, emissions, is_agent=is_agent)
        self.large = self._waves.large
        life = Life(sweeps.follow, emissions.again, self._ended)
        self._opening = Opening(near, self.open, gather, position, life)
        self._parameters = Parameters(near, self.open)

    def events(self) -> dict[type[ev.Event], OnEvent]:
        """Return who takes which event."""
        opening, waves = self._opening, self._waves
        return {
            ev.OpenStream: opening.open_stream,
            ev.CloseStream: opening.close_stream,
            ev.Broadcast: waves.broadcast,
            ev.WavesPassed: waves.passed,
            ev.Contribute: waves.contribute,
            ev.Emit: self._emissions.emit,
            ev.Read: self._emissions.read,
            ev.Fail: waves.fail,
            ev.TimeUp: waves.time_up,
            ev.Filtered: waves.filtered,
            ev.ConfigureStream: self._parameters.configure,
            ev.SweepStream: self._sweep,
        }

    def messages(self) -> dict[type[Any], OnMessage]:
        """Return who takes which message."""
        opening, waves = self._opening, self._waves
        return {
            msg.Open: opening.on_open,
            msg.Close: opening.on_close,
            msg.OpenStreams: opening.on_open_streams,
            msg.Down: waves.on_down,
            msg.Up: waves.on_up,
            msg.Failed: waves.failures.on_failed,
            msg.Abandon: waves.failures.on_abandon,
            msg.Without: waves.losses.on_without,
            **self.large.on_message,
            Piece: self._on_piece,
            msg.Configure: self._parameters.on_configure,
            Taken: self._emissions.on_taken,
            msg.Sweep: self._on_sweep,
            msg.Swept: self._on_swept,
        }

    def child_came(self, rank: int, *, fresh: bool) -> Effects:
        """A place was attached to this one."""
        return self._opening.child_came(rank, fresh=fresh)

    def child_left(self, child: int, *, lost: bool) -> Effects:
        """A child will not answer any more."""
        effects: Effects = []
        for stream in list(self.open.values()):
            effects += self._sweeps.child_lost(stream, child)
            effects += self._waves.asking.child_left(stream, child, lost=lost)
        return effects + self.large.child_left(child)

    def places_came(self, ranks: Sequence[int]) -> Effects:
        """Places can be reached below this one."""
        effects: Effects = []
        for stream in list(self.open.values()):
            effects += self._waves.asking.places_came(stream, ranks)
        return effects

    def parent_changed(self) -> None:
        """What the former parent asked for is not to be answered any more."""
        self._opening.parent_changed()
        self.large.parent_changed()
        for stream in self.open.values():
            self._waves.asking.parent_changed(stream)
            self._emissions.parent_changed(stream)
            self._sweeps.parent_changed(stream)

    def agents_lost(self, ranks: Iterable[int], reason: str) -> Effects:
        """Root: places are gone, wherever they were."""
        effects: Effects = []
        for stream in list(self.open.values()):
            effects += self._waves.losses.agents_lost(stream, ranks, reason)
        return effects

    def tick(self) -> Effects:
        """Confirm what agents have sent of themselves; look for sweeps that may go on."""
        effects = self._emissions.tick()
        for stream in self.open.values():
            if stream.sweeps:
                effects += self._sweeps.look_again(stream)
        return effects

    def _has_large(self, stream: int) -> bool:
        return self.large.is_moving(stream)

    def _on_piece(self, link: Link, message: Piece, payload: Payload | None) -> Effects:
        effects = self.large.on_message[Piece](link, message, payload)
        stream = self.open.get(message.stream)
        if stream is not None and stream.sweeps and not self.large.is_moving(message.stream):
            effects += self._sweeps.look_again(stream)
        return effects

    def _ended(self, stream: int) -> None:
        self.large.over(stream, lambda _wave: True)

    def _sweep(self, now: float, event: ev.SweepStream) -> Effects:
        stream = self.open.get(event.stream)
        if stream is None:
            raise ProtocolError("the stream is closed")
        message = msg.Sweep(event.stream, event.number, event.action)
        effects = self._sweeps.begin(now, stream, message)
        return effects + self._emissions.tell(stream) if stream.heard else effects

    def _on_sweep(self, link: Link, message: msg.Sweep, _payload: Any) -> Effects:
        return self._sweeps.arrived(link, self.open.get(message.stream), message)

    def _on_swept(self, link: Link, message: msg.Swept, _payload: Any) -> Effects:
        return self._sweeps.came_back(link, self.open.get(message.stream), message)

    def _moving(self, now: float, stream: Stream) -> Effects:
        """A stream is no longer quiet: do what had to wait."""
        detained, stream.detained = stream.detained, []
        effects = self._waves.asking.moves_again(stream)
        effects += self._emissions.moves_again(stream)
        table = self.events()
        for event in detained:
            effects += table[type(event)](now, event)
        return effects + self._waves.time_up(now, ev.TimeUp(stream.spec.stream))
