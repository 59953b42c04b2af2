"""One run as pictures need it: how far it is, who did what, what it gave or why it failed."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run_record import WorkStatistics
from sapwood.activity.statistics import RunStatistics
from sapwood.code.profiles import ProfileResult
from sapwood.comm.machine import machine_id
from sapwood.core import typed
from sapwood.core.errors import ErrorRecord
from sapwood.core.hints import DEFAULT_CLUSTER, command, naming
from sapwood.head.calls import RunRecord
from sapwood.head.runs import ANSWER, OUTPUT, PROGRESS, WORK

MAX_OUTPUT: Final = 64 * 2**10
"""Bytes of what agents printed that are shown: the end of it."""


class RunPage(msgspec.Struct, frozen=True, kw_only=True):
    """A run, for dashboard and report; fields are only ever added.

    Attributes:
        program: Name of the program.
        state: Where it is in its life.
        id: Of a detached run; empty for others.
        session: Its session; empty for separate agents.
        created: When it began, seconds since 1970; 0 if that is not known.
        ended: When it ended; 0 while it runs.
        restarts: Times when its process was restarted.
        progress: How far it has come; None before it has said so.
        record: Which agent did which work; None before the first.
        statistics: What it cost; None before it is over.
        answer: What ``sapwood run --json`` prints; None while it runs.
        error: Why it failed; None if it has not.
        elsewhere: Why the rest is not known here; empty if it is.
        profile: How often which user code was seen; None if that was not asked for.
        written: When this was made, seconds since 1970.
        version: Of Sapwood.
    """

    program: str
    state: str
    id: str = ""
    session: str = ""
    created: float = 0.0
    ended: float = 0.0
    restarts: tuple[float, ...] = ()
    progress: RunInfo | None = None
    record: WorkStatistics | None = None
    statistics: RunStatistics | None = None
    answer: Any = None
    error: ErrorRecord | None = None
    elsewhere: str = ""
    profile: ProfileResult | None = None
    written: float = 0.0
    version: str = ""


def of_detached(run: RunRecord, version: str = "", cluster: str = DEFAULT_CLUSTER) -> RunPage:
    """Return a detached run, from what it has written into its folder.

    Args:
        run: What the head knows.
        version: Of Sapwood.
        cluster: What the user calls the cluster.
    """
    folder, here = Path(run.folder), _is_here(run)
    answer = _read(folder / ANSWER, Any) if here else None
    statistics = None
    if isinstance(answer, dict):
        with contextlib.suppress(msgspec.ValidationError):
            statistics = typed.convert(answer.get("statistics"), RunStatistics)
    return RunPage(
        program=run.program,
        state=run.state,
        id=run.id,
        session=run.session,
        created=run.created,
        ended=run.ended,
        restarts=run.restarts,
        progress=progress_of(run),
        record=work_of(run),
        statistics=statistics,
        answer=answer if statistics is not None else None,
        error=read_error(run, cluster) if run.state == RunState.FAILED else None,
        elsewhere="" if here else "the run's output is stored on the machine of its head",
        written=time.time(),
        version=version,
    )


def progress_of(run: RunRecord) -> RunInfo | None:
    """Return how far a detached run has come; None before it has said so, and elsewhere."""
    found = _read(Path(run.folder) / PROGRESS, RunInfo) if _is_here(run) else None
    return found if isinstance(found, RunInfo) else None


def work_of(run: RunRecord) -> WorkStatistics | None:
    """Return who did which work in a detached run; None before it has said so, and elsewhere."""
    found = _read(Path(run.folder) / WORK, WorkStatistics) if _is_here(run) else None
    return found if isinstance(found, WorkStatistics) else None


def read_error(run: RunRecord, cluster: str = DEFAULT_CLUSTER) -> ErrorRecord:
    """Return why a detached run has failed; its hint names the cluster."""
    answer = _read(Path(run.folder) / ANSWER, Any) if _is_here(run) else None
    if isinstance(answer, dict):
        with contextlib.suppress(msgspec.ValidationError):
            found = typed.convert(answer.get("error"), ErrorRecord)
            return msgspec.structs.replace(found, hint=naming(found.hint, cluster))
    return ErrorRecord(
        code="",
        what="its process has ended without an answer",
        hint=f"{command('run', 'follow', run.id, cluster=cluster)} shows what it printed",
    )


def output_tail(folder: Path) -> str:
    """Return the end of what the agents of a detached run printed."""
    with contextlib.suppress(OSError), (folder / OUTPUT).open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_OUTPUT))
        return file.read(MAX_OUTPUT).decode("utf-8", "replace")
    return ""


def _is_here(run: RunRecord) -> bool:
    return run.machine in {"", machine_id()} and Path(run.folder).is_dir()


def _read(file: Path, kind: Any) -> Any:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return typed.json_reader(kind)(file.read_bytes())
    return None
