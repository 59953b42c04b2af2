"""The detached runs: ``sapwood run list``, ``show``, ``follow`` and ``stop``."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood.activity.progress import RunState
from sapwood.cli.failures import reporting, show_error
from sapwood.cli.head_connection import asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.parquet import Parquet, check_only_parquet, write_runs
from sapwood.cli.present import begun_again, print_json, table, write
from sapwood.cli.progress import progress_line
from sapwood.cli.run_report import RunAnswer, show_answer
from sapwood.cli.work_tables import show_work
from sapwood.client.detached_runs import DetachedRun, DetachedRuns
from sapwood.core import typed
from sapwood.core.terminal_text import printable
from sapwood.head.runs import ANSWER

Which = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or the start of it.")]


@reporting
def show_all(
    *,
    over: Annotated[bool, typer.Option("--all", help="List runs that are over, too.")] = False,
    parquet: Parquet = None,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List the active detached runs."""
    check_only_parquet(parquet, json=as_json)
    runs = _runs(cluster)
    listed = runs.history() if over else runs.list()
    if parquet is not None:
        count = write_runs(parquet, listed)
        typer.echo(f"{parquet} has {count} run{'s' * (count != 1)}.")
        return
    _show_all(listed, as_json=as_json)


@reporting
def show(
    run: Which, *, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False
) -> None:
    """Show how far a detached run is, its result, or why it failed."""
    found = _runs(cluster).find(run)
    found.require_files()
    if as_json:
        print_json({**facts(found), "answer": found.answer, "work": found.work})
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


@reporting
def follow(
    run: Which,
    *,
    cluster: Cluster = "default",
    output: Annotated[
        Path | None,
        typer.Option("--answer", metavar="FILE", help="Write the answer to this file, as JSON."),
    ] = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show what the agents of a detached run print, until it ends, then its answer.

    Ctrl-C ends the command; the run continues.
    """
    found = _runs(cluster).find(run)
    found.follow(_to_stderr, on_restart=_tell_of_restart)
    error = found.error
    if error is not None:
        raise typer.Exit(show_error(error, as_json=as_json))
    if output is not None:
        output.write_bytes((Path(found.record.folder) / ANSWER).read_bytes())
    answer = typed.convert(found.answer, RunAnswer)
    if as_json:
        print_json(answer)
    else:
        show_answer(answer)


@reporting
def stop(
    run: Which, *, cluster: Cluster = "default", as_json: Json = False, debug: Debug = False
) -> None:
    """Stop a detached run; its session continues."""
    found = _runs(cluster).find(run)
    found.cancel()
    if as_json:
        print_json(facts(found))
    else:
        typer.echo(f"The run {found.id} is {found.state}.")


def _show_all(listed: Sequence[DetachedRun], *, as_json: bool) -> None:
    if as_json:
        print_json({"runs": [facts(one) for one in listed]})
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


def _runs(cluster: str) -> DetachedRuns:
    return DetachedRuns(partial(asked_head, cluster), cluster)


def _to_stderr(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    shown = printable(text, colours=True, returns=True)
    sys.stderr.buffer.write(shown.encode("utf-8", "surrogateescape"))
    sys.stderr.flush()


def facts(run: DetachedRun) -> dict[str, Any]:
    """Return what ``--json`` shows of a run."""
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
