"""Tries a third-party transport before a session relies on it.

This finds what would otherwise show as a tree that never gets ready. All that a transport must do
is in ``sapwood.testing.transports``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import closing

from sapwood.comm.reactor import Reactor
from sapwood.comm.transport.base import Connection, Transport
from sapwood.core.errors import CommunicationError, ConfigurationError
from sapwood.core.shown import shown

TRIAL_TIMEOUT = 5.0
"""Seconds for each step."""

_LOOK = 0.001
_SENT = b"there and back" * 1000


class _TrialEnd:
    """One side of the connection that is tried."""

    def __init__(self) -> None:
        self.connections: list[tuple[Connection, bool]] = []
        self.received = bytearray()
        self.closed = 0
        self.failures: list[CommunicationError] = []

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Remember a connection."""
        self.connections.append((connection, initiator))
        return len(self.connections) - 1

    def bytes_received(self, number: int, data: bytes) -> None:
        """Remember bytes."""
        del number
        self.received += data

    def connection_closed(self, number: int, reason: str) -> None:
        """Remember an end."""
        del number, reason
        self.closed += 1


class _Trial:
    """A listener and a connection to it.

    Attributes:
        step: The step that is tried.
    """

    def __init__(self, transport: Transport, address: str, loop: Reactor) -> None:
        self.step = "to listen"
        self._transport = transport
        self._address = address
        self._loop = loop
        self._here = _TrialEnd()
        self._there = _TrialEnd()

    def run(self) -> None:
        """Make a connection, send something there and back, and end it."""
        here, there = self._here, self._there
        with closing(self._transport.listen(self._address, there, self._loop)):
            self.step = "to connect"
            self._transport.connect(self._address, here, self._loop, here.failures.append)
            self._until(lambda: here.failures or (here.connections and there.connections))
            if here.failures:
                raise here.failures[0]
            (ours, initiator), (theirs, other) = here.connections[0], there.connections[0]
            if not initiator or other:
                raise CommunicationError("both sides claim to have connected, or neither does")
            self.step = "to send there and back"
            ours.write([_SENT])
            self._until(lambda: len(there.received) >= len(_SENT))
            theirs.write([bytes(there.received), memoryview(b"!")])
            self._until(lambda: len(here.received) > len(_SENT))
            if here.received != _SENT + b"!":
                raise CommunicationError("other bytes arrive than were sent")
            self.step = "to end a connection"
            ours.abort()
            self._until(lambda: here.closed == there.closed == 1)

    def close(self) -> None:
        """End what is left of it."""
        for end in (self._here, self._there):
            for connection, _ in end.connections:
                with contextlib.suppress(Exception):  # it is at fault already
                    connection.abort()

    def _until(self, condition: Callable[[], object]) -> None:
        """Let the loop run until a condition holds."""
        deadline = self._loop.time() + TRIAL_TIMEOUT

        def look() -> None:
            if condition() or self._loop.time() > deadline:
                self._loop.stop()
            else:
                self._loop.call_later(_LOOK, look)

        self._loop.call_soon(look)
        self._loop.run()
        if not condition():
            raise TimeoutError(f"no data arrived for {TRIAL_TIMEOUT:g} s")


def try_transport(name: str, transport: Transport, address: str) -> None:
    """Make a connection over a transport, send something there and back, and end it.

    Args:
        name: What users call it.
        transport: The transport.
        address: Where to listen; it is unused.

    Raises:
        ConfigurationError: Something of that does not work; the error says what.
    """
    with closing(Reactor()) as loop:
        trial = _Trial(transport, address, loop)
        try:
            with closing(trial):
                trial.run()
        except Exception as error:
            raise ConfigurationError(
                f"the transport {shown(name)} fails {trial.step}: "
                f"{getattr(error, 'what', '') or str(error) or type(error).__name__}",
                where="comm.transport",
                hint="its author finds the cause with the checks of sapwood.testing.transports",
            ) from error
