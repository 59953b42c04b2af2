"""A caller of a head, as the head sees it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import msgspec

from sapwood.comm.transport.tls_connection import TlsConnection
from sapwood.comm.transport.unix import UnixConnection
from sapwood.core.errors import SecurityError
from sapwood.environment.logs import logger
from sapwood.head.protocol.framing import MAX_MESSAGE, packed, reader_of_calls
from sapwood.security.rights import ALL_RIGHTS, Rights

MAX_UNSENT = 2 * MAX_MESSAGE
"""Bytes that may wait for a client that does not read; with more it is cut off."""

MAX_STRANGE_MESSAGE = 64 * 1024
"""Bytes of a message of a peer that has shown no credential yet."""

ServiceConnection = UnixConnection | TlsConnection

_log = logger("head")


class ServiceCaller:
    """A client, as the head sees it.

    Attributes:
        number: Which one it is; no other has it.
        address: Where it is; empty on the head's machine.
        rights: What it may do; None before it has shown a credential, if it needs one.
        challenge: What it is to sign.
        session: The id of the session whose root it is, if it has said so; else empty.
        session_name: What users call that session.
        runs: Since when its runs in progress run, by name; bounded, the oldest first.
    """

    def __init__(self, number: int, connection: ServiceConnection) -> None:
        self.number = number
        self.connection = connection
        local = isinstance(connection, UnixConnection)
        self.address = "" if local else connection.facts().address
        self.rights: Rights | None = ALL_RIGHTS if local else None
        self.challenge = b""
        self.session = ""
        self.session_name = ""
        self.runs: dict[str, float] = {}
        self.reader = reader_of_calls(MAX_MESSAGE if local else MAX_STRANGE_MESSAGE)
        self.waiting = 0
        self.there = True
        self._left: list[Callable[[], None]] = []

    def write(self, message: msgspec.Struct) -> None:
        """Send a message; on the loop's thread.

        Raises:
            ProtocolError: It cannot be written, or is too long.
        """
        if not self.there:
            return
        self.connection.write(packed(message))
        if self.connection.unsent > MAX_UNSENT:
            _log.warning("client cut off", number=self.number, reason="it does not read")
            self.connection.abort()

    def when_gone(self, function: Callable[[], None]) -> Callable[[], None]:
        """Have a function called when it is gone; return what takes that back."""
        self._left.append(function)

        def forget() -> None:
            with contextlib.suppress(ValueError):
                self._left.remove(function)

        return forget

    def gone(self) -> None:
        """It is gone."""
        self.there = False
        left, self._left = self._left, []
        for function in left:
            function()

    @property
    def granted(self) -> Rights:
        """Its rights.

        Raises:
            SecurityError: It has none, because it has been cut off meanwhile.
        """
        if self.rights is None:
            raise SecurityError("this connection has no rights any more")
        return self.rights

    @property
    def is_local(self) -> bool:
        """Whether it is on the head's machine, at a Unix socket."""
        return not self.address

    def __repr__(self) -> str:
        return f"<client {self.number}>"
