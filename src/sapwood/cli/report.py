"""``sapwood report``: a run as one HTML file; ``report_command.py`` writes it."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood.activity.run import Run
from sapwood.cli.failures import reporting
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import json_bytes, print_json
from sapwood.cli.run_report import RunAnswer
from sapwood.code.profiles import ProfileResult
from sapwood.core.errors import InputError, SapwoodError
from sapwood.environment.units import describe_size
from sapwood.head.parts.runs import Runs
from sapwood.views import page
from sapwood.views.run_page import RunPage, of_detached
from sapwood.views.trace import trace_of

STDOUT = Path("-")

TRACE = ".json"
"""How the name of a file ends that gets a trace."""


@reporting
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run, or the start of it.")],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write; default: run-ID.html; FILE.json: a trace; - is stdout.",
        ),
    ] = None,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report of a detached run, as one HTML file, or as a trace for Perfetto.

    The HTML file needs no network. It shows the work and waiting times of agents, rates, moved
    items, losses, and the result or why the run failed; for an active run, its present state.
    `sapwood run --report FILE` writes the same for a run that is not detached.
    """
    record = asked_head(cluster, CALL_TIMEOUT, Runs.find, run)
    view = of_detached(record, version("sapwood"), cluster)
    if view.elsewhere:
        raise InputError(
            f"{view.elsewhere}, not here", where=record.machine, hint="write the report there"
        )
    file = output or Path(f"run-{record.id}.html")
    size = write_report(view, file)
    if as_json:
        print_json({"run": record.id, "state": record.state, "file": str(file), "bytes": size})
    elif file != STDOUT:
        going = " The run is active: it shows its present state." * (record.state == "running")
        typer.echo(f"Wrote {file} ({describe_size(size)}).{going}")


def write_of_run(
    run: Run, answer: RunAnswer | None, output: Path, profile: ProfileResult | None = None
) -> None:
    """Write the report of a run of this process that is over, or was interrupted.

    Args:
        run: The run.
        answer: What it gave; None if it has failed.
        output: The file.
        profile: How often which user code was seen, if that was asked for.

    Raises:
        InputError: The file cannot be written.
    """
    error = run.exception() if run.done() else None
    record = run.record
    view = RunPage(
        program=run.program.name,
        state=run.progress.state.value,
        created=record.began,
        ended=record.began + record.seconds,
        progress=run.progress,
        record=record,
        statistics=run.statistics,
        answer=None if answer is None else _plain(answer),
        error=error.to_record() if isinstance(error, SapwoodError) else None,
        profile=profile,
        written=time.time(),
        version=version("sapwood"),
    )
    write_report(view, output)


def _plain(answer: RunAnswer) -> Any:
    return msgspec.json.decode(json_bytes(answer))


def write_report(view: RunPage, file: Path) -> int:
    """Write a report, or a trace if the file is ``.json``; return how many bytes it has.

    Raises:
        InputError: The file cannot be written, or the run has no record yet.
    """
    if file.suffix != TRACE:
        return write_page(page.report(view), file, "report")
    if view.record is None:
        raise InputError(
            "the run has recorded no work", where=str(file), hint="try again in a few seconds"
        )
    return write_page(msgspec.json.encode(trace_of(view.record)).decode(), file, "trace")


def write_page(text: str, file: Path, what: str) -> int:
    """Write a page into a file or to standard output, and return how many bytes it has.

    Raises:
        InputError: The file cannot be written.
    """
    data = text.encode("utf-8", "replace")
    try:
        if file == STDOUT:
            sys.stdout.buffer.write(data)
        else:
            file.write_bytes(data)
    except OSError as error:
        raise InputError(
            f"the {what} cannot be written: {error.strerror}", where=str(file)
        ) from error
    return len(data)
