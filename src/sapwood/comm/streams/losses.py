"""What becomes of waves when a place is lost, as the policy of their stream says.

With ``replace`` nothing happens here: the wave waits until the place is back and asked again.
With ``partial`` it goes on without, with ``fail`` it fails and names who is lost; in both
cases the place takes part again from the first wave after it is back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import AgentLostError
from sapwood.core.rankset import fold, from_ranges

OnFull = Callable[[Stream, Wave], Effects]
OnFailed = Callable[[msg.Failed], Effects]


class Losses:
    """Takes lost places out of waves.

    Args:
        near: The neighbours.
        full: Passes a wave on that nobody is waited for any more.
        failed: Fails a wave.
    """

    def __init__(self, near: Neighbourhood, full: OnFull, failed: OnFailed) -> None:
        self._near = near
        self._full = full
        self._failed = failed

    def begun(self, stream: Stream, wave: Wave) -> Effects:
        """Do not wait for children that are lost, in a new wave."""
        gone = [child for child in stream.absent if wave.waiting.pop(child, None) is not None]
        if not gone:
            return []
        members = self._members(stream, gone)
        return self._without(stream, wave, members, "lost and not back yet")

    def child_lost(self, stream: Stream, child: int, reason: str) -> Effects:
        """Do not wait for a child that is lost just now."""
        for wave in list(stream.late_waves.values()):
            wave.waiting.pop(child, None)
            if not wave.waiting:
                del stream.late_waves[wave.number]
        if stream.spec.on_loss == msg.REPLACE or not stream.waits:
            return []
        stream.absent.add(child)
        members = self._members(stream, [child])
        effects: Effects = []
        for wave in list(stream.waves.values()):
            if wave.waiting.pop(child, None) is not None:
                effects += self._without(stream, wave, members, reason)
        return effects

    def agents_lost(self, stream: Stream, ranks: Iterable[int], reason: str) -> Effects:
        """Root: do not wait for agents, in a stream that gathers nothing on the way."""
        if stream.waits or stream.spec.on_loss == msg.REPLACE:
            return []
        gone = from_ranges(stream.spec.members) & set(ranks)
        stream.absent |= gone
        effects: Effects = []
        for wave in list(stream.waves.values()):
            missed = [rank for rank in gone if wave.waiting.pop(rank, None) is not None]
            if missed:
                effects += self._without(stream, wave, sorted(missed), reason)
        return effects

    def _members(self, stream: Stream, children: Iterable[int]) -> list[int]:
        members = from_ranges(stream.spec.members)
        router = self._near.router
        if not stream.waits:
            return sorted(members.intersection(children))
        return sorted(members.intersection(*[set().union(*map(router.covered, children))]))

    def _without(self, stream: Stream, wave: Wave, gone: list[int], reason: str) -> Effects:
        if stream.spec.on_loss == msg.FAIL:
            error = AgentLostError(
                f"{fold('agent', gone)} ended: {reason}",
                hint='on_loss="replace" waits for new processes, "partial" goes on without',
            ).to_record()
            number = stream.spec.stream
            return self._failed(msg.Failed(number, wave.number, wave.attempt, gone[0], error))
        return [] if wave.waiting or wave.filtering else self._full(stream, wave)


def lost_ranks(effects: Iterable[ev.Effect]) -> dict[str, set[int]]:
    """Return the places that these effects say are lost, by reason."""
    return {
        effect.reason: from_ranges(effect.ranks)
        for effect in effects
        if isinstance(effect, ev.PlacesLost)
    }
