"""Where events and effects of a root go that has streams over several sessions. No I/O."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.session_server import wire
from sapwood.session_server.joint_stream import JointStream
from sapwood.session_server.routes import EffectRoutes


class JointRoutes(EffectRoutes):
    """The tables of a root, with its streams over several sessions.

    Attributes:
        joint: Those streams, by the number that this root gave them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.joint: dict[int, JointStream] = {}

    def post_to_core(self, event: Any) -> None:
        """Give the core of this root an event."""
        raise NotImplementedError

    def freed(self, effect: ev.Released) -> None:
        """Have memory of this root used again."""
        raise NotImplementedError

    def post_of_stream(self, event: Any) -> None:
        """Give an event of a stream to the core, or to what has it done by several sessions."""
        joint = self.joint.get(event.stream)
        if joint is None:
            self.post_to_core(event)
        else:
            joint.take(event)

    def emit(self, effect: Any) -> None:
        """Report the results of a stream over several sessions."""
        if isinstance(effect, ev.Released):
            self._returned({ev.Released: self.freed}, effect)
            return
        known = self.of_stream.get(effect.stream)
        if known is None:
            return
        hearer, number = known
        told = msgspec.structs.replace(effect, stream=number)
        if isinstance(effect, wire.SweepRefused):
            hearer.refused(told)
        else:
            hearer.hear(number, told)
        payload = getattr(effect, "payload", None)
        if payload is not None:
            self.freed(ev.Released(payload))
