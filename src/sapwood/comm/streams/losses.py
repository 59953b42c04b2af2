"""What becomes of waves when an agent is lost, as the policy of their stream says.

With ``replace`` nothing happens here: the wave waits until the place is back and asked again.
With ``partial`` it goes on without, with ``fail`` it fails and names who is lost; in both
cases the place takes part again from the first wave after it is back. The root decides: agents
that are only adrift, because a junction above them is lost, are not lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sapwood.comm import messages as msg
from sapwood.comm.neighbourhood import Effects
from sapwood.comm.streams.stream import Stream
from sapwood.comm.streams.wave import Wave
from sapwood.core.errors import AgentLostError
from sapwood.core.rankset import fold

OnFull = Callable[[Stream, Wave], Effects]
OnFailed = Callable[[msg.Failed], Effects]


class Losses:
    """Takes lost agents out of waves; at the root.

    Args:
        complete: Ends a wave that nobody is waited for any more.
        failed: Fails a wave.
    """

    def __init__(self, complete: OnFull, failed: OnFailed) -> None:
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
        return self._complete(stream, wave)
