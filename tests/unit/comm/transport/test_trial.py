"""A transport that does not work is reported before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.comm.loop import Loop
from sapwood.comm.transport import trial
from sapwood.comm.transport.base import ConnectionHandler, Failed, Listener
from sapwood.comm.transport.trial import try_transport
from sapwood.comm.transport.unix import UnixTransport
from sapwood.core.errors import CommunicationError, ConfigurationError


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "TRIAL_TIMEOUT", 0.2)


class Mute(UnixTransport):
    """Never says whether a connection was made."""

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Do nothing."""


class Refusing(UnixTransport):
    """Makes no connection."""

    def connect(self, address: str, handler: ConnectionHandler, loop: Loop, failed: Failed) -> None:
        """Fail."""
        loop.call_soon(failed, CommunicationError("no pigeon is at home", where=address))


class Handler:
    """Stands between a transport and the handler of its connections."""

    def __init__(self, handler: ConnectionHandler) -> None:
        self.connection_opened = handler.connection_opened
        self.connection_closed = handler.connection_closed
        self.handler = handler

    def bytes_received(self, number: int, data: bytes) -> None:
        """Pass on as many bytes, but others."""
        self.handler.bytes_received(number, bytes(len(data)))


class Garbling(UnixTransport):
    """Changes bytes on their way."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Listen."""
        return super().listen(address, Handler(handler), loop)


class Losing(Handler):
    """Tells no ends."""

    def __init__(self, handler: ConnectionHandler) -> None:
        super().__init__(handler)
        self.connection_closed = self.lost
        self.bytes_received = handler.bytes_received  # type: ignore[method-assign]  # nothing is changed here

    def lost(self, number: int, reason: str) -> None:
        """Do nothing."""


class Endless(UnixTransport):
    """Never reports the end of a connection."""

    def listen(self, address: str, handler: ConnectionHandler, loop: Loop) -> Listener:
        """Listen."""
        return super().listen(address, Losing(handler), loop)


class Unfinished:
    """Has no methods yet."""


def test_one_that_works_is_taken(tmp_path: Path) -> None:
    try_transport("unix", UnixTransport(), f"{tmp_path}/0.sock")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Mute, "to connect: no data arrived"),
        (Refusing, "to connect: no pigeon is at home"),
        (Garbling, "to send there and back: other bytes arrive"),
        (Endless, "to end a connection: no data arrived"),
        (Unfinished, "to listen: 'Unfinished' object has no attribute 'listen'"),
    ],
)
@pytest.mark.slow
def test_what_does_not_work_is_named(kind: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=reason) as caught:
        try_transport("pigeon", kind(), f"{tmp_path}/0.sock")
    assert "'pigeon' fails" in caught.value.what
    assert "sapwood.testing.transports" in caught.value.hint
