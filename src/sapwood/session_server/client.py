"""A client of a session server: who it is, and what it may do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.messaging import events as mev
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.transport.base import Connection
from sapwood.content.refs import ContentRef
from sapwood.core.errors import ClosedError, ProtocolError, SapwoodError, SecurityError
from sapwood.core.failures import as_error, log_failure
from sapwood.core.futures import when_done
from sapwood.environment.logs import logger
from sapwood.session_server import session_calls, wire
from sapwood.session_server.client_outbox import ClientOutbox
from sapwood.session_server.client_streams import ClientStreams
from sapwood.session_server.client_work import ClientGroupCalls, ClientMessages
from sapwood.session_server.keeping import KeptStreams
from sapwood.session_server.merging_hook import SessionMerging
from sapwood.session_server.rights import NOTHING, Allowed, ClientRole, Verify
from sapwood.session_server.routes import ClientMemory
from sapwood.session_server.served_session import ServedSession

_log = logger("session")

_OF_MERGERS = (
    wire.SessionCall,
    ev.OpenStream,
    ev.Broadcast,
    ev.CloseStream,
    ev.ConfigureStream,
    ev.Read,
    ev.SweepStream,
)
"""What another session may send."""


class ServingClients(Protocol):
    """A session server, as its clients see it.

    Attributes:
        session: The session.
        kept_streams: Takes the streams of an owner that is gone.
        merging: Opens streams over several sessions.
    """

    session: ServedSession
    kept_streams: KeptStreams
    merging: SessionMerging

    def admit(self, client: ServedClient, asked: wire.AskToAttach) -> None:
        """Let a client in."""

    def answer(self, client: ServedClient, call: wire.SessionCall) -> Any:
        """Return the answer to a call, or a future that gets it."""

    def leave(self, client: ServedClient) -> None:
        """Detach a client that has asked for it."""


class ServedClient:
    """A client, as its session server sees it; all on the loop's thread.

    Args:
        number: Which client it is; no other has this number.
        connection: The connection with it.
        server: Serves it.
        verify: Says what it may be.
        here: Whether it is on this machine.

    Attributes:
        number: Which client it is.
        connection: The connection with it.
        role: What it is to the session; None before it was let in.
        allowed: What it may be, and by which credential; nothing before it was let in.
        label: What users call it.
        verify: Says what it may be.
        here: Whether it is on this machine.
        owned: Whether the session belongs to it, and ends soon after it is gone without a word.
        outbox: Sends to it.
        reader: Reads what it sends.
        streams: Its open streams.
        messages: Its requests and messages.
    """

    def __init__(
        self,
        number: int,
        connection: Connection,
        server: ServingClients,
        verify: Verify,
        *,
        here: bool,
    ) -> None:
        self.number = number
        self.connection = connection
        self.verify = verify
        self.here = here
        self.owned = False
        self.role: ClientRole | None = None
        self.allowed = NOTHING
        self.label = ""
        self._server = server
        session = server.session
        self.outbox = outbox = ClientOutbox(connection, number, session)
        memory = ClientMemory(outbox)
        self.reader = wire.WireReader(
            wire.TO_SERVER, own=lambda _ref: memory, limit=wire.MAX_STRANGE
        )
        streams = self.streams = ClientStreams(session, outbox, server.kept_streams, server.merging)
        messages = self.messages = ClientMessages(session, outbox)
        groups = self._groups = ClientGroupCalls(session, outbox)
        self._offers: list[ContentRef] = []
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            wire.SessionCall: self._called,
            wire.MemoryTaken: outbox.memory_taken,
            ev.OpenStream: streams.open,
            ev.Broadcast: streams.post,
            ev.CloseStream: streams.close,
            ev.ConfigureStream: streams.post,
            ev.Read: streams.read,
            ev.SweepStream: streams.sweep,
            ev.Ask: messages.ask,
            mev.CancelRequest: messages.cancel_request,
            mev.SendTagged: messages.send,
            mev.CancelSend: messages.cancel_send,
            mev.PostReceive: messages.receive,
            gev.EnterGroup: groups.enter,
            gev.CallGroup: groups.call,
            gev.BreakGroup: groups.dissolve,
        }

    def take(self, message: msgspec.Struct) -> None:
        """Do what a message of the client wants.

        Raises:
            SapwoodError: The client does not keep to the protocol.
        """
        if self.role is None:
            if not isinstance(message, wire.AskToAttach):
                raise ProtocolError("a client must ask to attach first")
            self._server.admit(self, message)
            return
        taker = self._takers.get(type(message))
        if taker is None:
            raise ProtocolError("a client asks to attach once")
        if self.role is ClientRole.WATCHER and not isinstance(
            message, wire.SessionCall | wire.MemoryTaken
        ):
            raise SecurityError("a client that watches may not work with the agents")
        if self.role is ClientRole.MERGER and not isinstance(message, _OF_MERGERS):
            raise SecurityError("a session that this one is merged into may only use streams")
        taker(message)

    def admit(self, role: ClientRole, allowed: Allowed, *, limit: int, shares: bool) -> None:
        """Let the client in.

        Args:
            role: What it is to the session.
            allowed: What it may be, and until when.
            limit: Bytes of its messages and payloads at most.
            shares: Whether both map each other's memory from now on.
        """
        self.role, self.allowed = role, allowed
        self.streams.admit(role, allowed)
        self.reader.max_payload = limit
        if shares:
            self.outbox.sharing = True
            self.reader.blocks = MappedBlocks()

    def _called(self, call: wire.SessionCall) -> None:
        value, error = None, None
        try:
            value = self._server.answer(self, call)
        except SapwoodError as problem:
            error = problem.to_record()
        except msgspec.ValidationError as problem:
            error = ProtocolError(f"a malformed call: {problem}").to_record()
        except Exception as problem:  # noqa: BLE001 - it is about this call only
            doing = f"call '{call.name}'"
            log_failure(doing, problem)
            error = as_error(problem, doing).to_record()
        if isinstance(value, Future):
            when_done(value, partial(self._answer_later, call.number))
        elif call.number:
            self.outbox.tell(wire.SessionAnswer(call.number, value, error))
            if call.name == session_calls.DETACH:
                self._server.leave(self)
        elif error is not None:
            _log.warning("client's call failed", call=call.name, reason=error.what)

    def _answer_later(self, number: int, answer: Future[Any]) -> None:
        error = answer.exception()
        if error is not None:
            reply = wire.SessionAnswer(number, None, as_error(error, "a call").to_record())
        else:
            reply = wire.SessionAnswer(number, answer.result())
        with contextlib.suppress(ClosedError):  # the session has ended meanwhile
            self._server.session.on_loop(self.outbox.tell, reply)

    def offered(self, ref: ContentRef) -> None:
        """Note what it offers."""
        self._offers.append(ref)

    def withdrawn(self, ref: ContentRef) -> bool:
        """Note that it offers something once less; return whether it did offer that."""
        if ref not in self._offers:
            return False
        self._offers.remove(ref)
        return True

    def gone(self) -> None:
        """End what the client has under way, but for the streams of an owner: it is gone."""
        self.outbox.close()
        for ref in self._offers:
            self._server.session.content.withdraw(ref)
        self._offers.clear()
        self.streams.leave()
        self._groups.leave()
        self.messages.leave()
        self.reader.blocks = None
