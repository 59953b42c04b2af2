"""Effects on their way to clients that cannot receive them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sapwood.comm import events as ev
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError
from sapwood.session_server.routes import EffectRoutes


class FrontEnd:
    """Hears of effects, and cannot take those with arrays."""

    def __init__(self, error: Exception) -> None:
        self.asked = {3: 30}
        self.sends: dict[int, int] = {}
        self.receives = {4: 40}
        self.told: list[Any] = []
        self._error = error

    def tell(self, message: msgspec.Struct) -> None:
        if getattr(message, "payload", None) is not None:
            raise self._error
        self.told.append(message)

    def hear(self, _stream: int, effect: Any) -> None:
        self.tell(effect)


@pytest.mark.parametrize(
    ("error", "code", "is_logged"),
    [(AgentLostError("its memory is gone"), "SW402", False), (KeyError("x"), "SW900", True)],
)
def test_what_cannot_be_told_fails_where_it_is_waited_for(
    error: Exception, code: str, is_logged: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A client once waited for ever, or the neighbour that passed it on was cut off."""
    routes, client, freed = EffectRoutes(), FrontEnd(error), list[ev.Released]()
    hearer: Any = client
    routes.of_stream[10] = (hearer, 1)
    routes.of_request[30] = (hearer, 3, 1)
    routes.of_receive[40] = (hearer, 4)
    handlers = routes.routed({ev.Released: freed.append})
    payload = Payload(b"abc")
    effects: list[ev.Effect] = [
        ev.WaveCompleted(10, 2, None, ((1, 2),), 1.0, (), b"\xc0", payload),
        ev.Contributed(10, 5, ((1, 2),), 1.0, b"\xc0", payload),
        ev.Answered(30, b"\xc0", payload, None),
        mev.TaggedArrived(40, 1, 7, b"\xc0", payload),
    ]
    for effect in effects:
        handlers[type(effect)](effect)
    completed, contributed, answered, received = client.told
    assert (completed.stream, completed.wave, completed.error.code) == (1, 2, code)
    assert (contributed.stream, contributed.wave, contributed.error.code) == (1, 5, code)
    assert (answered.number, answered.error.code) == (3, code)
    assert (received.number, received.error.code) == (4, code)
    assert len(freed) == 2
    assert ("telling a client of Answered failed" in caplog.text) is is_logged
