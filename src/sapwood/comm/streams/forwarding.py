"""Large values on their way to children that cannot map them. No I/O.

Such a child is told of the value and draws its bytes. A place that was itself only told of them
draws them from its parent as its children do, all at the same time, and keeps none: a value of any
size passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw, Piece
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.draws import Draws, Flow, must_be_sensible

Key = tuple[int, int]
"""Numbers of a stream and a wave."""


class Delta:
    """A large value that is drawn from the parent for some children, at the same time.

    Attributes:
        undecided: Children that have not said yet whether they want it.
        wanted: Who has drawn it: child and number of its draw, and the last part of it.
        position: Bytes up to which it was passed on.
        flow: What comes from the parent.
    """

    __slots__ = ("flow", "position", "size", "undecided", "wanted")

    def __init__(self, children: Iterable[int], size: int) -> None:
        self.undecided = set(children)
        self.wanted: dict[tuple[int, int], Draw] = {}
        self.size = size
        self.position = 0
        self.flow: Flow | None = None

    def takes(self, child: int, start: int) -> bool:
        """Whether a child was told of it and wants the bytes from where it stands."""
        return child in self.undecided and (not self.wanted or self.position == start)

    def leave(self, child: int) -> bool:
        """Note that a child is gone; return whether it was waited for."""
        drawn = [key for key in self.wanted if key[0] == child]
        for key in drawn:
            del self.wanted[key]
        if child in self.undecided:
            self.undecided.discard(child)
            return True
        return bool(drawn)


class Forwarding:
    """Large values that go through one place, or begin there.

    Args:
        near: The neighbours.
        draws: What this place draws.
    """

    def __init__(self, near: PeerTable, draws: Draws) -> None:
        self._near = near
        self._draws = draws
        self._deltas: dict[Key, list[Delta]] = {}

    def __len__(self) -> int:
        return len(self._deltas)

    def announce(self, children: Collection[int], message: msg.Down, payload: Payload) -> Effects:
        """Tell children of a value, which they draw if they want it."""
        announced = Announced(
            message.stream,
            message.wave,
            message.attempt,
            message.body,
            message.confirmed,
            message.ranks,
            message.version,
            payload.nbytes,
        )
        if not payload.is_here:
            self._draws.touched = True
            deltas = self._deltas.setdefault((message.stream, message.wave), [])
            deltas.append(Delta(children, payload.nbytes))
        return [ev.Transmit(self._near.links_to(children), announced)]

    def deltas(self, key: Key) -> int:
        """Return for how many groups of children a value is drawn, or may be."""
        return len(self._deltas.get(key, ()))

    def drawn(self, link: Link, message: Draw, size: int) -> Effects:
        """A child draws a value that is not here, or says that it does not want it.

        Args:
            link: The child.
            message: What it draws.
            size: Of the value; 0 if that is not known, as its wave is over, or is not kept.

        Raises:
            ProtocolError: It draws what there is not.
        """
        key, child = (message.stream, message.wave), link.rank
        deltas = self._deltas.get(key, [])
        size = size or (deltas[0].size if deltas else 0)
        mine = (child, message.number)
        if message.stop and size:
            must_be_sensible(link, message, size)
        for delta in deltas:
            if mine in delta.wanted:
                if message.stop:
                    delta.wanted[mine] = message
                else:
                    del delta.wanted[mine]
                return self._go_on(key, delta)
        if not size or (message.number and not message.stop):
            return []  # it is over
        told = next((one for one in deltas if child in one.undecided), None)
        if message.stop:
            fits = next((one for one in deltas if one.takes(child, message.start)), None)
            delta = fits or Delta((), size)
            told = fits or told
            if fits is None:
                self._deltas.setdefault(key, deltas).append(delta)
            delta.position = message.start
            delta.wanted[mine] = message
        if told is not None:
            told.undecided.discard(child)
        effects = self._go_on(key, delta) if message.stop else []
        if told is not None and not (message.stop and told is delta):
            effects += self._go_on(key, told)
        return effects

    def _go_on(self, key: Key, delta: Delta) -> Effects:
        """Draw from the parent what all that want it have asked for."""
        if delta.undecided:
            return []
        if not delta.wanted:
            self._forget(key, delta)  # nobody wants it of those who were told: nor does this place
            return self.decline(key, delta.flow.number if delta.flow is not None else 0)
        parent = self._near.router.parent
        if parent not in self._near.peers:
            return []  # a new one says when it has the value
        draws = list(delta.wanted.values())
        flow = delta.flow
        if flow is None or not self._draws.is_open(flow):
            flow = delta.flow = self._draws.begin(
                parent,
                key,
                (),
                delta.size,
                _Forward(self, delta),
                start=delta.position,
                piece=draws[0].piece,
            )
        return self._draws.ask(flow, min(draw.stop for draw in draws))

    def decline(self, key: Key, number: int = 0) -> Effects:
        """Tell the parent that the bytes of a value are not wanted, or no more."""
        return self._near.to_parent(Draw(*key, (), number, 0, 0, 0))

    def _forget(self, key: Key, delta: Delta) -> None:
        if delta.flow is not None:
            self._draws.end(delta.flow)
        left = [one for one in self._deltas.get(key, ()) if one is not delta]
        if left:
            self._deltas[key] = left
        else:
            self._deltas.pop(key, None)

    def forward(self, delta: Delta, flow: Flow, start: int, view: memoryview) -> Effects:
        """Bytes of a value have come: pass them on."""
        payload = Payload(view)
        delta.position = start + len(view)
        effects: Effects = []
        for child, number in delta.wanted:
            links = self._near.links_to((child,))
            piece = Piece(flow.stream, flow.wave, number, start)
            effects.append(ev.Transmit(links, piece, payload))
        if delta.position == delta.size:
            self._forget((flow.stream, flow.wave), delta)
        return effects

    def resume(self, key: Key) -> Effects:
        """A new parent has the value: go on where the former one stopped."""
        deltas = list(self._deltas.get(key, ()))
        return [effect for delta in deltas for effect in self._go_on(key, delta)]

    def child_left(self, child: int) -> Effects:
        """A child is attached here no more."""
        effects: Effects = []
        for key, deltas in list(self._deltas.items()):
            for delta in list(deltas):
                if delta.leave(child):
                    effects += self._go_on(key, delta)
        return effects

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over."""
        for key in [key for key in self._deltas if key[0] == stream and is_over(key[1])]:
            for delta in self._deltas[key]:
                self._forget(key, delta)


class _Forward:
    """Where the bytes of a delta go."""

    __slots__ = ("_delta", "_forwarding")

    def __init__(self, forwarding: Forwarding, delta: Delta) -> None:
        self._forwarding = forwarding
        self._delta = delta

    def arrived(self, flow: Flow, start: int, view: memoryview) -> Effects:
        """Pass bytes on."""
        return self._forwarding.forward(self._delta, flow, start, view)
