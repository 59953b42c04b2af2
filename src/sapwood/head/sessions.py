"""The sessions of a head whose roots are processes of their own: begun, found, listed, ended.

A root outlives the head. What the head knows of it lies in the store, so the next head finds it. A
root that was killed is begun again, under the same handle, as often as the policy allows.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.comm.machine import machine_id
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    ConfigurationError,
    ResourceError,
    SapwoodError,
    StoreError,
)
from sapwood.environment import background
from sapwood.environment.logs import logger
from sapwood.environment.settings import DisconnectPolicy, PolicySettings
from sapwood.head import calls
from sapwood.head.restarts import begun_again
from sapwood.head.session_notices import notices, remove_notice
from sapwood.head.watched import WatchedProcess, started
from sapwood.nodes.control import NoteEvent
from sapwood.session.folder import PREFIX
from sapwood.session.loop_thread import LoopThread
from sapwood.session.session_life import TRANSITIONS, SessionState, SessionStep
from sapwood.store.base import Store

ENTRY: Final = "sapwood.roots.process"
"""The module that is the process of a root."""

START_TIMEOUT = 120.0
"""Seconds until the root of a session must be ready."""

END_TIMEOUT = 20.0
"""Seconds that a root gets to end by itself."""

RESTART_PATIENCE = 120.0
"""Seconds in which a root that was killed must be there again."""

RESTART_PAUSE = 0.5
"""Seconds between two tries to begin it."""

MAX_SESSIONS = 256
"""Sessions that may be there at a time."""

MAX_ENDED = 100
"""Sessions that have ended and are listed still; of more, the last ones are."""

_SESSIONS = "sessions/"
_SECRETS = "session-secrets/"
_PLANS = "session-plans/"
_NAME = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9._-]{0,62}[a-zA-Z0-9])?")

_log = logger("head")


class RootPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a root is told when it begins.

    Attributes:
        id: Of its session.
        cluster: What the user calls the cluster of the head.
        wanted: What the session is to be.
        secret: What front ends on other machines must know.
        idle: Seconds after which it ends when nobody is attached; 0 for never.
        disconnect: What becomes of what comes while nobody is attached.
        machines: Nodes that the one before it was on, which are waited for a while.
        former: What nodes call the processes of the one before it, which are ended.
    """

    id: str
    cluster: str
    wanted: calls.CreateSession
    secret: str
    idle: float
    disconnect: DisconnectPolicy
    machines: int = 0
    former: str = ""


class RootReady(msgspec.Struct, frozen=True, kw_only=True):
    """What the process of a root says when it is ready.

    Attributes:
        pid: The process.
        socket: Where front ends reach it.
        idle: Seconds after which it ends when nobody is attached; 0 for never.
        report: How it is.
        machines: Nodes that it is on.
        tree: What these call its processes.
        folders: Folders of its sockets besides the one of ``socket``.
    """

    pid: int
    socket: str
    idle: float
    report: calls.SessionReport
    machines: int = 0
    tree: str = ""
    folders: list[str] = []


_read_ready: Callable[[bytes], RootReady] = typed.json_reader(RootReady)
_read_record: Callable[[bytes], calls.SessionRecord] = typed.unpacker(calls.SessionRecord)
_read_plan: Callable[[bytes], RootPlan] = typed.unpacker(RootPlan)


class HeadSessions:
    """The sessions of a head.

    Args:
        store: Returns what keeps what outlives the head.
        cluster: What the user calls the cluster.
        folder: Logs of roots lie there.
        thread: Its loop watches their processes.
        pool: Does what takes long.
        policy: Returns the policy of the moment.
        note: Notes events in the ledger.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        cluster: str,
        folder: Path,
        thread: LoopThread,
        pool: ThreadPoolExecutor,
        policy: Callable[[], PolicySettings],
        note: NoteEvent,
    ) -> None:
        self._policy = policy
        self._note = note
        self._opened = store
        self._cluster = cluster
        self._folder = folder
        self._thread = thread
        self._pool = pool
        self._lock = threading.RLock()
        self._records: dict[str, calls.SessionRecord] = {}
        self._watched: dict[str, WatchedProcess] = {}
        self._closing = False
        self._leaving = threading.Event()

    # --- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Find the sessions that a former head has begun."""
        for entry in list(self._opened().entries(_SESSIONS)):
            try:
                record = _read_record(entry.value)
            except msgspec.MsgspecError as error:
                raise StoreError(
                    f"the cluster's entry '{entry.key}' cannot be read: {error}",
                    where=self._opened().url,
                ) from error
            self._records[record.id] = record
            if SessionState(record.state).is_over or record.machine != machine_id():
                continue  # over, or looked after by a head on its own machine
            if not record.pid:  # the former head was killed before it heard that the root is ready
                record = self._begun_meanwhile(record)
            if record.pid and started(record.pid) == record.started:
                _log.info("session found", session=record.handle, pid=record.pid)
                self._keep(record)
                self._watch(record)
            else:
                self._lost(record, "its process ended while there was no head")

    def _begun_meanwhile(self, record: calls.SessionRecord) -> calls.SessionRecord:
        """Return what is known of a session by the file that its root has written."""
        told = next((one for one in notices(self._cluster) if one.id == record.id), None)
        if told is None or not told.pid or started(told.pid) != told.started:
            return record
        return msgspec.structs.replace(
            record,
            state=SessionState.DETACHED.value,
            pid=told.pid,
            started=told.started,
            socket=told.socket,
        )

    def close(self, *, keep: bool = False) -> None:
        """End all sessions, or leave them to the next head."""
        self._leaving.set()
        if not keep:
            with self._lock:
                self._closing = True  # what is beginning ends itself
            for record in self.records():
                if not SessionState(record.state).is_over:
                    with contextlib.suppress(SapwoodError):
                        self._end(record, "the cluster is down")
        for watch in list(self._watched.values()):
            watch.forget()

    # --- what front ends want --------------------------------------------------------------------

    def records(self) -> list[calls.SessionRecord]:
        """Return the sessions, in the order in which they were asked for."""
        with self._lock:
            return sorted(self._records.values(), key=lambda one: one.created)

    def find(self, text: str) -> calls.SessionRecord:
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
                f"there is no session '{text}'",
                hint=f"sessions are {known}" if known else "`sapwood session create` makes one",
            )
        living = [one for one in found if not SessionState(one.state).is_over]
        return (living or found)[-1]

    def create(self, wanted: calls.CreateSession) -> Future[Any]:
        """Begin a session; the future gets its record.

        Raises:
            ConfigurationError: It cannot be called so, or there are too many.
        """
        with self._lock:
            living = [one for one in self.records() if not SessionState(one.state).is_over]
            if len(living) >= MAX_SESSIONS:
                raise ConfigurationError(
                    f"there are {MAX_SESSIONS} sessions", hint="end some of them first"
                )
            session = secrets.token_hex(4)
            name = wanted.name or f"s-{session[:4]}"
            if _NAME.fullmatch(name) is None:
                raise ConfigurationError(
                    f"{name!r} is no name of a session",
                    hint="use up to 64 letters, digits, dots and hyphens, such as night-run",
                )
            if any(one.name == name for one in living):
                raise ConfigurationError(
                    f"there is a session '{name}' already",
                    hint=f"`sapwood session attach {name}`, or choose another name",
                )
            record = calls.SessionRecord(
                id=session,
                name=name,
                state=SessionState.REQUESTED.value,
                on=wanted.on,
                created=time.time(),
                machine=machine_id(),
            )
            self._keep(record)
        facts = {"name": name, "on": wanted.on}
        self._note("session.created", f"{record.handle}: asked for", session=name, facts=facts)
        return self._pool.submit(self._begin, record, wanted)

    def end(self, text: str) -> Future[Any]:
        """End a session; the future gets its record."""
        record = self.find(text)
        if SessionState(record.state).is_over:
            raise ClosedError(
                f"the session '{record.handle}' has ended already", hint=record.reason
            )
        return self._pool.submit(self._end, record, "it was deleted")

    def secret_of(self, record: calls.SessionRecord) -> str:
        """Return what front ends of a session on other machines must know.

        Raises:
            ClosedError: It has ended.
        """
        entry = self._opened().get(_SECRETS + record.id)
        if entry is None:
            raise ClosedError(f"the session '{record.handle}' has ended", hint=record.reason)
        return entry.value.decode()

    def report(self, report: calls.SessionReport) -> None:
        """Note what a root says."""
        with self._lock:
            record = self._records.get(report.id)
            if record is None or SessionState(record.state).is_over:
                return
            if record.restarts and not record.pid:
                return  # the last word of the root that was killed
            state = report.state
            if record.state == SessionState.DRAINING.value:  # the head knows why it ends it
                state, reason = record.state, record.reason or report.reason
                report = msgspec.structs.replace(report, reason=reason)
            self._keep(msgspec.structs.replace(record, state=state, report=report))

    # --- on threads of the pool ------------------------------------------------------------------

    def _begin(self, record: calls.SessionRecord, wanted: calls.CreateSession) -> Any:
        log = self._folder / "logs" / f"session-{record.id}.log"
        try:
            record = self._move(record, SessionStep.BEGUN)
            ready = self._start_root(record, wanted, log)
        except BaseException as error:
            what = error.what if isinstance(error, SapwoodError) else repr(error)
            self._over(record, what)
            log.unlink(missing_ok=True)
            raise
        return self._is_ready(record, ready)

    def _is_ready(self, record: calls.SessionRecord, ready: RootReady) -> Any:
        """Note that a root is ready, and look after it."""
        record = msgspec.structs.replace(
            self._move(record, SessionStep.STARTED),
            pid=ready.pid,
            started=started(ready.pid),
            socket=ready.socket,
            idle=ready.idle,
            report=ready.report,
            machines=ready.machines,
            tree=ready.tree,
            folders=ready.folders,
        )
        self._keep(record)
        self._watch(record)
        _log.info("session begun", session=record.handle, pid=record.pid)
        if self._closing:
            self._end(record, "the cluster is down")
        return _plain(record)

    def _start_root(
        self, record: calls.SessionRecord, wanted: calls.CreateSession, log: Path
    ) -> RootReady:
        policy = self._policy()
        given = RootPlan(
            id=record.id,
            cluster=self._cluster,
            wanted=msgspec.structs.replace(wanted, name=record.name),
            secret=secrets.token_urlsafe(32),
            idle=policy.idle.session if wanted.idle is None else wanted.idle,
            disconnect=policy.disconnect,
        )
        self._opened().put(_SECRETS + record.id, given.secret.encode())
        self._opened().put(_PLANS + record.id, msgspec.msgpack.encode(given))
        return self._start_process(given, log)

    def _start_process(self, given: RootPlan, log: Path) -> RootReady:
        log.parent.mkdir(mode=0o700, exist_ok=True)
        words = [sys.executable, "-P", "-m", ENTRY]
        return _read_ready(background.start(words, log, msgspec.json.encode(given), START_TIMEOUT))

    def _end(self, record: calls.SessionRecord, reason: str) -> Any:
        with self._lock:
            watch = self._watched.get(record.id)
            if watch is None and SessionState(self._records[record.id].state).is_over:
                return _plain(self._records[record.id])  # it has ended meanwhile
            if watch is None and record.machine != machine_id():
                raise ResourceError(
                    f"the session '{record.handle}' is on another machine",
                    hint="attach to it and close it, or end it by a head there",
                )
            if watch is None:
                raise ResourceError(
                    f"the session '{record.handle}' is starting still", hint="try again soon"
                )
            draining = self._move(self._records[record.id], SessionStep.ENDS)
            report = draining.report or calls.SessionReport(id=record.id, state="")
            self._keep(
                msgspec.structs.replace(
                    draining, report=msgspec.structs.replace(report, reason=reason)
                )
            )
        if not watch.end(signal.SIGTERM, END_TIMEOUT):
            _log.warning("session killed", session=record.handle, seconds=END_TIMEOUT)
        with self._lock:
            return _plain(self._records[record.id])

    # --- their processes -----------------------------------------------------------------------

    def _watch(self, record: calls.SessionRecord) -> None:
        """Hear of the end of a root's process."""
        try:
            with self._lock:
                self._watched[record.id] = WatchedProcess(
                    record.pid, record.started, self._thread, partial(self._ended, record.id)
                )
        except ProcessLookupError:
            self._lost(record, "its process has ended")

    def _ended(self, session: str, status: int) -> None:
        """The process of a root has ended; on the loop's thread."""
        with self._lock:
            del self._watched[session]
            record = self._records[session]
            told = "" if record.report is None else record.report.reason
            killed = f"its process was ended by signal {os.WTERMSIG(status)}"
            broken = killed if os.WIFSIGNALED(status) else "its process ended"
            if told:
                self._over(record, told)
            else:
                self._lost(record, broken)

    def _lost(self, record: calls.SessionRecord, reason: str) -> None:
        """The root of a session was killed: begin it again, if the policy allows that."""
        with self._lock:
            record = self._records[record.id]
            plan = self._opened().get(_PLANS + record.id)
            times = begun_again(record.restarts, self._policy().restarts, time.time())
            drains = SessionState(record.state) is SessionState.DRAINING
            if drains or self._closing or plan is None or times is None:
                self._over(record, reason)
                return
            self._clear(record)
            report = calls.SessionReport(id=record.id, state=SessionState.STARTING.value)
            again = msgspec.structs.replace(
                self._move(record, SessionStep.LOST),
                pid=0,
                started=0,
                socket="",
                report=report,
                restarts=times,
            )
            self._keep(again)
        _log.warning("session begins again", session=record.handle, reason=reason)
        facts = {"restarts": str(len(times))}
        self._note(
            "session.restarted", f"{record.handle}: {reason}", session=record.name, facts=facts
        )
        with contextlib.suppress(RuntimeError):  # the head ends, and its pool with it
            self._pool.submit(self._begin_again, again, plan.value)

    def _begin_again(self, record: calls.SessionRecord, plan: bytes) -> None:
        """Begin the root of a session again, also if nodes come back later than the head."""
        log = self._folder / "logs" / f"session-{record.id}.log"
        end = time.monotonic() + RESTART_PATIENCE
        while True:
            try:
                given = msgspec.structs.replace(
                    _read_plan(plan), machines=record.machines, former=record.tree
                )
                ready = self._start_process(given, log)
                break
            except (SapwoodError, msgspec.MsgspecError) as error:
                reason = error.what if isinstance(error, SapwoodError) else str(error)
                _log.warning("session not begun again", session=record.handle, reason=reason)
                if time.monotonic() > end or self._leaving.wait(RESTART_PAUSE):
                    if not self._leaving.is_set() or self._closing:
                        self._over(record, reason)
                    return
        self._is_ready(record, ready)

    def _over(self, record: calls.SessionRecord, reason: str) -> None:
        """Note that a session is over; clear what its process has left."""
        self._clear(record)
        self._opened().delete(_SECRETS + record.id)
        self._opened().delete(_PLANS + record.id)
        with self._lock:
            record = self._records[record.id]
            state = SessionState(record.state)
            if not state.is_over:
                step = SessionStep.GONE if state is SessionState.DRAINING else SessionStep.BROKEN
                after = TRANSITIONS.after(state, step, record.handle)
                told = record.report or calls.SessionReport(id=record.id, state="")
                told = msgspec.structs.replace(
                    told,
                    state=after.value,
                    reason=reason,
                    since=time.time(),
                    owner="",
                    front_ends=[],
                    streams=0,
                )
                self._keep(msgspec.structs.replace(record, state=after.value, report=told))
            _log.info("session over", session=record.handle, reason=reason)
            self._note("session.ended", f"{record.handle}: {reason}", session=record.name)
            over = [one for one in self.records() if SessionState(one.state).is_over]
            for old in over[:-MAX_ENDED]:
                del self._records[old.id]
                self._opened().delete(_SESSIONS + old.id)

    def _clear(self, record: calls.SessionRecord) -> None:
        """Remove what the process of a root has left."""
        for folder in (Path(record.socket).parent, *map(Path, record.folders)):
            if folder.name.startswith(PREFIX):
                shutil.rmtree(folder, ignore_errors=True)
        remove_notice(self._cluster, record.id)

    # --- what is kept --------------------------------------------------------------------------

    def _move(self, record: calls.SessionRecord, step: SessionStep) -> calls.SessionRecord:
        after = TRANSITIONS.after(SessionState(record.state), step, record.handle)
        moved = msgspec.structs.replace(record, state=after.value)
        self._keep(moved)
        return moved

    def _keep(self, record: calls.SessionRecord) -> None:
        with self._lock:
            self._records[record.id] = record
            self._opened().put(_SESSIONS + record.id, msgspec.msgpack.encode(record))


def _plain(value: msgspec.Struct) -> Any:
    return msgspec.to_builtins(value, builtin_types=(bytes,))
