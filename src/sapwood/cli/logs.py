"""``sapwood logs``: what processes and machines have logged, in the order of its times."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli import cluster_logs
from sapwood.cli.failures import reported
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.log_lines import described
from sapwood.cli.options import Debug, Set, assignments
from sapwood.cli.present import answer_stream
from sapwood.core.errors import InputError
from sapwood.core.hints import command
from sapwood.core.hostset import expand_hosts
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.folders import expand_user
from sapwood.environment.log_files import LogFile, Wanted, merged
from sapwood.environment.logs import LEVELS
from sapwood.environment.units import parse_duration

FOLLOW_PAUSE = 0.2
"""Seconds between two looks for new lines."""


def logs(  # noqa: PLR0913 - each parameter is one option of the command line
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Log files; default: log.file of the configuration."),
    ] = None,
    *,
    name: Annotated[
        str,
        typer.Option(
            "--cluster",
            metavar="CLUSTER",
            help="Of the head and the nodes of a cluster that is up.",
        ),
    ] = "",
    component: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only of this component; may be repeated."),
    ] = None,
    level: Annotated[
        str, typer.Option(metavar="LEVEL", help="Only from this level on, for example warning.")
    ] = "",
    node: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SET", help="Only of these machines, for example n1 or n[1-4]; may be repeated."
        ),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Only of the last so long, for example 10min.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as lines come, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the lines as they are in the files.")
    ] = False,
    settings: Set = None,
    debug: Debug = False,
) -> None:
    """Print what processes and machines have logged, merged by time.

    That is what files hold or, with --cluster, what the head and the nodes of a cluster keep in
    memory: there the times are from the head's clock, and equal lines of several nodes are one.
    """
    with reported(debug=debug, as_json=as_json), ExitStack() as stack:
        names = tuple(one for text in node or () for one in expand_hosts(text))
        after = time.time() - parse_duration(since) if since else 0.0
        wanted = Wanted(component or (), _checked(level), names, after)
        if name:
            if files:
                raise InputError("--cluster and files are both given", hint="leave one of them out")
            stack.enter_context(termination_interrupts())
            cluster_logs.show(name, wanted, follow=follow, as_json=as_json)
            return
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


def _checked(level: str) -> str:
    if level and level not in LEVELS:
        raise InputError(f"unknown level {shown(level)}", hint=f"levels are {', '.join(LEVELS)}")
    return level


def _configured(settings: list[str] | None) -> list[Path]:
    configured = load_configuration(assignments(settings or (), "--set")).settings.log.file
    if not configured:
        from sapwood.head.folder import running_heads  # noqa: PLC0415 - only for this error

        raise InputError(
            "no log file is known",
            hint="name files, or set log.file in the configuration"
            + "".join(
                f"; {command('logs', '--cluster', one)} shows the log of a cluster"
                for one in running_heads()
            ),
        )
    return [expand_user(configured)]
