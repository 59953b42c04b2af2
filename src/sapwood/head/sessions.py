"""The sessions of a head with separate session servers: started, found, listed, ended.

A root outlives the head. The store keeps the head's record of it, so the next head finds it. A
root that was killed is restarted, under the same handle, as often as the policy allows.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.comm.machine import machine_id
from sapwood.contexts import background
from sapwood.core import typed
from sapwood.core.errors import CancelledError, ClosedError, SapwoodError, SecurityError
from sapwood.core.futures import CallerFuture
from sapwood.environment.folders import SOCKET_FOLDER
from sapwood.environment.interpreter import python_command
from sapwood.environment.logs import logger
from sapwood.environment.settings import PolicySettings
from sapwood.head.session_notices import SessionNotice, notices, remove_notice
from sapwood.head.session_registry import ServerPlan, ServerReady, ServerWatch, SessionRegistry
from sapwood.head.watched import KILL_TIMEOUT, WatchedProcess, started
from sapwood.nodes.note_event import NoteEvent
from sapwood.session.loop_thread import LoopThread
from sapwood.store.base import Store

ENTRY: Final = "sapwood.session_server.process"
"""The module that is the process of a root."""

START_TIMEOUT = 120.0
"""Seconds until the root of a session must be ready."""

RESTART_PATIENCE = 120.0
"""Seconds in which a root that was killed must be there again."""

MAX_RESTARTS = 4
"""Roots that are restarted at a time."""

RESTART_PAUSE = 0.5
"""Seconds between two tries to begin it."""

END_TIMEOUT = 40.0
"""Seconds that a root may take to end before it is killed."""

_read_ready: Callable[[bytes], ServerReady] = typed.json_reader(ServerReady)

_log = logger("head")


class LocalServers:
    """Begins the roots of sessions on this machine, and watches them.

    Args:
        cluster: What the user calls the cluster.
        folder: Folder of the logs of roots.
        thread: Its loop watches their processes.
        pool: Does what takes long.
    """

    def __init__(
        self, cluster: str, folder: Path, thread: LoopThread, pool: ThreadPoolExecutor
    ) -> None:
        self._cluster = cluster
        self._folder = folder
        self._thread = thread
        self._pool = pool
        self._changed = threading.Condition()
        self._given_up: set[str] = set()
        self._leaving = False
        self._restarts = ThreadPoolExecutor(MAX_RESTARTS, "sapwood-restart")

    def give_up(self, session: str) -> None:
        """Begin the root of a session not again."""
        with self._changed:
            self._given_up.add(session)
            self._changed.notify_all()

    def leave(self) -> None:
        """Begin no roots again: the head ends."""
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        self._restarts.shutdown(wait=False)

    def begin(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root; the future gets what it says when it is ready, or why there is none."""
        return self._pool.submit(self.start, plan)

    def begin_again(self, plan: ServerPlan) -> Future[ServerReady]:
        """Begin a root again, also where nodes come back later than the head."""
        try:
            return self._restarts.submit(self._start_again, plan)
        except RuntimeError:  # the head ends, and its pool with it
            ended: Future[ServerReady] = CallerFuture()
            ended.set_exception(ClosedError("the head ends"))
            return ended

    def _start_again(self, plan: ServerPlan) -> ServerReady:
        end = time.monotonic() + RESTART_PATIENCE
        while True:
            self._refuse_stopped(plan.id)
            try:
                return self.start(plan)
            except SecurityError:  # whoever made it may do so no more
                raise
            except SapwoodError as error:
                _log.warning("session not restarted", session=plan.id, reason=error.what)
                if time.monotonic() > end:
                    raise
            with self._changed:
                self._changed.wait_for(lambda: self._stopped(plan.id), RESTART_PAUSE)

    def _stopped(self, session: str) -> bool:
        return self._leaving or session in self._given_up

    def _refuse_stopped(self, session: str) -> None:
        with self._changed:
            if self._leaving:
                raise ClosedError("the head ends")
            if session in self._given_up:
                self._given_up.remove(session)
                raise CancelledError("the session is ended")

    def start(self, plan: ServerPlan) -> ServerReady:
        """Begin a root, and wait until it is ready.

        Raises:
            SapwoodError: It cannot begin.
        """
        log = self._folder / "logs" / f"session-{plan.id}.log"
        log.parent.mkdir(mode=0o700, exist_ok=True)
        words = python_command("-m", ENTRY)
        try:
            return _read_ready(
                background.start(words, log, msgspec.json.encode(plan), START_TIMEOUT)
            )
        except BaseException:
            if not plan.former:  # else the last words of the one before it are in there
                log.unlink(missing_ok=True)
            raise

    def watch(self, pid: int, began: int, ended: Callable[[str], None]) -> ServerWatch:
        """Hear of the end of a root.

        Raises:
            ProcessLookupError: It has ended.
        """
        return _WatchedRoot(pid, began, self._thread, ended)

    def began(self, pid: int) -> int:
        """Return when a process began; 0 if there is none."""
        return started(pid)

    def notices(self) -> list[SessionNotice]:
        """Return the notices that roots have written."""
        return notices(self._cluster)

    def clear(self, session: str, sockets: Sequence[str]) -> None:
        """Remove what a root has left."""
        found = [one.socket for one in self.notices() if one.id == session and one.socket]
        for path in {*sockets, *found}:
            folder = Path(path).parent
            if folder.name.startswith(SOCKET_FOLDER):
                shutil.rmtree(folder, ignore_errors=True)
        remove_notice(self._cluster, session)

    def later(self, seconds: float, function: Callable[..., object], *args: object) -> None:
        """Have a function called after some time, if the head still works then."""
        with contextlib.suppress(ClosedError):
            self._thread.post(
                self._thread.loop.call_later, seconds, self._pool_call, function, args
            )

    def _pool_call(self, function: Callable[..., object], args: tuple[object, ...]) -> None:
        """Call a function on the pool: it may write to a slow disk."""
        with contextlib.suppress(RuntimeError):  # the head ends, and its pool with it
            self._pool.submit(function, *args)


class _WatchedRoot:
    """The process of a root."""

    def __init__(
        self, pid: int, began: int, thread: LoopThread, ended: Callable[[str], None]
    ) -> None:
        self._thread = thread
        self._tell = ended
        self._over: Future[None] = CallerFuture()
        self._process = WatchedProcess(pid, began, thread, self._ended)

    def end(self) -> Future[Any]:
        """Have it end, by force if it does not in time."""
        self._process.send(signal.SIGTERM)
        with contextlib.suppress(ClosedError):
            self._thread.post(self._thread.loop.call_later, END_TIMEOUT, self._force)
        return self._over

    def forget(self) -> None:
        """Stop watching it; callers that wait for its end get an error."""
        self._process.forget()
        with contextlib.suppress(InvalidStateError):
            self._over.set_exception(ClosedError("the head ends"))

    def _force(self) -> None:
        if not self._over.done():
            _log.warning("session killed", pid=self._process.pid, seconds=END_TIMEOUT)
            self._process.send(signal.SIGKILL)

    def _ended(self, status: int) -> None:
        killed = f"its process was ended by signal {os.WTERMSIG(status)}"
        self._tell(killed if os.WIFSIGNALED(status) else "its process ended")
        with contextlib.suppress(InvalidStateError):
            self._over.set_result(None)


class HeadSessions(SessionRegistry):
    """The sessions of a head.

    Args:
        store: Returns what keeps what outlives the head.
        cluster: What the user calls the cluster.
        folder: Folder of the logs of roots.
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
        self._roots = LocalServers(cluster, folder, thread, pool)
        super().__init__(store, cluster, machine_id(), self._roots, policy, note)

    def close(self, *, keep: bool = False) -> list[Future[Any]]:
        """End all sessions and wait for that, or leave them to the next head."""
        self._roots.leave()
        ends = super().close(keep=keep)
        wait(ends, END_TIMEOUT + KILL_TIMEOUT)
        self.forget()
        return ends
