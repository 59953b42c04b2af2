"""What agents of the simulator say when they have worked on a wave or a request."""

from __future__ import annotations

from sapwood.comm import events as ev
from sapwood.comm.payload import Payload
from sapwood.core.errors import SapwoodError


def success(effect: ev.WaveArrived | ev.Asked, body: bytes, payload: Payload | None) -> ev.Event:
    """Return the event by which an agent answers."""
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, body, payload)
    return ev.Contribute(effect.spec.stream, effect.wave, 1.0, body, payload)


def failure(effect: ev.WaveArrived | ev.Asked, error: SapwoodError) -> ev.Event:
    """Return the event by which an agent says why it does not."""
    record = error.to_record()
    if isinstance(effect, ev.Asked):
        return ev.Answer(effect.source, effect.number, b"", None, record)
    return ev.Fail(effect.spec.stream, effect.wave, record)
