"""The detached runs of a head: each is driven by a separate process.

The driver, ``sapwood run-driver``, attaches to a session like any client, or starts agents of
its own. It writes its progress, what agents print, checkpoints and its answer into a folder. So a
run needs neither the user's process nor the head. A driver that ends without an answer was killed,
or its session was lost: it is restarted, and continues from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from sapwood.comm.machine import machine_id
from sapwood.contexts.background import own_command
from sapwood.core import typed
from sapwood.core.errors import ConfigurationError, ResourceError, StoreError
from sapwood.core.shown import shown
from sapwood.environment.logs import logger
from sapwood.environment.settings import PolicySettings
from sapwood.head import calls
from sapwood.head.run_ends import how_ended, restarts_after
from sapwood.head.watched import WatchedProcess, end_all, started
from sapwood.nodes.note_event import NoteEvent
from sapwood.session.loop_thread import LoopThread
from sapwood.store.base import Store

RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"

OUTPUT, ANSWER, PROGRESS = "output.log", "answer.json", "progress.json"
"""Files of a run: its output, its result or error, its progress."""

MAX_OUTPUT_LOG = 64 * 2**20
"""Bytes of what a run prints that are kept."""

WANTED = "wanted.json"
"""File of a run with the run that was asked for, which its driver reads."""

WORK = "work.json"
"""File of a run with who did what, and why it moved."""

WAIT = "wait.txt"
"""File of a run that waits for its machines: for what; it is there as long as the run waits."""

CHECKPOINT = "checkpoint"
"""File of a run from which it continues after a restart."""

LOCK = "driver.lock"
"""File of a run that its driver has locked: there is one at a time."""

MAX_RUNNING = 256
"""Runs that may be active at a time."""

MAX_OVER = 200
"""Runs that are over and are kept; of more, those that ended last are."""

CANCEL_TIMEOUT = 15.0
"""Seconds that a cancelled run may take to end before it is killed."""

MAX_REASON = 200
"""Characters of the reason of a failure that are kept of a run."""

_RUNS = "runs/"

_read_record: Callable[[bytes], calls.RunRecord] = typed.unpacker(calls.RunRecord)

_log = logger("head")


class _What(msgspec.Struct):
    what: str


class _Failed(msgspec.Struct):
    error: _What


class HeadRuns:
    """The detached runs of a head.

    Args:
        store: Returns what keeps what outlives the head.
        folder: What runs write lies below it.
        thread: Its loop watches their processes.
        pool: Does what takes long.
        note: Notes events in the ledger.
        policy: Returns the policy of the moment.
    """

    def __init__(
        self,
        store: Callable[[], Store],
        folder: Path,
        thread: LoopThread,
        pool: ThreadPoolExecutor,
        note: NoteEvent,
        policy: Callable[[], PolicySettings],
    ) -> None:
        self._policy = policy
        self._closing = False
        self._note = note
        self._opened = store
        self._folder = folder / "runs"
        self._thread = thread
        self._pool = pool
        self._lock = threading.RLock()
        self._records: dict[str, calls.RunRecord] = {}
        self._watched: dict[str, WatchedProcess] = {}

    def start(self) -> None:
        """Find the runs that a former head has begun."""
        for record in self._opened().decoded(_RUNS, _read_record):
            self._records[record.id] = record
            if record.state == RUNNING and record.machine == machine_id():
                self._watch(record)  # else a head on its own machine does

    def close(self) -> None:
        """Cancel all runs, at the same time."""
        with self._lock:
            self._closing = True  # nothing is restarted
            watched = dict(self._watched)
            for run in watched:
                self._keep(msgspec.structs.replace(self._records[run], cancelled=True))
        end_all(list(watched.values()), signal.SIGINT, CANCEL_TIMEOUT)

    def records(self) -> list[calls.RunRecord]:
        """Return the runs, in the order in which they began."""
        records = list(self._records.values())  # without the lock, which is held over a slow store
        return sorted(records, key=lambda one: one.created)

    def find(self, text: str) -> calls.RunRecord:
        """Return a run by its id, or the start of it.

        Raises:
            ConfigurationError: There is none, or several.
        """
        found = [one for one in self.records() if text and one.id.startswith(text)]
        if len(found) != 1:
            several = "several runs begin" if found else "no run begins"
            raise ConfigurationError(
                f"{several} with {shown(text)}", hint="`sapwood run list --all` shows all of them"
            )
        return found[0]

    def create(self, wanted: calls.CreateRun) -> calls.RunRecord:
        """Begin a run.

        Raises:
            ConfigurationError: Too many runs are active.
            ResourceError: Its process cannot be started.
            StoreError: It cannot be noted.
        """
        with self._lock:
            if len(self._watched) >= MAX_RUNNING:
                raise ConfigurationError(
                    f"{MAX_RUNNING} runs are active", hint="wait until some of them are over"
                )
            run = secrets.token_hex(4)
            folder = self._folder / run
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder.mkdir(mode=0o700)
            record = calls.RunRecord(
                id=run,
                program=wanted.program,
                session=wanted.session,
                state=RUNNING,
                created=time.time(),
                folder=str(folder),
                wanted=wanted,
                machine=machine_id(),
            )
            try:
                record = _started(record)
                self._keep(record)
            except (ResourceError, StoreError):
                self._records.pop(run, None)
                _kill(record)
                shutil.rmtree(folder, ignore_errors=True)
                raise
            self._watch(record)
            return self._records[run]

    def cancel(self, text: str) -> Future[calls.RunRecord]:
        """End a run; the future gets its record.

        Raises:
            ConfigurationError: It is over, or there is none.
        """
        record = self.find(text)
        if record.state != RUNNING:
            raise ConfigurationError(f"the run {record.id} is {record.state} already")
        return self._pool.submit(self._cancel, record)

    def _cancel(self, record: calls.RunRecord) -> calls.RunRecord:
        with self._lock:
            watch = self._watched.get(record.id)
            if watch is not None:
                self._keep(msgspec.structs.replace(self._records[record.id], cancelled=True))
        if watch is not None and not watch.end(signal.SIGINT, CANCEL_TIMEOUT):
            _log.warning("run killed", run=record.id, seconds=CANCEL_TIMEOUT)
        with self._lock:
            return self._records.get(record.id, record)

    def _watch(self, record: calls.RunRecord) -> None:
        try:
            with self._lock:
                self._watched[record.id] = WatchedProcess(
                    record.pid, record.started, self._thread, partial(self._ended, record.id)
                )
        except ProcessLookupError:
            self._gone(record, None)

    def _ended(self, run: str, status: int) -> None:
        """The process of a run has ended; on the loop's thread."""
        with self._lock:
            watch = self._watched.pop(run)
            known = status if watch.is_child else None
            self._gone(self._records[run], known)

    def _gone(self, record: calls.RunRecord, status: int | None) -> None:
        """The process of a run has ended: begin it again if it was killed.

        Args:
            record: The run.
            status: What ``waitpid`` says; None where another head had begun it.
        """
        with self._lock:
            end = how_ended(status, answered=has_answer(Path(record.folder)))
            times = restarts_after(
                end,
                record.restarts,
                self._policy().restarts,
                time.time(),
                cancelled=record.cancelled or self._closing,
            )
            if times is None:
                restarts = len(record.restarts)
                _log.info("run not restarted", run=record.id, how=end.value, restarts=restarts)
                self._over(record, why_ended(status))
                return
            try:
                again = _started(msgspec.structs.replace(record, restarts=times))
            except ResourceError as error:
                _log.warning("run not restarted", run=record.id, reason=error.what)
                self._over(record, f"it cannot be restarted: {error.what}")
                return
            try:
                self._keep(again)
            except StoreError as error:  # the next head finds the old record, and begins it again
                _kill(again)
                self._records[record.id] = record
                _log.warning("run not restarted", run=record.id, reason=error.what)
                return
            _log.info("run restarted", run=record.id, restarts=len(times))
            self._note(
                "run.restarted",
                f"{record.program} {record.id}: its process had ended",
                session=record.session,
                facts={"run": record.id, "restarts": str(len(times))},
            )
            self._watch(again)

    def _over(self, record: calls.RunRecord, why: str) -> None:
        """Note how a run has ended, by what it has written.

        Args:
            record: The run.
            why: Why it failed, where it has not written that itself.
        """
        state = outcome(Path(record.folder))
        if state != DONE and record.cancelled:
            state = CANCELLED
        reason = (error_of(Path(record.folder)) or why)[:MAX_REASON] if state == FAILED else ""
        if state == CANCELLED:
            remove_checkpoints(Path(record.folder))
        _log.info("run over", run=record.id, state=state, reason=reason)
        text = f"{record.program} {record.id}: {state}"
        facts = {"run": record.id, "state": state, "seconds": f"{time.time() - record.created:.3f}"}
        self._note("run.ended", text, session=record.session, facts=facts)
        with self._lock:
            try:
                over = msgspec.structs.replace(record, state=state, ended=time.time())
                self._keep(msgspec.structs.replace(over, reason=reason))
                self._forget_old()
            except StoreError as error:  # the next head sees by the run's files that it is over
                _log.warning("end of run not kept", run=record.id, reason=error.what)

    def _forget_old(self) -> None:
        over = [one for one in self.records() if one.state != RUNNING]
        over.sort(key=lambda one: one.ended)
        for old in over[:-MAX_OVER]:
            shutil.rmtree(old.folder, ignore_errors=True)
            del self._records[old.id]
            self._opened().delete(_RUNS + old.id)

    def _keep(self, record: calls.RunRecord) -> None:
        with self._lock:
            self._records[record.id] = record
            self._opened().put(_RUNS + record.id, msgspec.msgpack.encode(record))


def _started(record: calls.RunRecord) -> calls.RunRecord:
    """Begin the process of a run, for the first time or again; return the run with it.

    Raises:
        ResourceError: It cannot be started.
    """
    folder = Path(record.folder)
    directory = record.wanted.folder
    try:
        (folder / WANTED).write_bytes(msgspec.json.encode(record.wanted))
        with (
            (folder / WANTED).open("rb") as wanted,
            (folder / ANSWER).open("wb") as answer,
            (folder / OUTPUT).open("ab") as output,
        ):
            process = subprocess.Popen(
                own_command("run-driver", str(folder)),
                stdin=wanted,
                stdout=answer,
                stderr=output,
                cwd=directory,
                start_new_session=True,
                umask=0o077,
            )
    except OSError as error:
        raise ResourceError(f"cannot start a process: {error.strerror}", where=directory) from error
    process.returncode = 0  # its end is heard of elsewhere
    return msgspec.structs.replace(record, pid=process.pid, started=started(process.pid))


def _kill(record: calls.RunRecord) -> None:
    """Kill the process of a run that this process has just begun, if there is one."""
    if record.pid:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(record.pid, signal.SIGKILL)  # it leads its own process session
        with contextlib.suppress(ChildProcessError):
            os.waitpid(record.pid, 0)


def cluster_of(folder: Path) -> str:
    """Return the name of the cluster whose head keeps a run in a folder.

    Example:
        >>> cluster_of(Path("/var/state/sapwood/heads/lab/runs/a2938a05"))
        'lab'
    """
    return folder.parents[1].name


def remove_checkpoints(folder: Path) -> None:
    """Remove the checkpoints of a run that is over, and one that is only half written."""
    for pattern in (f"{CHECKPOINT}*", f".{CHECKPOINT}.half"):
        for file in folder.glob(pattern):
            with contextlib.suppress(OSError):
                file.unlink()


def has_answer(folder: Path) -> bool:
    """Return whether a run has written an answer, be it an error."""
    try:
        return bool(msgspec.json.decode((folder / ANSWER).read_bytes()))
    except (OSError, msgspec.DecodeError):
        return False


def error_of(folder: Path) -> str:
    """Return the error that a run has written as its answer; empty if there is none."""
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / ANSWER).read_bytes(), type=_Failed).error.what
    return ""


def why_ended(status: int | None) -> str:
    """Return how the process of a run has ended that has written no answer.

    Args:
        status: What ``waitpid`` says; None where another process is its parent.

    Example:
        >>> why_ended(5 << 8), why_ended(9)
        ('its process ended with exit code 5', 'its process was killed by signal 9')
    """
    if status is None:
        return "its process is gone"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"its process was killed by signal {-code}"
    return f"its process ended with exit code {code}"


def outcome(folder: Path) -> str:
    """Return how a run that is over has ended: it is done if it gave an answer."""
    try:
        answer = msgspec.json.decode((folder / ANSWER).read_bytes())
    except (OSError, msgspec.DecodeError):
        return FAILED
    return FAILED if not isinstance(answer, dict) or "error" in answer else DONE
