"""What a head knows of its sessions, and what it has done about them. No I/O but its store.

A session is written down before its root begins, and again with each step. So the next head finds
it as it was before a step or as it was after: it looks for the root, and continues or clears up.
What roots are made of is elsewhere: see :class:`ServerProcesses`.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import msgspec

from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    ProtocolError,
    ResourceError,
    SapwoodError,
    StoreError,
)
from sapwood.core.futures import CallerFuture, when_done
from sapwood.core.hints import command
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.environment.settings import DisconnectPolicy, PolicySettings
from sapwood.head import calls, session_records
from sapwood.head.restarts import begun_again
from sapwood.head.session_notices import SessionNotice
from sapwood.nodes.note_event import NoteEvent
from sapwood.session.session_life import TRANSITIONS, SessionState, SessionStep, may_report
from sapwood.store.base import Delete, Put, Store

MAX_SESSIONS = 256
"""Sessions that may be there at a time."""

MAX_ENDED = 100
"""The most ended sessions that are still listed, the last ones."""

STORE_RETRY = 1.0
"""Seconds between two tries to record that a root restarts, such as on a full disk."""

DOWN = "the cluster is down"
LOST = "its process ended while the head was down"

_ATTACHABLE = frozenset({SessionState.DETACHED.value, SessionState.READY.value})

_SESSIONS = "sessions/"
_SECRETS = "session-secrets/"
_PLANS = "session-plans/"
_ID = re.compile(r"[0-9a-f]{8}")
_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,62}[a-zA-Z0-9])?")

_log = logger("head")


class ServerPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a session server.

    Attributes:
        id: Of its session.
        cluster: What the user calls the cluster of the head.
        wanted: What the session is to be.
        secret: What clients on other machines must know.
        idle: Seconds without attached clients after which it ends; 0 for never.
        disconnect: Treatment of results that arrive without an attached client.
        user: The user of nodes as whom its processes run; empty for the user of their daemons.
        machines: Nodes that the one before it was on, which are waited for a while.
        former: What nodes call the processes of the one before it, which are ended.
        credential: Ids of the credential that makes it; none for the head's user.
        abandoned: Whether the one before it had an owner that may be gone without having left it.
    """

    id: str
    cluster: str
    wanted: session_records.CreateSession
    secret: str
    idle: float
    disconnect: DisconnectPolicy
    user: str = ""
    machines: int = 0
    former: str = ""
    credential: tuple[str, ...] = ()
    abandoned: bool = False


class ServerReady(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a root says when it is ready, or has to wait for its machines.

    Attributes:
        pid: The process.
        socket: Where clients reach it; empty while it waits.
        idle: Seconds without attached clients after which it ends; 0 for never.
        report: How it is.
        machines: Nodes that it is on.
        tree: What these call its processes.
        folders: Folders of its sockets besides the one of ``socket``.
    """

    pid: int
    socket: str
    idle: float
    report: session_records.SessionReport
    machines: int = 0
    tree: str = ""
    folders: list[str] = []


class ServerWatch(Protocol):
    """The process of a root, as a head has it."""

    def end(self) -> Future[session_records.SessionRecord]:
        """Stop it, by force if needed; the future is done when its end was reported."""

    def forget(self) -> None:
        """Hear no more of it."""


class ServerProcesses(Protocol):
    """What begins and watches the roots of sessions."""

    def begin(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root; the future gets what it says when it is ready, or why there is none."""

    def begin_again(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root again, which was killed; nodes may come back later than the head.

        The future gets a :class:`~sapwood.core.errors.ClosedError` when the head ends before that.
        """

    def give_up(self, session: str) -> None:
        """Begin the root of a session not again; the future gets a ``CancelledError``."""

    def watch(self, pid: int, began: int, ended: Callable[[str], None]) -> ServerWatch:
        """Subscribe to the end of a root: ``ended`` receives how it ended, as text.

        Raises:
            ProcessLookupError: It has ended.
        """

    def began(self, pid: int) -> int:
        """Return when a process began; 0 if there is none."""

    def notices(self) -> Sequence[SessionNotice]:
        """Return the notices that roots have written; some may have been killed."""

    def clear(self, session: str, sockets: Sequence[str]) -> None:
        """Remove what a root has left: its notice, and the folders of its sockets."""

    def later(self, seconds: float, function: Callable[..., object], *args: object) -> None:
        """Have a function called after some time, if the head still works then."""


_read_plan: Callable[[bytes], ServerPlan] = typed.unpacker(ServerPlan)
_read_record: Callable[[bytes], session_records.SessionRecord] = typed.unpacker(
    session_records.SessionRecord
)


class SessionRegistry:
    """The sessions of a head.

    Args:
        store: Returns what keeps what outlives the head.
        cluster: What the user calls the cluster.
        machine: That of the head: roots begin there.
        processes: What begins and watches roots.
        policy: Returns the policy of the moment.
        note: Notes events in the ledger.
        clock: The time, seconds since 1970.

    Attributes:
        cluster: What the user calls the cluster.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        cluster: str,
        machine: str,
        processes: ServerProcesses,
        policy: Callable[[], PolicySettings],
        note: NoteEvent,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.processes = processes
        self._policy = policy
        self._note = note
        self._opened = store
        self.cluster = cluster
        self._machine = machine
        self._clock = clock
        self._lock = threading.RLock()
        self._records: dict[str, session_records.SessionRecord] = {}
        self._watched: dict[str, ServerWatch] = {}
        self._early: dict[str, session_records.SessionReport] = {}
        self._ending: dict[str, list[Future[session_records.SessionRecord]]] = {}
        self._closing = False

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the sessions that a former head has begun."""
        notices = {one.id: one for one in self.processes.notices()}
        for record in self._opened().decoded(_SESSIONS, _read_record):
            self._records[record.id] = record
            if not SessionState(record.state).is_over and record.machine == self._machine:
                self._go_on(record, notices.get(record.id))  # others are looked after elsewhere
        self._sweep()

    def _go_on(self, record: session_records.SessionRecord, notice: SessionNotice | None) -> None:
        """Look after a session that a former head has begun, or clear up after it."""
        if not record.pid and notice is not None:  # that head was killed before it heard of it
            record = msgspec.structs.replace(
                record,
                state=SessionState.DETACHED.value if notice.ready else record.state,
                pid=notice.pid,
                started=notice.started,
                socket=notice.socket if notice.ready else "",
            )
        if record.restarts and not record.pid:  # the former head was beginning it again
            self._lost(record, LOST)
            return
        if notice is not None and notice.ready and not record.socket:  # it has its machines by now
            ends = record.state == SessionState.DRAINING.value
            state = record.state if ends else SessionState.DETACHED.value
            record = msgspec.structs.replace(record, state=state, socket=notice.socket)
        if record.pid and notice is None:
            self._ended_normally(record, "it ended while the head was down")
            return
        if not record.pid:
            self._over(record, LOST)
            return
        if self.processes.began(record.pid) != record.started:
            self._lost(record, LOST)
            return
        _log.info("session found", session=record.handle, pid=record.pid)
        self._keep(record)
        self._watch(record)
        with contextlib.suppress(SapwoodError):
            if record.state == SessionState.DRAINING.value:
                self._end(record, record.reason)  # the former head was killed over it

    def _sweep(self) -> None:
        """Clear up after roots that were killed when no head knew of them."""
        for one in self.processes.notices():
            with self._lock:
                record = self._records.get(one.id)
            looked_after = record is not None and not SessionState(record.state).is_over
            if not one.pid:
                continue  # it cannot be read: its root may be running
            if not looked_after and self.processes.began(one.pid) != one.started:
                self.processes.clear(one.id, [one.socket] if one.socket else [])

    def close(self, *, keep: bool = False) -> list[Future[session_records.SessionRecord]]:
        """End all sessions, or leave them to the next head; return what is done with their ends."""
        ends: list[Future[session_records.SessionRecord]] = []
        if not keep:
            with self._lock:
                self._closing = True  # starting sessions end themselves
            for record in self.records():
                if not SessionState(record.state).is_over:
                    with contextlib.suppress(SapwoodError):
                        ends.append(self._end(record, DOWN))
            self._sweep()
        return ends

    def forget(self) -> None:
        """Hear no more of any root."""
        for watch in list(self._watched.values()):
            watch.forget()

    # --- what clients want --------------------------------------------------------------------

    def records(self) -> list[session_records.SessionRecord]:
        """Return the sessions, in the order in which they were asked for."""
        records = list(self._records.values())  # without the lock, which is held over a slow store
        return sorted(records, key=lambda one: one.created)

    def find(self, text: str) -> session_records.SessionRecord:
        """Return a session by name, id or both.

        Raises:
            ConfigurationError: There is none, and has not been one lately.
        """
        name, _, number = text.rpartition("#")
        found = [
            one
            for one in self.records()
            if (one.handle == text if name else number in {one.name, one.id})
        ]
        if not found:
            known = ", ".join(
                one.name for one in self.records() if not SessionState(one.state).is_over
            )
            raise ConfigurationError(
                f"session '{text}' does not exist",
                hint=f"sessions are {known}" if known else "`sapwood session create` creates one",
            )
        by_id = [one for one in found if one.id == number]
        living = [one for one in found if not SessionState(one.state).is_over]
        return (by_id or living or found)[-1]

    def server_starts(self, session: str) -> bool:
        """Whether the root of a session is there, or will be soon; by the session's id.

        It does not wait, because the loop of the head's port calls it.
        """
        record = self._records.get(session)
        if record is None or record.machine != self._machine:
            return False
        state = SessionState(record.state)
        return not state.is_over and state is not SessionState.DRAINING

    def joined(self) -> list[calls.JoinedOf]:
        """Return the agents of sessions that joined by an invitation."""
        living = (one for one in self.records() if not SessionState(one.state).is_over)
        return [
            calls.JoinedOf(record.handle, agent)
            for record in living
            for agent in (record.report.invitations if record.report is not None else ())
            if agent.rank
        ]

    def create(
        self,
        wanted: session_records.CreateSession,
        creator: session_records.SessionCreator | None = None,
    ) -> Future[session_records.SessionRecord]:
        """Begin a session; the future gets its record.

        Args:
            wanted: What it is to be.
            creator: Whose credential makes it; None for the head's user.

        Raises:
            ConfigurationError: It cannot be called so, or there are too many.
            StoreError: It cannot be written down; then there is none.
        """
        self._sweep()
        with self._lock:
            living = [one for one in self.records() if not SessionState(one.state).is_over]
            if len(living) >= MAX_SESSIONS:
                raise ConfigurationError(
                    f"there are {MAX_SESSIONS} sessions", hint="end some of them first"
                )
            session = secrets.token_hex(4)
            name = wanted.name or f"s-{session[:4]}"
            if _NAME.fullmatch(name) is None or _ID.fullmatch(name) is not None:
                raise ConfigurationError(
                    f"{shown(name)} cannot be the name of a session",
                    hint="use up to 64 letters, digits, dots and hyphens, such as night-run; eight "
                    "hexadecimal digits would be an id",
                )
            if any(one.name == name for one in living):
                raise ConfigurationError(
                    f"there is a session '{name}' already",
                    hint=f"{command('session', 'show', name)} shows it; choose another name",
                )
            requested = session_records.SessionRecord(
                id=session,
                name=name,
                state=SessionState.REQUESTED.value,
                on=wanted.on,
                created=self._clock(),
                machine=self._machine,
                creator=creator,
            )
            record, plan = self._after(requested, SessionStep.BEGUN), self._plan(requested, wanted)
            self._opened().transact(
                [
                    Put(_SECRETS + session, plan.secret.encode()),
                    Put(_PLANS + session, msgspec.msgpack.encode(plan)),
                    Put(_SESSIONS + session, msgspec.msgpack.encode(record)),
                ]
            )
            self._records[session] = record
        facts = {"name": name, "on": wanted.on}
        self._note("session.created", f"created {record.handle}", session=name, facts=facts)
        answer: Future[session_records.SessionRecord] = CallerFuture()
        answer.set_running_or_notify_cancel()
        beginning = self.processes.begin(plan)
        when_done(beginning, partial(self._begun, record, answer))
        return answer

    def end(self, text: str) -> Future[session_records.SessionRecord]:
        """End a session; the future gets its record.

        Raises:
            ClosedError: It has ended already.
            ResourceError: It is still starting, or on another machine.
        """
        record = self.find(text)
        if SessionState(record.state).is_over:
            raise ClosedError(
                f"the session '{record.handle}' has ended already", hint=record.reason
            )
        return self._end(record, "it was deleted")

    def secret_of(self, record: session_records.SessionRecord) -> str:
        """Return what clients of a session on other machines must know.

        Raises:
            ClosedError: It has ended.
        """
        entry = self._opened().get(_SECRETS + record.id)
        if entry is None:
            raise ClosedError(f"the session '{record.handle}' has ended", hint=record.reason)
        return entry.value.decode()

    def share(self, record: session_records.SessionRecord) -> None:
        """Record that a session leaves out reserved nodes from now on."""
        with self._lock:
            known = self._records.get(record.id, record)
            if not known.shared:
                self._keep(msgspec.structs.replace(known, shared=True))

    def report(self, report: session_records.SessionReport) -> bool:
        """Record a report of a root; return whether it may continue.

        No client would find a root whose session is over for the head.

        Raises:
            ProtocolError: Its session cannot be in the state that it says.
        """
        with self._lock:
            record = self._records.get(report.id)
            if record is None:
                return True  # of a head that this one knows nothing of
            if SessionState(record.state).is_over:
                return record.machine != self._machine
            _check_state(record, report.state)
            if record.pid and report.pid and report.pid != record.pid:
                return True  # the last message of a root that was killed
            if not record.pid:  # it is ready, and has reported this before
                self._early[report.id] = report
                return True
            self._note_agents(record, report)
            self._note_wait(record, report)
            state = report.state
            if record.state == SessionState.DRAINING.value:  # the head knows why it ends it
                state, reason = record.state, record.reason or report.reason
                report = msgspec.structs.replace(report, reason=reason)
            idle = record.idle if report.idle is None else report.idle
            record, former = self._with_socket(record, state), record
            self._keep(msgspec.structs.replace(record, state=state, report=report, idle=idle))
        self._note_merges(former, report)
        return True

    def _with_socket(
        self, record: session_records.SessionRecord, state: str
    ) -> session_records.SessionRecord:
        """Return a session with where its root is reached, which a root that waited has not said.

        Args:
            record: The session.
            state: In which it is now.
        """
        if record.socket or state not in _ATTACHABLE:
            return record
        for notice in self.processes.notices():
            if (notice.id, notice.pid) == (record.id, record.pid):
                return msgspec.structs.replace(record, socket=notice.socket)
        return record

    def _note_wait(
        self, record: session_records.SessionRecord, report: session_records.SessionReport
    ) -> None:
        """Note for what machines a session waits, and that it has them."""
        before = "" if record.report is None else record.report.waits
        if report.waits and not before:
            self._note("session.delayed", report.waits, session=record.name)
        elif before and not report.waits and report.state == SessionState.STARTING.value:
            self._note("session.allocated", "its machines are ready", session=record.name)

    def _note_agents(
        self, record: session_records.SessionRecord, report: session_records.SessionReport
    ) -> None:
        """Note what has happened to agents that others start, as far as it is not noted yet."""
        before = [] if record.report is None else record.report.agent_events
        noted = before[-1].number if before else 0
        for event in report.agent_events:
            if event.number > noted:
                self._note(event.kind, event.text, session=record.name, facts=event.facts)

    def _note_merges(
        self, record: session_records.SessionRecord, report: session_records.SessionReport
    ) -> None:
        """Note with which sessions one is merged now, and with which no more."""
        before = record.report or session_records.SessionReport(id=record.id, state="")
        for was, now, how in (
            (before.merged, report.merged, ("{0} was merged into {1}", "{0} was split from {1}")),
            (before.part_of, report.part_of, ("{1} was merged into {0}", "{1} was split from {0}")),
        ):
            for other in sorted({*was} ^ {*now}):
                merged = other in now
                self._note(
                    "session.merged" if merged else "session.split",
                    how[0 if merged else 1].format(other, record.handle),
                    session=record.name,
                    facts={"with": other},
                )

    # --- step by step --------------------------------------------------------------------------

    def _plan(
        self, record: session_records.SessionRecord, wanted: session_records.CreateSession
    ) -> ServerPlan:
        policy = self._policy()
        return ServerPlan(
            id=record.id,
            cluster=self.cluster,
            wanted=msgspec.structs.replace(wanted, name=record.name),
            secret=secrets.token_urlsafe(32),
            idle=policy.idle.session if wanted.idle is None else wanted.idle,
            disconnect=policy.disconnect,
            user="" if record.creator is None else record.creator.user,
            credential=() if record.creator is None else tuple(record.creator.ids),
        )

    def _begun(
        self,
        record: session_records.SessionRecord,
        answer: Future[session_records.SessionRecord],
        beginning: Future[ServerReady],
    ) -> None:
        """A root is ready, or there is none."""
        try:
            ready = beginning.result()
            with self._lock:
                known = self._records.get(record.id, record)
                if SessionState(known.state).is_over:
                    self._disown(ready)
                    raise ClosedError(f"the session '{record.handle}' has ended")
                ends = known.state == SessionState.DRAINING.value
                waits = ready.report.state == SessionState.DELAYED.value
                step = SessionStep.WAITS if waits else SessionStep.STARTED
                after = known if ends else self._after(record, step)
                report = known.report if ends else ready.report
                record = msgspec.structs.replace(
                    after,
                    pid=ready.pid,
                    started=self.processes.began(ready.pid),
                    socket=ready.socket,
                    idle=ready.idle,
                    report=report,
                    machines=ready.machines,
                    tree=ready.tree,
                    folders=ready.folders,
                )
                self._keep(record)
                if waits and not ends:
                    self._note_wait(known, ready.report)
                early = self._early.pop(record.id, None)
                if early is not None and early.pid in {0, record.pid}:
                    self.report(early)  # each change is reported, so it is the later one
            self._watch(record)
        except BaseException as error:  # noqa: BLE001 - handed to who waits
            try:
                if record.restarts and isinstance(error, ClosedError) and not self._closing:
                    return  # the head ends: the next one begins it again
                what = error.what if isinstance(error, SapwoodError) else shown(error)
                self._not_begun(record, what)
            finally:
                answer.set_exception(error)
            return
        if ends:  # it was ended meanwhile
            with contextlib.suppress(SapwoodError):
                when_done(self._end(record, known.reason), partial(_pass_on, answer))
                return
        _log.info("session begun", session=record.handle, pid=record.pid)
        if self._closing:
            with contextlib.suppress(SapwoodError):
                when_done(self._end(record, DOWN), partial(_pass_on, answer))
                return
        answer.set_result(record)

    def _disown(self, ready: ServerReady) -> None:
        """Stop a root that is no longer awaited."""
        with contextlib.suppress(OSError):
            watch = self.processes.watch(
                ready.pid, self.processes.began(ready.pid), lambda _how: None
            )
            watch.end()

    def _not_begun(self, record: session_records.SessionRecord, reason: str) -> None:
        """Handle a missing root, or one that cannot be recorded and so would not be found."""
        with self._lock:
            watch = self._watched.get(record.id)
            if watch is None and record.pid:
                with contextlib.suppress(OSError):  # it is gone, or cannot be watched
                    watch = self.processes.watch(
                        record.pid, record.started, partial(self._ended, record.id)
                    )
                    self._watched[record.id] = watch
        if watch is None:
            self._over(record, self._records[record.id].reason or reason)
            return
        try:
            self._end(record, reason)
        except SapwoodError:  # that cannot be written down, either
            watch.end()

    def _end(
        self, record: session_records.SessionRecord, reason: str
    ) -> Future[session_records.SessionRecord]:
        """Have a root end; the future gets the record of its session then."""
        answer: Future[session_records.SessionRecord] = CallerFuture()
        answer.set_running_or_notify_cancel()
        with self._lock:
            watch, known = self._watched.get(record.id), self._records[record.id]
            if watch is None and SessionState(known.state).is_over:
                answer.set_result(known)  # it has ended meanwhile
                return answer
            if watch is None and record.machine != self._machine:
                raise ResourceError(
                    f"the session '{record.handle}' is on another machine",
                    hint="attach to it and close it, or end it by a head there",
                )
            if watch is None and (known.pid or not known.restarts):
                raise ResourceError(
                    f"the session '{record.handle}' is still starting", hint="try again soon"
                )
            draining = self._after(known, SessionStep.ENDS)
            report = known.report or session_records.SessionReport(id=record.id, state="")
            report = msgspec.structs.replace(report, reason=reason)
            self._keep(msgspec.structs.replace(draining, report=report))
            if watch is None:  # its root is being restarted
                self._ending.setdefault(record.id, []).append(answer)
        if watch is None:
            self.processes.give_up(record.id)
            return answer

        def ended(done: Future[session_records.SessionRecord]) -> None:
            if done.cancelled() or done.exception() is not None:
                answer.set_exception(done.exception() or ClosedError("the head ends"))
            else:
                answer.set_result(self._records.get(record.id, record))

        when_done(watch.end(), ended)
        return answer

    def _watch(self, record: session_records.SessionRecord) -> None:
        """Hear of the end of a root's process."""
        try:
            with self._lock:
                self._watched[record.id] = self.processes.watch(
                    record.pid, record.started, partial(self._ended, record.id)
                )
        except ProcessLookupError:
            self._lost(record, "its process has ended")

    def _ended(self, session: str, how: str) -> None:
        """The process of a root has ended."""
        with self._lock:
            del self._watched[session]
            record = self._records[session]
            reason = "" if record.report is None else record.report.reason
            if reason:
                self._over(record, reason)
            elif any(one.id == session for one in self.processes.notices()):
                self._lost(record, how)
            else:  # it ended normally, and its last report was lost
                self._ended_normally(record, "it ended")

    def _ended_normally(self, record: session_records.SessionRecord, reason: str) -> None:
        """The root of a session has removed its notice, so it was not killed."""
        self._keep(self._after(record, SessionStep.ENDS))
        self._over(record, reason)

    def _lost(self, record: session_records.SessionRecord, reason: str) -> None:
        """The root of a session was killed: begin it again, if the policy allows that."""
        try:
            with self._lock:
                record = self._records[record.id]
                again = self._restarted(record)
                if again is None:
                    self._over(record, reason)
                    return
                plan, times = again
                former = record
                record = msgspec.structs.replace(
                    self._after(record, SessionStep.LOST),
                    pid=0,
                    started=0,
                    socket="",
                    folders=[],
                    report=session_records.SessionReport(
                        id=record.id,
                        state=SessionState.STARTING.value,
                        owned=record.report is not None and record.report.owned,
                    ),
                    restarts=times,
                )
                self._early.pop(record.id, None)
                self._records[record.id] = record
        except SapwoodError as error:
            _log.warning("session not restarted", session=record.handle, reason=error.what)
            self._over(record, reason)
            return
        self._begin_again(record, former, plan, reason)

    def _begin_again(
        self,
        record: session_records.SessionRecord,
        former: session_records.SessionRecord,
        plan: ServerPlan,
        reason: str,
    ) -> None:
        """Begin a root again once that is recorded: else no later head would know of it.

        Args:
            record: The session from now on.
            former: The session as it was.
            plan: How its root is made.
            reason: Why its root is gone.
        """
        with self._lock:
            known = self._records.get(record.id)
            if known is not record:  # it was ended while the store could not be written
                if known is not None and known.state == SessionState.DRAINING.value:
                    self._over(known, known.reason or reason)
                return
            if self._closing:
                return  # the next head finds that its root is gone
            try:
                self._keep(record)
            except StoreError as error:
                _log.warning("session not restarted yet", session=plan.id, reason=error.what)
                self.processes.later(STORE_RETRY, self._begin_again, record, former, plan, reason)
                return
            self._clear(former)
        _log.warning("session restarts", session=record.handle, reason=reason)
        facts = {"restarts": str(len(record.restarts))}
        self._note(
            "session.restarted", f"{record.handle}: {reason}", session=record.name, facts=facts
        )
        answer: Future[session_records.SessionRecord] = CallerFuture()
        answer.set_running_or_notify_cancel()
        plan = msgspec.structs.replace(
            plan,
            machines=record.machines,
            former=record.tree,
            abandoned=record.report is not None and record.report.owned,
        )
        beginning = self.processes.begin_again(plan)
        when_done(beginning, partial(self._begun, record, answer))

    def _restarted(
        self, record: session_records.SessionRecord
    ) -> tuple[ServerPlan, tuple[float, ...]] | None:
        """Return how a root is restarted, and all times of restarts; None if it is not."""
        if self._closing or SessionState(record.state) is SessionState.DRAINING:
            return None
        policy = self._policy().restarts
        if policy.root == "end":
            return None
        times = begun_again(record.restarts, policy, self._clock())
        plan = self._opened().get(_PLANS + record.id)
        if times is None or plan is None:
            return None
        try:
            return _read_plan(plan.value), times
        except msgspec.MsgspecError as error:
            raise StoreError(f"how the session was made cannot be read: {error}") from error

    def _clear(self, record: session_records.SessionRecord) -> None:
        """Remove what the process of a root has left."""
        sockets = [record.socket] if record.socket else []
        self.processes.clear(record.id, [*sockets, *(f"{one}/root.sock" for one in record.folders)])

    def _over(self, record: session_records.SessionRecord, reason: str) -> None:
        """Note that a session is over; clear what its process has left."""
        self._clear(record)
        with self._lock:
            record = self._records[record.id]
            state = SessionState(record.state)
            if state.is_over:
                return
            step = SessionStep.GONE if state is SessionState.DRAINING else SessionStep.BROKEN
            after = self._after(record, step)
            report = record.report or session_records.SessionReport(id=record.id, state="")
            report = msgspec.structs.replace(
                report,
                state=after.state,
                reason=reason,
                since=self._clock(),
                owner="",
                clients=[],
                streams=0,
                merged=[],
                part_of=[],
            )
            after = msgspec.structs.replace(after, report=report)
            self._note_merges(record, report)
            self._note("session.ended", f"{record.handle}: {reason}", session=record.name)
            self._records[record.id] = after  # now: who sees that finds the events
            over = [one for one in self.records() if SessionState(one.state).is_over]
            over.sort(key=lambda one: one.report.since if one.report is not None else 0.0)
            old = [one.id for one in over[:-MAX_ENDED]]
            for one in old:
                del self._records[one]
            try:
                self._opened().transact(
                    [
                        Put(_SESSIONS + record.id, msgspec.msgpack.encode(after)),
                        Delete(_SECRETS + record.id),
                        Delete(_PLANS + record.id),
                    ]
                )
                for one in old:
                    self._opened().delete(_SESSIONS + one)
            except SapwoodError as error:  # the next head finds out that it is over
                _log.warning("end not written down", session=record.handle, reason=error.what)
        for waiting in self._ending.pop(record.id, ()):
            waiting.set_result(after)
        _log.info("session over", session=record.handle, reason=reason)

    # --- what is kept --------------------------------------------------------------------------

    def _after(
        self, record: session_records.SessionRecord, step: SessionStep
    ) -> session_records.SessionRecord:
        after = TRANSITIONS.after(SessionState(record.state), step, record.handle)
        return msgspec.structs.replace(record, state=after.value)

    def _keep(self, record: session_records.SessionRecord) -> None:
        with self._lock:
            self._records[record.id] = record
            self._opened().put(_SESSIONS + record.id, msgspec.msgpack.encode(record))


def _check_state(record: session_records.SessionRecord, reported: str) -> None:
    """Refuse a state that a root cannot be in; of one that is to end, what comes was said before.

    Raises:
        ProtocolError: It cannot be in that state.
    """
    known = {one.value: one for one in SessionState}
    draining = record.state == SessionState.DRAINING.value
    if reported in known and (draining or may_report(SessionState(record.state), known[reported])):
        return
    raise ProtocolError(
        f"the session server of '{record.handle}' reports the state {reported[:40]!a} "
        f"after {record.state}",
        hint="use one version of Sapwood for the head and its sessions",
    )


def _pass_on(
    answer: Future[session_records.SessionRecord], done: Future[session_records.SessionRecord]
) -> None:
    if done.exception() is not None:
        answer.set_exception(done.exception())
    else:
        answer.set_result(done.result())
