"""The session server: it serves the clients of a session, and outlives them.

The events of a client enter the protocol core like the events of an embedded session, with
numbers that this server assigns; the effects that belong to a client go back to it. So nothing of
the tree is done twice, and a client that is gone leaves nothing under way.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec

from sapwood.activity import agent_requests
from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.content import ContentRef
from sapwood.comm.groups import events as gev
from sapwood.comm.machine import machine_id
from sapwood.comm.messages import FilterAt
from sapwood.comm.messages.groups import LEAVE, NO_GROUP
from sapwood.comm.messaging import events as mev
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks, SharedBlock, SharedRef
from sapwood.comm.transport.base import Connection
from sapwood.comm.transport.tls import TlsConnection
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    GroupError,
    ProtocolError,
    SapwoodError,
    SecurityError,
)
from sapwood.core.failures import as_error, log_failure
from sapwood.core.futures import when_done
from sapwood.core.rankset import from_ranges, to_ranges
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT
from sapwood.environment.logs import logger
from sapwood.environment.settings import CommSettings, DisconnectPolicy
from sapwood.head import calls
from sapwood.session.embedded import EmbeddedSession, MakeFilters
from sapwood.session.options import PlacesChanged, SessionOptions
from sapwood.session.port import AgentEvent, InvitationView, NewAgent, PlaceView
from sapwood.session.supervisor import NodeSource
from sapwood.session_server import session_calls, wire
from sapwood.session_server.joint_routes import JointRoutes
from sapwood.session_server.keeping import KeptOutput, KeptStreams, ServedStream
from sapwood.session_server.merged_session import MergeOrder, SplitOrder
from sapwood.session_server.merges import Merges
from sapwood.session_server.open_work import OpenWork
from sapwood.session_server.opened_runs import OpenedRuns
from sapwood.session_server.rights import NOTHING, WORKING, ClientRole, Verify, require_call
from sapwood.session_server.routes import ClientMemory

MAX_CLIENTS = 64
"""Clients that may be attached to a session at a time."""

MAX_WATCHERS = 32
"""Those of them that may only watch: so they leave room for others."""

MAX_STRANGERS = 64
"""Clients that were not let in yet; with more, the first of them is cut off."""

STRANGER_PATIENCE = 10.0
"""Seconds that a client has to ask to attach."""

LONGEST_TIMER = 3600.0
"""Seconds after which the end of a credential is looked at again at the latest."""

FAREWELL = 1.0
"""Seconds that a client has to read why it is cut off."""

TOLD_EVENTS = 16
"""Events of agents that others start, of which a report tells."""

MAX_UNSENT = 2**30
"""Bytes that may wait for a client that does not read; with more it is cut off."""

MAX_STREAMS = 10_000
"""Streams that one client may have open."""

MAX_OPEN = 1_000_000
"""Requests and messages of one client that may be under way."""

LONGEST_CONTRACT = 3600.0
"""Seconds that agents which are removed have to do what they were asked for, at most."""

SLOW_CALLS = 4
"""Calls of clients that wait for something at a time; more wait for them.

Those that remove agents may wait for an hour: they have as many other threads, so that nothing else
waits for them. Revoking an invitation waits for neither.
"""

_log = logger("session")


class SessionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is.

    Attributes:
        agents: How many it has.
        owner: Its present owner; empty without one.
        front_ends: The attached clients, with their roles.
        streams: Open streams.
        since: Since when it is attached or detached, seconds since 1970.
        kept: Bytes of retained output.
        dropped: Bytes of output that were left out.
        invitations: By which processes that others start may be agents, and are.
        agent_events: The last events of such agents.
        merged: The sessions that are merged into it.
        part_of: The sessions that it is merged into, as they call themselves.
        owned: Whether it ends soon after its owner is gone without having left it.
    """

    agents: int
    owner: str = ""
    front_ends: list[str] = []
    streams: int = 0
    since: float = 0.0
    kept: int = 0
    dropped: int = 0
    invitations: list[InvitationView] = []
    agent_events: list[AgentEvent] = []
    merged: list[str] = []
    part_of: list[str] = []
    owned: bool = False


class ServedSession(JointRoutes, EmbeddedSession):
    """A session whose users are other processes.

    Args:
        options: How it is made.
        nodes: What begins the processes of places on other machines.

    Attributes:
        tree_changed: Told on the loop's thread that places are to leave and have work to do still.
    """

    def __init__(self, options: SessionOptions, nodes: NodeSource | None = None) -> None:
        JointRoutes.__init__(self)
        self._leaving: list[OpenWork] = []
        self.tree_changed: Callable[[], None] = _nothing
        EmbeddedSession.__init__(self, options, None, nodes)

    def post_to_core(self, event: Any) -> None:
        """Give the core of this root an event."""
        self.host.post(event)

    def freed(self, effect: ev.Released) -> None:
        """Have memory of this root used again."""
        self._released(effect)

    def host_filters(self, make: MakeFilters) -> None:
        """Have own filters of the root called, also those over several sessions."""
        self.streams.filters = make(
            self.loop, self.supervisor.new_runner_factory, self.post_of_stream
        )

    def begin_contract(self, ranks: Sequence[int]) -> list[Future[Any]]:
        """Take places out of the tree; return what is open of them, also for clients."""
        open_work = super().begin_contract(ranks)
        self._leaving = [one for one in self._leaving if not one.done.done()]
        self._leaving.append(OpenWork(self, ranks, self.loop.call_later))
        self.tree_changed()
        return [*open_work, self._leaving[-1].done]

    def close(self) -> None:
        """End it, and whoever waits until agents have done what they were asked for."""
        with contextlib.suppress(ClosedError):
            self.call(self._wait_no_more)
        super().close()

    def _wait_no_more(self) -> None:
        for one in self._leaving:
            one.give_up()

    def _handlers(self) -> dict[type[ev.Effect], Callable[[Any], None]]:
        return self.routed(super()._handlers())


class ServedClient:
    """A client, as the root sees it; all on the loop's thread.

    Attributes:
        number: Which one it is; no other has it.
        role: What it is to the session; None before it was let in.
        allowed: What it may be, and by which credential; nothing before it was let in.
        label: What users call it.
        asked: Its open requests: its number and the root's.
        verify: Says what it may be.
        here: Whether it is on this machine.
        owned: Whether the session belongs to it, and ends soon after it is gone without a word.
        sends: Its messages on their way, likewise.
        receives: Messages that it waits for, likewise.
    """

    def __init__(
        self,
        number: int,
        connection: Connection,
        server: SessionServer,
        verify: Verify,
        *,
        here: bool,
    ) -> None:
        self.verify = verify
        self.here = here
        self.owned = False
        self.number = number
        self.role: ClientRole | None = None
        self.allowed = NOTHING
        self.label = ""
        self.connection = connection
        self._server = server
        self._session = server.session
        self._memory = ClientMemory(self)
        self.reader = wire.WireReader(
            wire.TO_SERVER, own=lambda _ref: self._memory, limit=wire.MAX_STRANGE
        )
        self._sharing = False
        self._there = True
        self._streams: dict[int, ServedStream] = {}
        self.asked: dict[int, int] = {}
        self._opened = OpenedRuns()
        self.sends: dict[int, int] = {}
        self.receives: dict[int, int] = {}
        self._offers: list[ContentRef] = []
        self._lent: dict[int, tuple[SharedBlock, bool]] = {}
        self._takers: dict[type[Any], Callable[[Any], None]] = {
            wire.SessionCall: self._called,
            wire.MemoryTaken: self._memory_taken,
            ev.OpenStream: self._open_stream,
            ev.Broadcast: self._of_stream,
            ev.CloseStream: self._close_stream,
            ev.ConfigureStream: self._of_stream,
            ev.Read: self._read,
            ev.SweepStream: self._sweep,
            ev.Ask: self._ask,
            mev.CancelRequest: self._cancel_request,
            mev.SendTagged: self._send,
            mev.CancelSend: self._cancel_send,
            mev.PostReceive: self._receive,
            gev.EnterGroup: self._enter,
            gev.CallGroup: self._call_group,
            gev.BreakGroup: self._break_group,
        }

    @property
    def shares(self) -> bool:
        """Whether it and the root map each other's memory, as processes of one user do."""
        return self._sharing

    @property
    def streams(self) -> int:
        """How many streams it has open."""
        return len(self._streams)

    # --- what it says --------------------------------------------------------------------------

    def take(self, message: msgspec.Struct) -> None:
        """Do what a message wants.

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

    def share(self) -> None:
        """Map its memory from now on."""
        self._sharing = True
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
            self.tell(wire.SessionAnswer(call.number, value, error))
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
            self._session.on_loop(self.tell, reply)

    def offered(self, ref: ContentRef) -> None:
        """Note what it offers."""
        self._offers.append(ref)

    def withdrawn(self, ref: ContentRef) -> bool:
        """Note that it offers something once less; return whether it did offer that."""
        if ref not in self._offers:
            return False
        self._offers.remove(ref)
        return True

    # --- streams -------------------------------------------------------------------------------

    def _open_stream(self, event: ev.OpenStream) -> None:
        mine = event.spec.stream
        if mine in self._streams or len(self._streams) >= MAX_STREAMS:
            raise ProtocolError(f"a client opens stream {mine} twice, or too many")
        self._check_filters(event.spec.filters)
        session, merges = self._session, self._server.merges
        unknown = from_ranges(event.spec.members) - set(session.tree.agent_ranks)
        spans = self.role is not ClientRole.MERGER and merges.spans(event.spec)
        if unknown and not spans and max(unknown) >= session.tree.size:
            raise ProtocolError(f"a stream to places that never were: {sorted(unknown)}")
        number = session.host.new_stream()
        self._streams[mine] = ServedStream(number, event.spec, paced=event.paced)
        session.of_stream[number] = (self, mine)
        spec = msgspec.structs.replace(event.spec, stream=number)
        if spec.follows:  # the tree may have changed, and the client has not heard of it yet
            spec = msgspec.structs.replace(spec, members=to_ranges(session.tree.agent_ranks))
        try:
            if spans:
                merges.open(spec, paced=event.paced)
            else:
                session.host.post(msgspec.structs.replace(event, spec=spec))
        except SapwoodError:
            del self._streams[mine], session.of_stream[number]
            raise

    def _check_filters(self, filters: tuple[FilterAt, ...]) -> None:
        """Refuse code at the root to who has not shown that it is the session's user.

        What another filter would hide from the root is refused, too: it may not hide it at a part
        of a stream over several sessions.

        Raises:
            SecurityError: A filter may run at the root.
        """
        if not self.allowed.credential and ClientRole.MERGER in self.allowed.roles:
            return
        if self._session.streams.filters is None:  # none can run there
            return
        found = [one.where for one in filters if one.where in _AT_ROOT and (one.up or one.down)]
        if found:
            raise SecurityError(
                "filters of your own at the root of this session run as the user of its head",
                where=f'FilterAt("{found[0]}")',
                hint='place them below it, e.g. FilterAt("depth 1"): `up={"depth 1": …}`',
            )

    def _of_stream(self, event: Any) -> None:
        stream = self._streams.get(event.stream)
        if stream is not None:
            if isinstance(event, ev.Broadcast):
                stream.begun += 1
                stream.waiting.add(stream.begun)
            self._session.post_of_stream(msgspec.structs.replace(event, stream=stream.number))
        elif isinstance(event, ev.Broadcast) and event.payload is not None:
            self.give_back(ev.Released(event.payload))  # it was closed meanwhile

    def _sweep(self, event: ev.SweepStream) -> None:
        try:
            self._check_filters(event.filters)
            self._of_stream(event)
        except SapwoodError as error:  # the stream is in another state
            self.tell(wire.SweepRefused(event.stream, event.number, error.to_record()))

    def _close_stream(self, event: ev.CloseStream) -> None:
        stream = self._streams.pop(event.stream, None)
        if stream is not None:
            del self._session.of_stream[stream.number]
            self._session.post_of_stream(ev.CloseStream(stream.number))

    def _read(self, event: ev.Read) -> None:
        """Tell agents that there is room, but for what the root has read before."""
        stream = self._streams.get(event.stream)
        if stream is None:
            return
        if self.role is ClientRole.OWNER:
            self._server.kept_streams.was_read(event.stream, event.rank, event.count)
        count = stream.read(event.rank, event.count)
        if count:
            self._session.post_of_stream(ev.Read(stream.number, event.rank, count))

    def inherit(self, kept: KeptStreams) -> None:
        """Own the streams that the last owner has left."""
        streams = dict(kept.streams)
        told, effects = kept.hand_over()
        self._streams.update(streams)
        for mine, stream in streams.items():
            self._session.of_stream[stream.number] = (self, mine)
        self._write(told)
        for effect in effects:
            self.tell(effect)

    def served(self, stream: int) -> ServedStream:
        """Return a stream of this client."""
        return self._streams[stream]

    def hear(self, stream: int, effect: Any) -> None:
        """Send it results of its stream."""
        served = self._streams[stream]
        served.over(effect)
        served.told(effect)
        if self.role is ClientRole.OWNER:
            self._server.kept_streams.also_told(stream, effect)
        self.tell(effect)

    def refused(self, effect: wire.SweepRefused) -> None:
        """Send it that a sweep of its stream is impossible."""
        self.tell(effect)

    # --- requests and messages -----------------------------------------------------------------

    def _ask(self, event: ev.Ask) -> None:
        self._must_fit(event.number, self.asked)
        self._opened.asked(event)
        number = self.asked[event.number] = self._session.requests.new_number()
        self._session.of_request[number] = (self, event.number, event.destination)
        self._post_or_forget(event, number, self.asked, self._session.of_request)

    def _cancel_request(self, event: mev.CancelRequest) -> None:
        number = self.asked.get(event.number)
        if number is not None:
            self._session.host.post(mev.CancelRequest(number))

    def _send(self, event: mev.SendTagged) -> None:
        self._must_fit(event.number, self.sends)
        number = self.sends[event.number] = self._session.mailbox.new_number()
        self._session.of_send[number] = (self, event.number, set(event.destinations))
        self._post_or_forget(event, number, self.sends, self._session.of_send)

    def _cancel_send(self, event: mev.CancelSend) -> None:
        number = self.sends.get(event.number)
        if number is not None:
            self._session.host.post(mev.CancelSend(number, event.destination))

    def _receive(self, event: mev.PostReceive) -> None:
        self._must_fit(event.number, self.receives)
        number = self.receives[event.number] = self._session.mailbox.new_number()
        self._session.of_receive[number] = (self, event.number)
        try:
            self._session.host.post(msgspec.structs.replace(event, number=number))
        except SapwoodError as error:
            self._forget_receive(event.number)
            self.tell(mev.ReceiveFailed(event.number, error.to_record()))

    def cancel_receive(self, mine: int) -> bool:
        """Take a receive back; return whether that was in time."""
        number = self.receives.get(mine)
        if number is None or not self._session.host.node.point_to_point.cancel(number):
            return False
        self._forget_receive(mine)
        return True

    def _forget_receive(self, mine: int) -> None:
        self._session.of_receive.pop(self.receives.pop(mine), None)

    def _post_or_forget(
        self, event: Any, number: int, mine: dict[int, int], known: dict[int, Any]
    ) -> None:
        """Give the core what is noted already; what it does not take is not noted any more."""
        try:
            self._session.host.post(msgspec.structs.replace(event, number=number))
        except SapwoodError:
            mine.pop(event.number, None)
            known.pop(number, None)
            raise

    def _must_fit(self, number: int, table: dict[int, int]) -> None:
        if number in table or len(table) >= MAX_OPEN:
            raise ProtocolError(f"number {number} is in use, or too many are")

    # --- groups --------------------------------------------------------------------------------

    def _enter(self, event: gev.EnterGroup) -> None:
        key = (event.members, event.name)
        if key in self._session.entering:
            error = GroupError(
                "another client is entering this group already",
                hint="give groups of the same members different names",
            )
            self.tell(gev.GroupBroken(NO_GROUP, *key, error.to_record()))
            return
        self._session.entering[key] = self
        try:
            self._session.host.post(event)
        except SapwoodError:
            self._session.entering.pop(key, None)
            raise

    def _call_group(self, event: gev.CallGroup) -> None:
        if self._session.of_group.get(event.group, (None,))[0] is not self:
            if event.payload is not None:
                self.give_back(gev.Discarded(event.payload))
            return
        if event.call == LEAVE:
            del self._session.of_group[event.group]
        self._session.host.post(event)

    def _break_group(self, event: gev.BreakGroup) -> None:
        if event.group == NO_GROUP:
            mine = self._session.entering.get((event.members, event.name)) is self
        else:
            mine = self._session.of_group.get(event.group, (None,))[0] is self
        if mine:
            self._session.host.post(event)

    # --- what it hears -------------------------------------------------------------------------

    def tell(self, message: msgspec.Struct) -> None:
        """Send it a message, with memory for a copy of the payload."""
        if not self._there:
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
                message = _with_payload(message, self._copied(payload, kept=kept))
        self._write(message)

    def give_back(self, effect: ev.Released | gev.Discarded) -> None:
        """Release its memory."""
        if self._there and self._sharing and effect.payload.ref is not None:
            self._write(effect)

    def _write(self, message: msgspec.Struct) -> None:
        try:
            buffers = wire.pack(message, sharing=self._sharing)
        except ProtocolError as error:
            if not isinstance(message, wire.SessionAnswer):
                raise
            said = wire.SessionAnswer(message.number, None, error.to_record())
            buffers = wire.pack(said, sharing=self._sharing)
        self.connection.write(buffers)
        connection = self.connection
        unsent = getattr(connection, "unsent", 0)
        if unsent > MAX_UNSENT:
            _log.warning("client cut off", number=self.number, reason="it does not read")
            connection.abort()

    def _placed(self, encoded: values.Encoded) -> Payload | None:
        if not self._sharing:
            return Payload(encoded.payload()) if encoded.nbytes else None
        payload = self._session.pool.place(encoded)
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
        if not self._sharing or payload.nbytes <= self._session.options.inline_limit:
            return Payload(bytes(view))
        if kept:
            block = SharedBlock(payload.nbytes, [(0, view)])
        else:
            block = self._session.pool.take(payload.nbytes)
            block.view[: payload.nbytes] = view
        self._lent[block.fd] = (block, not kept)
        return Payload(block.view[: payload.nbytes], block.ref(0, payload.nbytes), block)

    def _memory_taken(self, message: wire.MemoryTaken) -> None:
        block, pooled = self._lent.pop(message.descriptor, (None, False))
        if block is None:
            return
        if pooled:
            self._session.pool.give_back(block)
        else:
            block.close()

    def gone(self) -> None:
        """It is gone: what it has under way ends, but for the streams of an owner."""
        self._there = False
        session, post = self._session, self._take_back
        for ref in self._offers:
            session.content.withdraw(ref)
        self._offers.clear()
        self._leave_streams()
        self._leave_groups()
        # A message that has not left is withdrawn at once, and then it is not in the table any
        # more.
        for number in tuple(self.asked.values()):
            post(mev.CancelRequest(number))
        for number in tuple(self.sends.values()):
            for rank in tuple(session.of_send[number][2]):
                post(mev.CancelSend(number, rank))
        for mine in list(self.receives):
            self.cancel_receive(mine)
        for rank, handler, body in self._opened.left():
            if rank in session.tree:
                session.ask_encoded(rank, handler, body, values.encode(None))
        for descriptor in list(self._lent):
            self._memory_taken(wire.MemoryTaken(descriptor))
        self.reader.blocks = None

    def _take_back(self, event: ev.Event) -> None:
        """End something that is under way, even if the core never took it."""
        try:
            if isinstance(event, ev.CloseStream):
                self._session.post_of_stream(event)
            else:
                self._session.host.post(event)
        except SapwoodError as error:
            _log.warning("not taken back", number=self.number, reason=error.what)

    def _leave_streams(self) -> None:
        streams, self._streams = self._streams, {}
        if self.role is ClientRole.OWNER:
            kept = self._server.kept_streams
            # No client can continue a run: its state was in the client.
            left = {m: s for m, s in streams.items() if s.spec.handler != agent_requests.MAP}
            kept.take(left)
            for mine, stream in left.items():
                self._session.of_stream[stream.number] = (kept, mine)
                del streams[mine]
        for stream in streams.values():
            del self._session.of_stream[stream.number]
            self._take_back(ev.CloseStream(stream.number))

    def _leave_groups(self) -> None:
        session, post = self._session, self._take_back
        error = GroupError("the client has left the session").to_record()
        for key, client in list(session.entering.items()):
            if client is self:
                post(gev.BreakGroup(NO_GROUP, *key, error, 1))
        for group, (client, key) in list(session.of_group.items()):
            if client is self:
                post(gev.BreakGroup(group, *key, error))
                del session.of_group[group]


def _kept_output(keeping: DisconnectPolicy) -> int:
    """Return how many bytes are kept of what each agent prints."""
    return 0 if keeping.output == "drop" else keeping.buffer


def _with_payload(message: msgspec.Struct, payload: Payload | None) -> msgspec.Struct:
    return msgspec.structs.replace(message, payload=payload)


class SessionServer:
    """Serves the clients of a session: what a listener gives their connections to.

    Args:
        session: The session.
        session_id: Its id.
        name: What users call it.
        verify: Says what a client may be.
        changed: Told on the loop's thread that clients have come or gone.
        end: Has the session ended; given why.
        keeping: Treatment of results that arrive without an attached client.
        refused: Told on the loop's thread of clients that were not let in, or cut off.
        largest: Bytes of the largest message and payload of a client: the root has it in memory.
        clock: The time, seconds since 1970.
        executor: Does what takes long; by default some threads.
        abandoned: Whether the owner of a former server of the session may be gone.

    Attributes:
        abandoned: Whether the session belonged to an owner that is gone without having left it.
    """

    def __init__(  # noqa: PLR0913 - what a server is made of has little in common
        self,
        session: ServedSession,
        session_id: str,
        name: str,
        verify: Verify,
        changed: Callable[[], None],
        end: Callable[[str], None],
        keeping: DisconnectPolicy,
        *,
        refused: Callable[[calls.ClientRefused], None] = lambda _told: None,
        largest: int = CommSettings().max_payload,
        clock: Callable[[], float] = time.time,
        executor: Executor | None = None,
        abandoned: bool = False,
    ) -> None:
        self._largest = max(largest, wire.MAX_STRANGE)
        self._refused = refused
        self.session = session
        self.id = session_id
        self._clock = clock
        self._name = name
        self._verify = verify
        self._changed = changed
        self._end = end
        self._clients: dict[int, ServedClient] = {}
        self._numbers = itertools.count(1)
        self._pool = executor or ThreadPoolExecutor(SLOW_CALLS, "sapwood-slow")
        self._removing = executor or ThreadPoolExecutor(SLOW_CALLS, "sapwood-removing")
        self._prompt = executor or ThreadPoolExecutor(1, "sapwood-prompt")
        self.merges = Merges(session, session_id, name, self._part_of, changed, self._largest)
        self.kept_streams = KeptStreams(keeping, session.post_of_stream)
        self._kept = KeptOutput(_kept_output(keeping))
        self._since = clock()
        self._was_attached = False
        self.abandoned = abandoned
        self._machine = machine_id()
        self._epoch = session.tree.epoch
        self._denied: frozenset[str] = frozenset()
        session.answer(agent_requests.OUTPUT, self.wrote)
        session.subscribe(self._places_changed)
        session.tree_changed = self._places_leave

    @property
    def owner(self) -> ServedClient | None:
        """Who owns the session now."""
        return next((one for one in self._admitted() if one.role is ClientRole.OWNER), None)

    @property
    def attached(self) -> bool:
        """Whether a client is attached that does more than watch."""
        return any(one.role in WORKING for one in self._admitted())

    @property
    def merged(self) -> bool:
        """Whether it is merged with another session."""
        return self.merges.begun or bool(self._part_of())

    def _part_of(self) -> list[str]:
        return [one.label for one in self._mergers()]

    def _mergers(self) -> list[ServedClient]:
        return [one for one in self._admitted() if one.role is ClientRole.MERGER]

    def _mergers_called(self, text: str) -> list[ServedClient]:
        return [one for one in self._mergers() if text in {one.label, *one.label.split("#")}]

    def change_keeping(self, keeping: DisconnectPolicy) -> None:
        """Act by another policy from now on; on the loop's thread."""
        self.kept_streams.change(keeping)
        self._kept.change(_kept_output(keeping))

    def status(self) -> SessionStatus:
        """Return how the session is; on the loop's thread."""
        owner, invited = self.owner, self.session.invited
        return SessionStatus(
            agents=self.session.tree.agents,
            owner=owner.label if owner is not None else "",
            front_ends=[f"{one.label} ({one.role.value})" for one in self._admitted() if one.role],
            streams=len(self.session.of_stream),
            since=self._since,
            kept=self._kept.nbytes,
            dropped=sum(self._kept.dropped.values()),
            invitations=[] if invited is None else invited.current(),
            agent_events=[] if invited is None else list(invited.events)[-TOLD_EVENTS:],
            merged=[one.handle for one in self.merges.views()],
            part_of=self._part_of(),
            owned=self.abandoned or any(one.owned for one in self._admitted()),
        )

    def _admitted(self) -> list[ServedClient]:
        return [one for one in self._clients.values() if one.role is not None]

    # --- connections ---------------------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a client of this machine in that has said nothing yet."""
        del initiator
        return self.open(connection, self._verify, here=True)

    def open(self, connection: Connection, verify: Verify, *, here: bool) -> int:
        """Take a client in that has said nothing yet.

        Args:
            connection: The connection with it.
            verify: Says what it may be.
            here: Whether it is on this machine: then both map each other's memory.
        """
        number = next(self._numbers)
        strangers = [one for one in self._clients.values() if one.role is None]
        if len(strangers) >= MAX_STRANGERS:
            self._cut_off(
                strangers[0], SecurityError("others wait, and it has not asked to attach")
            )
        made = ServedClient(number, connection, self, verify, here=here)
        self._clients[number] = made
        self.session.loop.call_later(STRANGER_PATIENCE, self._too_late, made)
        return number

    def _too_late(self, client: ServedClient) -> None:
        if client.role is None:
            self._cut_off(client, SecurityError("it has not asked to attach in time"))

    def _look_at_end(self, client: ServedClient, not_after: float) -> None:
        """Cut a client off when what it has shown ends."""
        left = not_after - self._clock()
        if self._clients.get(client.number) is not client or not_after == math.inf:
            return
        if left <= 0:
            self._cut_off(client, SecurityError("its credential has expired"))
        else:
            wait = min(left, LONGEST_TIMER)
            self.session.loop.call_later(wait, self._look_at_end, client, not_after)

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take in what a client says."""
        client = self._clients.get(number)
        if client is None:
            return
        try:
            for message in client.reader.feed(data):
                if self._clients.get(number) is not client:
                    return  # it was cut off meanwhile
                client.take(message)
        except SapwoodError as error:
            self._cut_off(client, error)
        except Exception as error:  # noqa: BLE001 - what one client says must not end the session
            doing = f"a message of client {number}"
            log_failure(doing, error)
            self._cut_off(client, as_error(error, doing))

    def _cut_off(self, client: ServedClient, error: SapwoodError) -> None:
        """End a connection, and tell the client why."""
        if self._clients.get(client.number) is not client:
            return
        _log.warning("client cut off", number=client.number, reason=error.what)
        if client.role is None:
            said: msgspec.Struct = wire.NotAdmitted(error.to_record())
        else:
            what = f"the session has cut this client off: {error.what}"
            record = msgspec.structs.replace(error.to_record(), what=what)
            said = wire.SessionEnds(what, record)
        if isinstance(error, SecurityError):
            self._note_refused(client, error)
        client.connection.write(wire.pack(said, sharing=False))
        client.connection.close()
        self.session.loop.call_later(FAREWELL, client.connection.abort)
        self.connection_closed(client.number, error.what)

    def _note_refused(self, client: ServedClient, error: SecurityError) -> None:
        """Have it noted who was not let in, or was cut off, and where they are."""
        way = client.connection
        address = way.facts().address if isinstance(way, TlsConnection) else ""
        told = calls.ClientRefused(
            session=self.id,
            reason=error.what,
            address=address,
            label=client.label,
            credential=error.where or (client.allowed.credential or ("",))[-1],
            attached=client.role is not None,
        )
        self._refused(told)

    def deny(self, ids: frozenset[str]) -> None:
        """Cut off those whose credential was revoked, and whom they invited; on the loop."""
        self._denied |= ids
        if self.session.invited is not None:
            self.session.invited.deny(ids)
        for client in self._admitted():
            found = ids & set(client.allowed.credential)
            if found:
                self._cut_off(client, SecurityError("its credential was revoked", where=min(found)))

    def connection_closed(self, number: int, reason: str) -> None:
        """A client is gone, with or without a word."""
        client = self._clients.pop(number, None)
        if client is None:
            return
        client.gone()
        self.abandoned = self.abandoned or client.owned
        self._kept.given_back(number)
        if client.role is not None:
            _log.info("client gone", number=number, label=client.label, reason=reason)
            self._note_change()

    def leave(self, client: ServedClient) -> None:
        """Detach a client that has asked for it: later results are for the next one."""
        client.owned = False
        client.connection.close()
        self.session.loop.call_later(FAREWELL, client.connection.abort)
        self.connection_closed(client.number, "it has left")

    def _note_change(self) -> None:
        """Clients have come or gone."""
        if self.attached is not self._was_attached:
            self._was_attached = self.attached
            self._since = self._clock()
        self._changed()

    def admit(self, client: ServedClient, asked: wire.AskToAttach) -> None:
        """Let a client in.

        Raises:
            SapwoodError: It may not.
        """
        if asked.version != wire.VERSION:
            raise ProtocolError(
                f"the client speaks version {asked.version}, the session {wire.VERSION}",
                hint="use the same version of Sapwood in both",
            )
        if asked.session != self.id:
            raise ConfigurationError(
                f"the session {asked.session} is not here", hint="it has ended: make a new one"
            )
        try:
            wanted = ClientRole(asked.role)
        except ValueError:
            raise ProtocolError(f"a client cannot be {shown(asked.role)}") from None
        client.label = wire.printable(asked.label[:200])
        allowed = client.verify(asked)
        if wanted not in allowed.roles:
            may = ", ".join(sorted(role.value for role in allowed.roles))
            raise SecurityError(
                f"the credential does not let you be {wanted.value}",
                hint=f"attach with another role: {may}",
            )
        if wanted is ClientRole.MERGER and self.merges.begun:
            raise ConfigurationError(
                f"the session '{self._name}' has others merged into it, and so cannot be merged "
                "into one more",
                hint="split those off first",
            )
        self._check_room(wanted)
        owner = self.owner
        if wanted is ClientRole.OWNER and owner is not None:
            raise ConfigurationError(
                f"the session '{self._name}' has an owner: {owner.label}",
                hint='attach with role="user" to work beside it, or "watch"',
            )
        session = self.session
        same = client.here and asked.machine == self._machine
        shares = session.options.shared_memory and same
        failure = session.failure
        client.tell(
            wire.Admitted(
                session=self.id,
                name=self._name,
                tree=session.tree,
                platforms=session.platforms,
                pythons=session.pythons,
                places=tuple(self._places()),
                hosts=session.host.hosts,
                shares_memory=shares,
                failure=None if failure is None else failure.to_record(),
                number=client.number,
                largest=self._largest,
            )
        )
        client.role, client.allowed = wanted, allowed
        calls_only = wanted is ClientRole.WATCHER
        client.reader.max_payload = wire.MAX_STRANGE if calls_only else self._largest
        if shares:
            client.share()
        if wanted is ClientRole.OWNER:
            client.owned, self.abandoned = asked.owned, False
            client.inherit(self.kept_streams)
        if wanted in WORKING:
            for message in self._kept.take(client.number):
                client.tell(message)
            client.tell(wire.AllHandedOver(client.streams))
        self._look_at_end(client, allowed.not_after)
        _log.info("client attached", number=client.number, role=wanted.value)
        self._note_change()

    def _check_room(self, wanted: ClientRole) -> None:
        """Refuse a client when there are enough of them.

        Raises:
            ConfigurationError: There are.
        """
        there = self._admitted()
        watchers = sum(one.role is ClientRole.WATCHER for one in there)
        if len(there) >= MAX_CLIENTS:
            found = f"{MAX_CLIENTS} clients are attached to"
        elif wanted is ClientRole.WATCHER and watchers >= MAX_WATCHERS:
            found = f"{MAX_WATCHERS} clients watch"
        else:
            return
        raise ConfigurationError(
            f"{found} the session '{self._name}'", hint="let some of them leave first"
        )

    def close(self, reason: str) -> None:
        """Tell all clients that the session ends; on the loop's thread."""
        self.merges.close()
        for client in list(self._clients.values()):
            client.tell(wire.SessionEnds(reason))
            client.connection.close()

    def stop(self) -> None:
        """End the threads; when the session has ended."""
        for pool in {self._pool, self._removing, self._prompt}:
            pool.shutdown(cancel_futures=True)

    # --- calls ---------------------------------------------------------------------------------

    def answer(self, client: ServedClient, call: wire.SessionCall) -> Any:
        """Return the answer to a call, or a future that gets it.

        Raises:
            SapwoodError: There is none.
        """
        name, value = call.name, call.value
        require_call(name, client.role, client.allowed)
        if name in _CALLS_ABOUT_MERGES:
            return self._about_merges(client, call)
        if name in {session_calls.STATUS, session_calls.MACHINES, session_calls.DETACH}:
            return self._told(name)
        if name == session_calls.TAKEN:
            self._taken(client)
            return None
        if name in _INVITING:
            return self._invited(client, name, value)
        if name in _CHANGING:
            return self._change_agents(name, value)
        if name == session_calls.END:
            self._end(f"{client.label} has ended it")
            return None
        if name == session_calls.CANCEL_RECEIVE:
            return client.cancel_receive(typed.convert(value, int))
        return self._content(client, call)

    def _change_agents(self, name: str, value: Any) -> Future[Any]:
        """Add or remove agents."""
        if name == session_calls.EXPAND:
            places = typed.convert(value, list[NewAgent])
            return self._pool.submit(self.session.expand, places)
        ranks, seconds, reason = typed.convert(value, tuple[list[int], float, str])
        if not 0 <= seconds <= LONGEST_CONTRACT:
            raise ConfigurationError(
                f"agents are not given {seconds:g} s to do what they were asked for",
                hint=f"say how many seconds, up to {LONGEST_CONTRACT:g}",
            )
        reason = wire.printable(reason[:200])
        return self._removing.submit(self.session.contract, ranks, seconds, reason)

    def _taken(self, client: ServedClient) -> None:
        """A client has what was kept for it."""
        self._kept.taken(client.number)
        if client.role is ClientRole.OWNER:
            self.kept_streams.taken()

    def _told(self, name: str) -> Any:
        """Answer what every client may want."""
        if name == session_calls.STATUS:
            return msgspec.to_builtins(self.status())
        if name == session_calls.MACHINES:
            return [list(self.session.hosts), self.session.ready_hosts()]
        return None

    def _invited(self, client: ServedClient, name: str, value: Any) -> Any:
        """Do what concerns invitations."""
        invitations = self.session.invitations
        if name == session_calls.INVITE:
            count, lifetime, listen = typed.convert(value, tuple[int, float, str])
            shown = client.allowed
            lifetime = min(lifetime, shown.not_after - self._clock())
            return self._pool.submit(self._invite, count, lifetime, listen, shown.credential)
        if name == session_calls.REVOKE_INVITATION:
            return self._prompt.submit(invitations.revoke, typed.convert(value, str))
        return self._prompt.submit(lambda: msgspec.to_builtins(invitations.views()))

    def _invite(self, count: int, lifetime: float, listen: str, by: tuple[str, ...]) -> list[str]:
        """Make invitations that end with a credential; on a thread that may wait."""
        invitations = self.session.invitations
        lines = invitations.create(count, lifetime, listen, by)
        if not self._denied.isdisjoint(by):  # meanwhile
            self.session.call(invitations.deny, self._denied)
            raise SecurityError("the credential was revoked", hint="use another one")
        return lines

    def _about_merges(self, client: ServedClient, call: wire.SessionCall) -> Any:
        """Merge this session with another one, or split both; also for who is not its owner now.

        Raises:
            SapwoodError: It cannot be done.
        """
        if call.name == session_calls.MERGED:
            return msgspec.to_builtins(self.merges.views())
        if call.name == session_calls.SPLIT:
            wanted = typed.convert(call.value, SplitOrder)
            above = self._mergers_called(wanted.session)
            for one in above:
                self._cut_off(one, ClosedError(f"the owner of '{self._name}' has split the two"))
            return None if above else self.merges.split(wanted)
        order = typed.convert(call.value, MergeOrder)
        if order.socket and not client.here:
            raise SecurityError(
                "a client on another machine needs a credential of the other session",
                hint="`sapwood credential issue --rights connect,merge --session …` makes one",
            )
        return self.merges.merge(order)

    def _content(self, client: ServedClient, call: wire.SessionCall) -> None:
        content, value = self.session.content, call.value
        if (
            call.name in {session_calls.OFFER_FILE, session_calls.OFFER_MEMORY}
            and not client.shares
        ):
            raise SecurityError(
                "a client of another machine offers bytes: files and memory here are not its own"
            )
        if call.name == session_calls.OFFER:
            data = call.payload.view if call.payload is not None else memoryview(b"")
            client.offered(content.offer(data, typed.convert(value, str)))
        elif call.name == session_calls.OFFER_MEMORY:
            memory, sha256 = typed.convert(value, tuple[SharedRef, str])
            client.offered(content.offer_memory_of(memory, sha256))
        elif call.name == session_calls.OFFER_FILE:
            ref = typed.convert(value, ContentRef)
            if ref.file is None:
                raise ProtocolError("a file without a name is offered")
            client.offered(content.offer_file(ref.file, ref.offset, ref.nbytes, ref.sha256))
        elif call.name == session_calls.WITHDRAW:
            ref = typed.convert(value, ContentRef)
            if client.withdrawn(ref):
                content.withdraw(ref)
        else:
            raise ProtocolError(
                f"the server of a session knows no '{call.name}'",
                hint="is it of another version of Sapwood?",
            )

    # --- messages to clients -------------------------------------------------------------------

    def wrote(self, rank: int, data: bytes) -> None:
        """Pass on what a place has printed, or keep it; on the loop's thread."""
        if not self.attached:
            self._kept.add(rank, data)
        for client in self._admitted():
            if client.role is not ClientRole.MERGER:
                client.tell(wire.PlaceWrote(rank, data))

    def _places(self) -> list[PlaceView]:
        records = self.session.supervisor.processes
        return [
            self.session.view_of(one)
            for one in (records[rank] for rank in range(1, self.session.tree.size))
        ]

    def _places_leave(self) -> None:
        """Tell clients of a tree without places that have work to do still."""
        self._places_changed(PlacesChanged((), (), back=False, epoch=self.session.tree.epoch))

    def _places_changed(self, change: PlacesChanged) -> None:
        tree, failure = self.session.tree, self.session.failure
        news = wire.TreeNews(
            change,
            tree if tree.epoch != self._epoch else None,
            tuple(self._places()),
            None if failure is None else failure.to_record(),
        )
        self._epoch = tree.epoch
        for client in self._admitted():
            client.tell(news)


def _nothing() -> None:
    pass


class RemoteDoor:
    """Where clients on other machines come in: they show a credential.

    Args:
        server: Serves them.
        verify: Says what they may be.
    """

    def __init__(self, server: SessionServer, verify: Verify) -> None:
        self._server = server
        self._verify = verify
        self.bytes_received = server.bytes_received
        self.connection_closed = server.connection_closed

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a client in that has said nothing yet."""
        del initiator
        return self._server.open(connection, self._verify, here=False)


_INVITING = frozenset(
    {session_calls.INVITE, session_calls.INVITATIONS, session_calls.REVOKE_INVITATION}
)
_CHANGING = frozenset({session_calls.EXPAND, session_calls.CONTRACT})

_AT_ROOT = frozenset({f"rank {ROOT}", "depth 0", "*"})
"""Where filters of one's own may run at the root."""

_OF_MERGERS = (
    wire.SessionCall,
    ev.OpenStream,
    ev.Broadcast,
    ev.CloseStream,
    ev.ConfigureStream,
    ev.Read,
    ev.SweepStream,
)
"""What the server of another session may say."""

_CALLS_ABOUT_MERGES = frozenset({session_calls.MERGED, session_calls.MERGE, session_calls.SPLIT})
