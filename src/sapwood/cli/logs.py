"""``sapwood logs``: what processes and machines have logged, in the order of its times."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood.cli.failures import reported
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.options import Debug, Set, assignments
from sapwood.cli.present import answer_stream
from sapwood.core.errors import InputError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.log_files import LogFile, LogLine, Wanted, merged
from sapwood.environment.logs import LEVELS

FOLLOW_PAUSE = 0.2
"""Seconds between two looks for new lines."""


def logs(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Log files; default: log.file of the configuration."),
    ] = None,
    *,
    component: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only of this component; may be repeated."),
    ] = None,
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="Only from this level on, for example warning.")
    ] = "",
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only of this machine; may be repeated."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the lines as they are in the files.")
    ] = False,
    settings: Set = None,
    debug: Debug = False,
) -> None:
    """Print log files of several processes and machines, merged by time."""
    with reported(debug=debug, as_json=as_json), ExitStack() as stack:
        wanted = Wanted(component or (), _checked(level), node or ())
        opened = [
            stack.enter_context(closing(LogFile(path))) for path in files or _configured(settings)
        ]
        if follow:
            stack.enter_context(termination_interrupts())
        while True:
            for line in merged(opened, wanted):
                typer.echo(line.raw if as_json else described(line), file=answer_stream())
            if not follow:
                return
            time.sleep(FOLLOW_PAUSE)


def described(line: LogLine) -> str:
    """Return a line for people: its time is that of this machine's clock.

    Example:
        >>> described(LogLine("", event="what is no log line"))
        '?  what is no log line'
    """
    if not line.level:
        return f"?  {line.event}"
    where = f"{line.node}[{line.pid}]" if line.node else f"[{line.pid}]"
    fields = "".join(f"  {key}={_text(value)}" for key, value in line.fields.items())
    head = f"{_local(line.timestamp)} {where} {line.level:<8} {line.component}: {line.event}"
    return f"{head}{fields}" + (f"\n{line.exception}" if line.exception else "")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _local(timestamp: str) -> str:
    try:
        moment = dt.datetime.fromisoformat(timestamp).astimezone()
    except ValueError:
        return timestamp
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"


def _checked(level: str) -> str:
    if level and level not in LEVELS:
        raise InputError(f"there is no level {level!r}", hint=f"levels are {', '.join(LEVELS)}")
    return level


def _configured(settings: list[str] | None) -> list[Path]:
    configured = load_configuration(assignments(settings or (), "--set")).settings.log.file
    if not configured:
        raise InputError(
            "there is no log file", hint="name files, or set log.file in the configuration"
        )
    return [Path(configured).expanduser()]
