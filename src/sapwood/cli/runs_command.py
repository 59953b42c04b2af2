"""What ``sapwood runs`` and ``sapwood run --detach`` do."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.progress import RunState
from sapwood.cli.failures import show_error
from sapwood.cli.head_connection import asked_head
from sapwood.cli.options import RunRequest
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.cli.progress import progress_line
from sapwood.cli.run_report import RunAnswer, show_answer
from sapwood.cli.work_tables import show_work
from sapwood.client.detached_runs import DetachedRun, DetachedRuns
from sapwood.core import typed
from sapwood.core.hints import command
from sapwood.core.terminal_text import printable
from sapwood.environment.folders import expand_user
from sapwood.head import calls
from sapwood.head.runs import ANSWER


def begin(request: RunRequest, session: str, cluster: str) -> None:
    """Start a run that continues without this process.

    Raises:
        SapwoodError: It cannot be started.
    """
    wanted = calls.CreateRun(
        words=words_of(request),
        program=request.program.resolve().name,
        session=session,
        folder=str(Path.cwd()),
    )
    made = asked_head(cluster, calls.CREATE_RUN, msgspec.to_builtins(wanted))
    record = typed.convert(made, calls.RunRecord)
    if request.as_json:
        print_json(_facts(DetachedRun(record, partial(asked_head, cluster), cluster)))
    else:
        attach = command("runs", "attach", record.id, cluster=cluster)
        typer.echo(f"The run {record.id} has begun: {attach} follows it.")


def whole_source(data: str) -> str:
    """Return data as another process in another folder finds them.

    Example:
        >>> whole_source("https://example.org/a.csv"), whole_source("/data/*.csv")
        ('https://example.org/a.csv', '/data/*.csv')
    """
    return data if "://" in data else str(expand_user(data).absolute())


def words_of(request: RunRequest) -> list[str]:
    """Return what ``sapwood run`` is given for a request, by whole paths.

    Example:
        >>> words_of(RunRequest(program=Path("/pi"), parameters={"n": "3"}, chunk=2))
        ['/pi', '-p', 'n=3', '--chunk', '2', '--on-agent-loss', 'replace']
    """
    words = [str(request.program.resolve())]
    if request.data is not None:
        words += ["--data", whole_source(request.data)]
    if request.columns is not None:
        words += ["--columns", ",".join(request.columns)]
    for name, value in request.parameters.items():
        words += ["-p", f"{name}={value}"]
    for name, setting in request.flags.items():
        text = str(setting).lower() if isinstance(setting, bool) else setting  # as TOML has it
        words += ["--set", f"{name}={text}"]
    if request.chunk is not None:
        words += ["--chunk", str(request.chunk)]
    if request.output is not None:
        words += ["--output", str(request.output.resolve())]
    words += ["--on-agent-loss", request.on_agent_loss]
    return [*words, *["--allow-nan"] * request.allow_nan]


def show_all(cluster: str, *, over: bool, as_json: bool) -> None:
    """List runs."""
    found = _runs(cluster)
    listed = found.history() if over else found.list()
    if as_json:
        print_json({"runs": [_facts(one) for one in listed]})
        return
    rows = [
        (
            one.id,
            one.program,
            one.session or "-",
            one.state.value,
            f"{dt.datetime.fromtimestamp(one.record.created, dt.UTC).astimezone():%m-%d %H:%M}",
            f"{one.seconds:.0f} s",
            _short(one),
        )
        for one in listed
    ]
    headings = ("run", "program", "session", "state", "began", "time>", "progress")
    write(table("", headings, rows, wrap="progress"))


def show(run: str, cluster: str, *, as_json: bool) -> None:
    """Show a run."""
    found = _runs(cluster).find(run)
    found.require_files()
    if as_json:
        print_json({**_facts(found), "answer": found.answer, "work": found.work})
        return
    typer.echo(f"{found.id}: {found.program}, {found.state}")
    if found.restarts:
        typer.echo(f"  {begun_again(found.restarts)}: its process or its session was gone")
    if found.waits:
        typer.echo(f"  it waits for its machines: {found.waits}")
    progress, work, error = found.progress, found.work, found.error
    if progress is not None:
        typer.echo(progress_line(found.program, progress))
    if found.state is RunState.DONE:
        show_answer(typed.convert(found.answer, RunAnswer))
    if work is not None:
        show_work(work)
    if error is not None:
        show_error(error)


def follow(run: str, cluster: str, target: Path | None, *, as_json: bool) -> int:
    """Show what agents print in a run until it is over, then what it gave.

    Returns:
        The exit code that ``sapwood run`` would have.
    """
    found = _runs(cluster).find(run)
    found.follow(_to_stderr, on_restart=_tell_of_restart)
    error = found.error
    if error is not None:
        return show_error(error, as_json=as_json)
    if target is not None:
        target.write_bytes((Path(found.record.folder) / ANSWER).read_bytes())
    answer = typed.convert(found.answer, RunAnswer)
    if as_json:
        print_json(answer)
    else:
        show_answer(answer)
    return 0


def cancel(run: str, cluster: str, *, as_json: bool) -> None:
    """Cancel a run."""
    found = _runs(cluster).find(run)
    found.cancel()
    if as_json:
        print_json(_facts(found))
    else:
        typer.echo(f"The run {found.id} is {found.state}.")


def _runs(cluster: str) -> DetachedRuns:
    return DetachedRuns(partial(asked_head, cluster), cluster)


def _to_stderr(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    shown = printable(text, colours=True, returns=True)
    sys.stderr.buffer.write(shown.encode("utf-8", "surrogateescape"))
    sys.stderr.flush()


def _facts(run: DetachedRun) -> dict[str, Any]:
    progress = run.progress
    shown = msgspec.to_builtins(run.record)
    return {
        **shown,
        "waits": run.waits,
        "progress": None if progress is None else msgspec.to_builtins(progress),
    }


def _short(run: DetachedRun) -> str:
    if run.record.reason:
        return run.record.reason
    progress = run.progress
    if progress is None:
        return f"waits: {run.waits}" if run.waits else ""
    planned = "" if progress.iterations is None else f"/{progress.iterations}"
    return f"iteration {progress.iteration}{planned}"


def _tell_of_restart(restarts: Sequence[float]) -> None:
    typer.echo(f"sapwood: the run was {begun_again(restarts)}", err=True)
