"""What a place does with large values that its parent announces. No I/O.

An agent draws them, and so does a place whose children map its memory or whose own filter looks at
them; any other passes them on without keeping them (``forwarding.py``). What has come of a value
stays when the parent changes: the rest is drawn from the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.messages.pieces import Announced, Draw
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.draws import Assembly, Draws, Flow, pieces_of, too_large
from sapwood.comm.streams.filtering import sent_to
from sapwood.comm.streams.forwarding import Forwarding, Key
from sapwood.comm.streams.stream import Stream
from sapwood.core.errors import ResourceError

OnDown = Callable[[Link, msg.Down, Payload | None], Effects]


class Coming:
    """A value that is being drawn.

    Attributes:
        message: The wave, as the present parent asks for it.
        link: The link to that.
        assembly: What has come of it.
        flow: How the rest comes.
    """

    __slots__ = ("assembly", "flow", "link", "message")

    def __init__(self, assembly: Assembly, flow: Flow, link: Link, message: msg.Down) -> None:
        self.assembly = assembly
        self.flow = flow
        self.link = link
        self.message = message


class Announcements:
    """Large values that come to one place.

    Args:
        near: The neighbours.
        streams: The open streams.
        draws: What this place draws.
        forwarding: Passes values on.
        on_down: Takes a wave in.
        is_agent: Whether this place is a leaf.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, Stream],
        draws: Draws,
        forwarding: Forwarding,
        on_down: OnDown,
        *,
        is_agent: bool,
    ) -> None:
        self.open = streams
        self._near = near
        self._draws = draws
        self._forwarding = forwarding
        self._on_down = on_down
        self._is_agent = is_agent
        self._coming: dict[Key, Coming] = {}

    def __len__(self) -> int:
        return len(self._coming)

    def on_announced(self, link: Link, message: Announced, _payload: Any) -> Effects:
        """The parent has a large value for a wave."""
        self._near.must_be_parent(link)
        problem = too_large(self._near, message, link)
        stream = self.open.get(message.stream)
        if stream is None:
            return []
        if problem:
            error = ResourceError(problem).to_record()
            number, rank = message.stream, self._near.rank
            return self._near.to_parent(
                msg.Failed(number, message.wave, message.attempt, rank, error)
            )
        down = msg.Down(
            message.stream,
            message.wave,
            message.attempt,
            message.body,
            message.confirmed,
            message.ranks,
            message.version,
        )
        if self._is_agent or self._is_looked_at(stream):
            return self._wanted(link, stream, down, message.size)
        key = (message.stream, message.wave)
        before = self._forwarding.deltas(key)
        effects = self._on_down(link, down, Payload.elsewhere(message.size))
        told = self._forwarding.deltas(key) > before
        effects += self._forwarding.resume(key)
        return effects if told else effects + self._forwarding.decline(key)

    def _is_looked_at(self, stream: Stream) -> bool:
        """Whether the bytes must be here: children map them, or a filter works on them."""
        if stream.filters_down or not stream.waits:
            return stream.filters_down
        neighbours = self._near.peers
        return any(
            child in neighbours and neighbours[child].same_machine for child in stream.children
        )

    def _wanted(self, link: Link, stream: Stream, message: msg.Down, size: int) -> Effects:
        key, number = (message.stream, message.wave), message.wave
        known = number in stream.waves or number in stream.pending
        if known or (number in stream.kept and not stream.filters_down):
            effects = self._on_down(link, message, Payload.elsewhere(size))
            return effects + self._forwarding.decline(key)
        coming = self._coming.get(key)
        if coming is not None:
            coming.link, coming.message = link, message
            if self._draws.is_open(coming.flow):
                return self._forwarding.decline(key)
            start = coming.flow.position
            coming.flow = self._draws.begin(link.rank, key, (), size, coming.assembly, start=start)
            return self._draws.more(coming.flow, start)
        assembly = Assembly(self._draws, lambda payload: self._whole(key, payload))
        flow = self._draws.begin(link.rank, key, (), size, assembly)
        self._coming[key] = Coming(assembly, flow, link, message)
        return self._draws.more(flow, 0)

    def _whole(self, key: Key, payload: Payload) -> Effects:
        coming = self._coming.pop(key)
        return self._on_down(coming.link, coming.message, payload)

    # --- for the children -----------------------------------------------------------------------

    def drawn(self, link: Link, message: Draw) -> Effects:
        """A child draws a value."""
        stream = self.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None:
            return []
        sent = sent_to(stream, wave, link.rank) if wave is not None else None
        payload = sent[1] if sent is not None else None
        if payload is None or not payload.is_here:
            size = payload.nbytes if payload is not None else 0
            return self._forwarding.drawn(link, message, size)
        return pieces_of(link, message, payload) if message.stop else []

    # --- ends -----------------------------------------------------------------------------------

    def over(self, stream: int, is_over: Callable[[int], bool]) -> None:
        """Waves of a stream are over."""
        for key in [key for key in self._coming if key[0] == stream and is_over(key[1])]:
            del self._coming[key]
