"""What a session server sends to one client, and the memory that it lends to the client for it."""

from __future__ import annotations

import msgspec

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.groups import events as gev
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import SharedBlock
from sapwood.comm.transport.base import Connection
from sapwood.core.errors import ProtocolError
from sapwood.environment.logs import logger
from sapwood.session_server import wire
from sapwood.session_server.served_session import ServedSession

MAX_UNSENT = 2**30
"""Bytes that may wait for a client that does not read; with more it is cut off."""

_log = logger("session")


class ClientOutbox:
    """Sends messages to one client; all on the loop's thread.

    Args:
        connection: The connection with the client.
        number: Which client it is, for logs.
        session: The session, whose memory is lent.

    Attributes:
        sharing: Whether the client and this server map each other's memory, as processes of one
            user do.
    """

    def __init__(self, connection: Connection, number: int, session: ServedSession) -> None:
        self.sharing = False
        self._connection = connection
        self._number = number
        self._session = session
        self._closed = False
        self._lent: dict[int, tuple[SharedBlock, bool]] = {}

    def tell(self, message: msgspec.Struct) -> None:
        """Send it a message, with memory for a copy of the payload."""
        if self._closed:
            return
        if isinstance(message, ev.WaveCompleted) and not message.body and message.total is not None:
            encoded = values.encode(message.total)
            placed = self._placed(encoded)
            message = msgspec.structs.replace(
                message, total=None, body=encoded.body, payload=placed
            )
        else:
            payload: Payload | None = getattr(message, "payload", None)
            if payload is not None:
                kept = isinstance(message, mev.TaggedArrived)
                message = msgspec.structs.replace(message, payload=self._copied(payload, kept=kept))
        self.write(message)

    def give_back(self, effect: ev.Released | gev.Discarded) -> None:
        """Release its memory."""
        if not self._closed and self.sharing and effect.payload.ref is not None:
            self.write(effect)

    def write(self, message: msgspec.Struct) -> None:
        """Send the client a message whose payload stays where it is."""
        try:
            buffers = wire.pack(message, sharing=self.sharing)
        except ProtocolError as error:
            if not isinstance(message, wire.SessionAnswer):
                raise
            said = wire.SessionAnswer(message.number, None, error.to_record())
            buffers = wire.pack(said, sharing=self.sharing)
        connection = self._connection
        connection.write(buffers)
        unsent = getattr(connection, "unsent", 0)
        if unsent > MAX_UNSENT:
            _log.warning("client cut off", number=self._number, reason="it does not read")
            connection.abort()

    def _placed(self, encoded: values.Encoded) -> Payload | None:
        if not self.sharing:
            return Payload(encoded.payload()) if encoded.nbytes else None
        payload = self._session.pool.store(encoded)
        if payload is not None and payload.owner is not None:
            self._lent[payload.owner.fd] = (payload.owner, True)
        return payload

    def _copied(self, payload: Payload, *, kept: bool) -> Payload | None:
        """Return the bytes in memory that stays until the client has read them.

        Args:
            payload: The bytes.
            kept: Whether the client maps that memory for good.
        """
        try:
            view = payload.view
        except ProtocolError as gone:
            _log.warning("payload gone", reason=gone.what)
            return None
        if not self.sharing or payload.nbytes <= self._session.options.inline_limit:
            return Payload(bytes(view))
        if kept:
            block = SharedBlock(payload.nbytes, [(0, view)])
        else:
            block = self._session.pool.take(payload.nbytes)
            block.view[: payload.nbytes] = view
        self._lent[block.fd] = (block, not kept)
        return Payload(block.view[: payload.nbytes], block.ref(0, payload.nbytes), block)

    def memory_taken(self, message: wire.MemoryTaken) -> None:
        """Take memory back that the client has read."""
        block, pooled = self._lent.pop(message.descriptor, (None, False))
        if block is None:
            return
        if pooled:
            self._session.pool.give_back(block)
        else:
            block.close()

    def close(self) -> None:
        """Send nothing any more, and take all memory back; the client is gone."""
        self._closed = True
        for descriptor in list(self._lent):
            self.memory_taken(wire.MemoryTaken(descriptor))
