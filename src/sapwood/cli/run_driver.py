"""The driver of a detached run: a process that a head starts, and restarts when it is killed.

It resumes from the last checkpoint. If its session is lost it ends without an answer, so that
the head begins it again; by then the session is there again, or is over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer

from sapwood.cli import starting
from sapwood.cli.answer_file import answering, replace_file
from sapwood.cli.failures import reported
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.interrupts import no_exit_of_process, termination_interrupts
from sapwood.cli.run import RunOutput, run_once, run_through, starting_agents
from sapwood.cli.run_inputs import loaded
from sapwood.client.attaching import attach
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core import typed
from sapwood.core.errors import CommunicationError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging, logger
from sapwood.environment.standard_error import stderr_writer
from sapwood.head import calls, session_records
from sapwood.head.parts.sessions import Sessions
from sapwood.head.run_ends import SESSION_LOST
from sapwood.head.runs import (
    CHECKPOINT,
    LOCK,
    MAX_OUTPUT_LOG,
    WAIT,
    cluster_of,
    has_answer,
    remove_checkpoints,
)
from sapwood.session.interface import SessionState

SESSION: Final = "session:"
"""Prefix of ``cluster.on`` for the agents of a session."""

SESSION_PATIENCE = 150.0
"""Seconds that a session gets whose server is restarted."""

PAUSE = 0.1
"""Seconds between two looks at it."""

_FLOCK = struct.Struct("hhqqi")
"""How the kernel says who has locked a file: ``struct flock``."""

_BEGINNING = frozenset({SessionState.REQUESTED, SessionState.STARTING})

_log = logger("cli")


def run_driver(record: Annotated[Path, typer.Argument()]) -> None:
    """Drive a detached run, which is read from standard input; its head calls this."""
    with answering(record), reported(as_json=True):
        wanted = typed.json_reader(calls.CreateRun)(sys.stdin.buffer.read())
        raise typer.Exit(drive(wanted, record))


def drive(wanted: calls.CreateRun, record: Path) -> int:
    """Drive a run to its end, from the last checkpoint on if there is one.

    Args:
        wanted: The run.
        record: The folder in which it leaves its progress.

    Returns:
        The exit code: 0, 130 after Ctrl-C or SIGTERM, or the code of a lost session.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    with only_driver(record):
        stderr_writer.limit(MAX_OUTPUT_LOG)
        with no_exit_of_process():
            return 0 if has_answer(record) else _drive(wanted, record)


def _drive(wanted: calls.CreateRun, record: Path) -> int:
    settings = load_configuration(wanted.settings).settings
    starting.clear()  # what follows is code of the program, which may print
    shown = RunOutput(
        output=Path(wanted.output) if wanted.output else None, as_json=True, record=record
    )
    file = record / CHECKPOINT
    spec = msgspec.structs.replace(
        loaded(wanted.spec, shown.output),
        checkpoint=str(file),
        auto_resume=True,
    )
    at_session = settings.cluster.on.startswith(SESSION)
    with termination_interrupts(), configure_logging(settings.log):
        if at_session:
            session, cluster_name = settings.cluster.on.removeprefix(SESSION), cluster_of(record)
            _await_session(settings.cluster.on, cluster_name)
            try:
                with noted_waits(record / WAIT) as on_wait:
                    attached = attach(
                        session,
                        role="user",
                        cluster=cluster_name,
                        settings=settings,
                        on_wait=on_wait,
                    )
                with attached as cluster:
                    code = run_once(cluster, spec, shown)
            except CommunicationError as error:
                if type(error) is not CommunicationError:
                    raise
                _log.warning("session lost", reason=error.what)
                return SESSION_LOST
        elif settings.nodes.allocations > 1:
            code = run_through(settings, spec, shown)
        else:
            with contextlib.ExitStack() as stack:
                with noted_waits(record / WAIT) as on_wait:
                    cluster = stack.enter_context(starting_agents(settings, on_wait))
                code = run_once(cluster, spec, shown)
    if code == 0:  # else it may be restarted, and resumes
        remove_checkpoints(record)
    return code


@contextlib.contextmanager
def noted_waits(file: Path) -> Iterator[WaitCallback]:
    """Write down for what machines the block waits; there is no such file when it is over."""

    def wait(what: str, seconds: float) -> None:
        with contextlib.suppress(OSError):  # it is only shown
            replace_file(file, what.encode())
        starting.wait(what, seconds)

    try:
        yield wait
    finally:
        file.unlink(missing_ok=True)


def only_driver(record: Path) -> BinaryIO:
    """Lock the folder of a run for this process; kill another driver that still has it.

    A head that is killed when it has started a driver, and has not recorded it, leaves one that no
    head knows. The next head begins another one: two would write each other's checkpoints and
    answer.

    Returns:
        The lock: it is held until this is closed, or the process ends.
    """
    lock = (record / LOCK).open("ab")
    pause = threading.Event()
    while True:
        with contextlib.suppress(OSError):  # another process has it
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, holder = _FLOCK.unpack(fcntl.fcntl(lock, fcntl.F_GETLK, wanted))
        if kind != fcntl.F_UNLCK and holder > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder, signal.SIGKILL)
            _log.warning("another driver of this run killed", pid=holder)
        pause.wait(PAUSE)


def _await_session(on: str, cluster: str) -> None:
    """Wait for a session of a cluster whose server is being restarted.

    Raises:
        SapwoodError: It is over, or there is none.
    """
    end = time.monotonic() + SESSION_PATIENCE
    pause = threading.Event()
    while True:
        found: session_records.SessionRecord | None = None
        with contextlib.suppress(CommunicationError):  # the head is down for a moment
            found = asked_head(cluster, CALL_TIMEOUT, Sessions.find, on.removeprefix(SESSION))
        if found is not None and SessionState(found.state) not in _BEGINNING:
            return
        if time.monotonic() > end:
            raise CommunicationError(
                f"the session has not come back within {SESSION_PATIENCE:g} s", where=on
            )
        pause.wait(PAUSE)
