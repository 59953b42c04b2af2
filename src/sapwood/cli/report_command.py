"""What ``sapwood report`` and ``sapwood run --report`` do."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.run import Run
from sapwood.cli.head_connection import asked_head
from sapwood.cli.present import json_bytes, print_json
from sapwood.cli.run_report import RunAnswer
from sapwood.core import typed
from sapwood.core.errors import InputError, SapwoodError
from sapwood.environment.units import describe_size
from sapwood.head import calls
from sapwood.views.page import report
from sapwood.views.run_picture import RunPicture, of_detached

STDOUT = Path("-")


def write_detached(run: str, cluster: str, output: Path | None, *, as_json: bool) -> None:
    """Write the report of a detached run.

    Raises:
        ConfigurationError: The run does not exist, or its files are on another machine.
        InputError: The file cannot be written.
    """
    record = typed.convert(asked_head(cluster, calls.FIND_RUN, run), calls.RunRecord)
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
    view = RunPicture(
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


def write_report(view: RunPicture, file: Path) -> int:
    """Write a report, and return how many bytes it has.

    Raises:
        InputError: The file cannot be written.
    """
    page = report(view).encode("utf-8", "replace")
    try:
        if file == STDOUT:
            sys.stdout.buffer.write(page)
        else:
            file.write_bytes(page)
    except OSError as error:
        raise InputError(
            f"the report cannot be written: {error.strerror}", where=str(file)
        ) from error
    return len(page)
