"""What ``sapwood runs`` and ``sapwood run --detach`` do."""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.progress import Progress
from sapwood.cli.failures import show_error
from sapwood.cli.head_connection import asked_head
from sapwood.cli.options import RunRequest
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.cli.progress import progress_line
from sapwood.cli.run_report import RunAnswer, show_answer
from sapwood.core import typed
from sapwood.core.errors import CancelledError, ErrorRecord, ExecutionError, SapwoodError
from sapwood.head import calls
from sapwood.head.runs import ANSWER, CANCELLED, DONE, OUTPUT, PROGRESS, RUNNING

LOOK = 0.2
"""Seconds between two looks at a run that is followed."""

CANCEL_TIMEOUT = 60.0
"""Seconds in which a run that is cancelled must be over."""


def begin(request: RunRequest, session: str, cluster: str) -> None:
    """Have a run begun that goes on without this process.

    Raises:
        SapwoodError: It cannot be started.
    """
    wanted = calls.CreateRun(
        words=words_of(request),
        program=request.program.resolve().name,
        session=session,
        folder=str(Path.cwd()),
    )
    record = _asked(cluster, calls.CREATE_RUN, msgspec.to_builtins(wanted))
    if request.as_json:
        print_json(_facts(record))
    else:
        typer.echo(f"The run {record.id} has begun: `sapwood runs attach {record.id}` follows it.")


def words_of(request: RunRequest) -> list[str]:
    """Return what ``sapwood run`` is given for a request, by whole paths.

    Example:
        >>> words_of(RunRequest(program=Path("/pi"), parameters={"n": "3"}, chunk=2))
        ['/pi', '-p', 'n=3', '--chunk', '2', '--on-agent-loss', 'replace']
    """
    words = [str(request.program.resolve())]
    if request.data is not None:
        words += ["--data", str(request.data.resolve())]
    for name, value in request.parameters.items():
        words += ["-p", f"{name}={value}"]
    for name, setting in request.flags.items():
        words += ["--set", f"{name}={setting}"]
    if request.chunk is not None:
        words += ["--chunk", str(request.chunk)]
    if request.output is not None:
        words += ["--output", str(request.output.resolve())]
    words += ["--on-agent-loss", request.on_agent_loss]
    return [*words, *["--allow-nan"] * request.allow_nan]


def show_all(cluster: str, *, over: bool, as_json: bool) -> None:
    """List runs."""
    found = typed.convert(asked_head(cluster, calls.LIST_RUNS), list[calls.RunRecord])
    records = [one for one in found if over or one.state == RUNNING]
    if as_json:
        print_json({"runs": [_facts(one) for one in records]})
        return
    rows = [
        (
            one.id,
            one.program,
            one.session or "-",
            one.state,
            f"{dt.datetime.fromtimestamp(one.created, dt.UTC).astimezone():%m-%d %H:%M}",
            f"{(one.ended or time.time()) - one.created:.0f} s",
            _short(one),
        )
        for one in records
    ]
    headings = ("run", "program", "session", "state", "began", "time>", "progress")
    write(table("", headings, rows, wrap="progress"))


def show(run: str, cluster: str, *, as_json: bool) -> None:
    """Show a run."""
    record = _asked(cluster, calls.FIND_RUN, run)
    if as_json:
        print_json({**_facts(record), "answer": _answer(record)})
        return
    typer.echo(f"{record.id}: {record.program}, {record.state}")
    if record.restarts:
        typer.echo(f"  {begun_again(record.restarts)}: its process or its session was gone")
    progress = _progress(record)
    if progress is not None:
        typer.echo(progress_line(record.program, progress))
    if record.state == DONE:
        show_answer(typed.convert(_answer(record), RunAnswer))
    elif record.state != RUNNING:
        show_error(_error(record))


def follow(run: str, cluster: str, target: Path | None, *, as_json: bool) -> int:
    """Show what agents print in a run until it is over, then what it gave.

    Returns:
        The exit code that ``sapwood run`` would have.
    """
    record = _asked(cluster, calls.FIND_RUN, run)
    pause = threading.Event()
    told = 0
    with (Path(record.folder) / OUTPUT).open("rb") as output:
        while True:
            record = _asked(cluster, calls.FIND_RUN, record.id)
            if len(record.restarts) != told:
                told = len(record.restarts)
                typer.echo(f"sapwood: the run was {begun_again(record.restarts)}", err=True)
            sys.stderr.buffer.write(output.read())
            sys.stderr.flush()
            if record.state != RUNNING:
                break
            pause.wait(LOOK)
    if target is not None and record.state == DONE:
        target.write_bytes((Path(record.folder) / ANSWER).read_bytes())
    if record.state != DONE:
        return show_error(_error(record), as_json=as_json)
    answer = typed.convert(_answer(record), RunAnswer)
    if as_json:
        print_json(answer)
    else:
        show_answer(answer)
    return 0


def cancel(run: str, cluster: str, *, as_json: bool) -> None:
    """Cancel a run."""
    record = _asked(cluster, calls.CANCEL_RUN, run, CANCEL_TIMEOUT)
    if as_json:
        print_json(_facts(record))
    else:
        typer.echo(f"The run {record.id} is {record.state}.")


def _facts(record: calls.RunRecord) -> dict[str, Any]:
    progress = _progress(record)
    shown = msgspec.to_builtins(record)
    return {**shown, "progress": None if progress is None else msgspec.to_builtins(progress)}


def _progress(record: calls.RunRecord) -> Progress | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return typed.json_reader(Progress)((Path(record.folder) / PROGRESS).read_bytes())
    return None


def _short(record: calls.RunRecord) -> str:
    progress = _progress(record)
    if progress is None:
        return ""
    planned = "" if progress.iterations is None else f"/{progress.iterations}"
    return f"iteration {progress.iteration}{planned}"


def _answer(record: calls.RunRecord) -> Any:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((Path(record.folder) / ANSWER).read_bytes())
    return None


def _error(record: calls.RunRecord) -> SapwoodError:
    """Return why a run has no result."""
    if record.state == CANCELLED:
        return CancelledError(f"the run {record.id} was cancelled")
    answer = _answer(record)
    if isinstance(answer, dict):
        with contextlib.suppress(msgspec.ValidationError):
            return SapwoodError.from_record(typed.convert(answer.get("error"), ErrorRecord))
    said = ""
    with contextlib.suppress(OSError):
        said = (Path(record.folder) / OUTPUT).read_text("utf-8", "replace")[-2000:]
    often = f"; it was {begun_again(record.restarts)}" if record.restarts else ""
    return ExecutionError(
        f"the process of the run {record.id} has ended without an answer{often}",
        details={"end of its output": said} if said else {},
    )


def _asked(cluster: str, name: str, value: Any, timeout: float = 30.0) -> calls.RunRecord:
    return typed.convert(asked_head(cluster, name, value, timeout), calls.RunRecord)
