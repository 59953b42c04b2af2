"""What becomes of waves when an agent is lost, as the policy of their stream says.

With ``replace`` nothing happens here: the wave waits until the place is back and asked again.
With ``partial`` it goes on without, with ``fail`` it fails and names who is lost; in both
cases the place takes part again from the first wave after it is back. The root decides: agents
that are only adrift, because a junction above them is lost, are not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.link import Link
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import AgentLostError
from sapwood.core.rankset import fold, from_ranges, to_ranges

OnFull = Callable[[Stream, Wave], Effects]
OnFailed = Callable[[msg.Failed], Effects]


class Losses:
    """Takes lost agents out of waves; the root decides, and the places below are told.

    Args:
        near: The neighbours.
        streams: The open streams.
        complete: Ends a wave that nobody is waited for any more.
        failed: Fails a wave.
    """

    def __init__(
        self,
        near: PeerTable,
        streams: dict[int, Stream],
        complete: OnFull,
        failed: OnFailed,
    ) -> None:
        self.open = streams
        self._near = near
        self._complete = complete
        self._failed = failed

    def begun(self, stream: Stream, wave: Wave) -> Effects:
        """Do not wait for agents that are lost, in a new wave."""
        gone = wave.give_up(stream.absent) if stream.absent else set()
        return self._without(stream, wave, gone, "lost and not back yet") if gone else []

    def agents_lost(self, stream: Stream, ranks: Iterable[int], reason: str) -> Effects:
        """Do not wait for agents that are lost just now."""
        if stream.spec.on_loss == msg.REPLACE:
            return []
        gone = stream.members.intersection(ranks) - stream.absent
        stream.absent |= gone
        effects: Effects = []
        for wave in list(stream.late_waves.values()):
            wave.without(gone)
            effects += [ev.Released(free) for free in stream.late_is_over(wave)]
        for wave in list(stream.waves.values()):
            missed = wave.give_up(gone)
            if missed:
                effects += self._without(stream, wave, missed, reason)
        return effects

    def _without(self, stream: Stream, wave: Wave, gone: Iterable[int], reason: str) -> Effects:
        if stream.spec.on_loss == msg.FAIL:
            error = AgentLostError(
                f"{fold('agent', gone)} ended: {reason}",
                hint='on_loss="replace" waits for new processes, "partial" goes on without',
            ).to_record()
            number = stream.spec.stream
            return self._failed(msg.Failed(number, wave.number, wave.attempt, min(gone), error))
        # Places below may have new processes there by now: they are not to wait for those.
        told = self._told(stream, wave, wave.asked_for(set(gone)))
        return told + self._complete(stream, wave)

    def on_without(self, link: Link, message: msg.Without, _payload: Any) -> Effects:
        """A wave goes on without agents that are lost."""
        self._near.must_be_parent(link)
        stream = self.open.get(message.stream)
        wave = stream.waves.get(message.wave) if stream is not None else None
        if stream is None or wave is None:
            return []
        told = self._told(stream, wave, wave.without(from_ranges(message.ranks)))
        return told + self._complete(stream, wave)

    def _told(self, stream: Stream, wave: Wave, asked: dict[int, set[int]]) -> Effects:
        tree, number = self._near.router.tree, stream.spec.stream
        return [
            ev.Transmit(
                self._near.links_to((child,)), msg.Without(number, wave.number, to_ranges(ranks))
            )
            for child, ranks in sorted(asked.items())
            if not tree.is_agent(child)
        ]
