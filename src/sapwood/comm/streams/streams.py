"""The streams of one place: dispatch of events and messages."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Piece
from sapwood.comm.messages.push import Taken
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.control import ControlOperations
from sapwood.comm.streams.engine import WaveEngine
from sapwood.comm.streams.filters import Position
from sapwood.comm.streams.opening import Opening
from sapwood.comm.streams.push import PushContributions
from sapwood.comm.streams.stream import NodeStream
from sapwood.comm.streams.wave import NewGathering
from sapwood.core.errors import ClosedError

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
        bulk: Large arrays on their way.
    """

    def __init__(
        self, near: PeerTable, gather: NewGathering, *, is_agent: bool, depth: int = 0
    ) -> None:
        self.open: dict[int, NodeStream] = {}
        position = Position(near.rank, depth)
        control = self._control = ControlOperations(
            near, self._has_large, self._moving, is_agent=is_agent
        )
        push = self._push = PushContributions(near, self.open, control.sent_arrived)
        self._engine = WaveEngine(near, self.open, push, is_agent=is_agent)
        self.bulk = self._engine.bulk
        self._opening = Opening(near, self.open, gather, position, control, push, self._engine)

    def events(self) -> dict[type[ev.Event], OnEvent]:
        """Return who takes which event."""
        opening, engine = self._opening, self._engine
        return {
            ev.OpenStream: opening.open_stream,
            ev.CloseStream: opening.close_stream,
            ev.Broadcast: engine.broadcast,
            ev.WavesPassed: engine.waves_passed,
            ev.Contribute: engine.contribute,
            ev.Emit: self._push.emit,
            ev.Read: self._push.read,
            ev.Fail: engine.fail,
            ev.TimeUp: engine.time_up,
            ev.Filtered: engine.filtered,
            ev.ConfigureStream: engine.configure,
            ev.SweepStream: self._sweep,
            ev.FilterStaged: self._staged,
        }

    def messages(self) -> dict[type[Any], OnMessage]:
        """Return who takes which message."""
        opening, engine = self._opening, self._engine
        return {
            msg.Open: opening.on_open,
            msg.Close: opening.on_close,
            msg.OpenStreams: opening.on_open_streams,
            msg.Down: engine.on_down,
            msg.Up: engine.on_up,
            msg.Failed: engine.on_failed,
            msg.Abandon: engine.on_abandon,
            msg.Without: engine.on_without,
            **self.bulk.on_message,
            Piece: self._on_piece,
            msg.Configure: engine.on_configure,
            Taken: self._push.on_taken,
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
            effects += self._control.child_lost(stream, child)
            effects += stream.policy.child_left(stream, child, lost=lost)
        return effects + self.bulk.child_left(child)

    def places_came(self, ranks: Sequence[int]) -> Effects:
        """Places can be reached below this one."""
        effects: Effects = []
        for stream in list(self.open.values()):
            effects += stream.policy.places_came(stream, ranks)
        return effects

    def parent_changed(self) -> None:
        """What the former parent asked for is not to be answered any more."""
        self._opening.parent_changed()
        self.bulk.parent_changed()
        for stream in self.open.values():
            stream.parent_changed()
            self._push.parent_changed(stream)
            self._control.parent_changed(stream)

    def agents_lost(self, ranks: Iterable[int], reason: str, *, told: bool = False) -> Effects:
        """Root: places are gone, wherever they were; or, if not ``told``, their links are."""
        effects: Effects = []
        for stream in list(self.open.values()):
            effects += stream.policy.agents_lost(stream, ranks, reason, told=told)
        return effects

    def tree_changed(self) -> Effects:
        """Use another tree: the members of the next waves may change."""
        for stream in self.open.values():
            stream.roster.tree_changed()
        return []

    def tick(self) -> Effects:
        """Confirm what agents have pushed; look for control operations that may continue."""
        effects = self._push.tick()
        for stream in self.open.values():
            if stream.sweeps:
                effects += self._control.look_again(stream)
        return effects

    def _has_large(self, stream: int) -> bool:
        return self.bulk.incoming.has(stream)

    def _on_piece(self, link: Link, message: Piece, payload: Payload | None) -> Effects:
        effects = self.bulk.on_message[Piece](link, message, payload)
        stream = self.open.get(message.stream)
        if stream is not None and stream.sweeps and not self._has_large(message.stream):
            effects += self._control.look_again(stream)
        return effects

    def _sweep(self, now: float, event: ev.SweepStream) -> Effects:
        stream = self.open.get(event.stream)
        if stream is None:
            raise ClosedError("the stream is closed")
        message = msg.Sweep(event.stream, event.number, event.action, event.filters)
        effects = self._control.begin(now, stream, message)
        return effects + self._push.tell(stream) if stream.arrivals.pushed else effects

    def _staged(self, _now: float, event: ev.FilterStaged) -> Effects:
        stream = self.open.get(event.stream)
        return [] if stream is None else self._control.staged(stream, event)

    def _on_sweep(self, link: Link, message: msg.Sweep, _payload: Any) -> Effects:
        return self._control.arrived(link, self.open.get(message.stream), message)

    def _on_swept(self, link: Link, message: msg.Swept, _payload: Any) -> Effects:
        return self._control.came_back(link, self.open.get(message.stream), message)

    def _moving(self, now: float, stream: NodeStream) -> Effects:
        """A stream is no longer quiet: do what had to wait."""
        deferred = stream.moves_again(now)
        effects = stream.policy.resumed(stream)
        effects += self._push.moves_again(stream)
        table = self.events()
        for event in deferred:
            effects += table[type(event)](now, event)
        return effects + self._engine.time_up(now, ev.TimeUp(stream.spec.stream))
