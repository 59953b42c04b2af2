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
from sapwood.core.errors import InputError, SapwoodError
from sapwood.environment.units import describe_size
from sapwood.head.parts.runs import Runs
from sapwood.views import page
from sapwood.views.run_page import RunPage, of_detached

STDOUT = Path("-")


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
            help="File to write; default: run-ID.html; - is stdout.",
        ),
    ] = None,
    cluster: Cluster = "default",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Write a report of a detached run, as one HTML file.

    The file needs no network. It shows the work and waiting times of agents, rates, moved items,
    losses, and the result or why the run failed; for an active run, its present state.
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


def write_of_run(run: Run, answer: RunAnswer | None, output: Path) -> None:
    """Write the report of a run of this process that is over, or was interrupted.

    Args:
        run: The run.
        answer: What it gave; None if it has failed.
        output: The file.

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
        written=time.time(),
        version=version("sapwood"),
    )
    write_report(view, output)


def _plain(answer: RunAnswer) -> Any:
    return msgspec.json.decode(json_bytes(answer))


def write_report(view: RunPage, file: Path) -> int:
    """Write a report, and return how many bytes it has.

    Raises:
        InputError: The file cannot be written.
    """
    text = page.report(view).encode("utf-8", "replace")
    try:
        if file == STDOUT:
            sys.stdout.buffer.write(text)
        else:
            file.write_bytes(text)
    except OSError as error:
        raise InputError(
            f"the report cannot be written: {error.strerror}", where=str(file)
        ) from error
    return len(text)
