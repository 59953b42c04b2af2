"""``sapwood logs``: what processes and machines have logged, in the order of its times."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli import cluster_logs
from sapwood.cli.failures import remember_cluster, reported
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.log_lines import described
from sapwood.cli.options import (
    CLUSTER_VARIABLE,
    Debug,
    Set,
    assignments,
    cluster_is_named,
    named_cluster,
)
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
from sapwood.head.folder import running_heads

FOLLOW_PAUSE = 0.2
"""Seconds between two looks for new lines."""


def logs(  # noqa: PLR0913 - each parameter is one option of the command line
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE", help="Log files; default: the setting log.file, or a cluster."
        ),
    ] = None,
    *,
    name: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            envvar=CLUSTER_VARIABLE,
            callback=named_cluster,
            show_default="see above",
            help="Cluster: its name on this machine, or sapwood://HOST:PORT with a credential.",
        ),
    ] = None,
    component: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Lines of this component; may be repeated."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(metavar="LEVEL", help="Lines of this level and above, for example warning."),
    ] = "",
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--nodes", metavar="SET", help="Lines of these nodes, for example n1 or n[1-4]."
        ),
    ] = None,
    since: Annotated[
        str, typer.Option(metavar="TIME", help="Lines of this last time, for example 10min.")
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new lines, until Ctrl-C.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the lines as they are in the files.")
    ] = False,
    settings: Set = None,
    debug: Debug = False,
) -> None:
    """Print the log lines of processes and machines, merged by time.

    The lines come from files, or from the memory of the head and the nodes of a cluster: then
    times are of the head's clock, and equal lines of several nodes are one. Without FILE and
    --cluster, it is the file of the setting log.file, else the only cluster that is up here.
    """
    with reported(debug=debug, as_json=as_json), ExitStack() as stack:
        names = tuple(one for text in node or () for one in expand_hosts(text))
        after = time.time() - parse_duration(since) if since else 0.0
        wanted = Wanted(component or (), _checked(level), names, after)
        if files and cluster_is_named():
            raise InputError("--cluster and files are both given", hint="leave one of them out")
        read = files or ([] if name else _configured(settings))
        if not read:
            stack.enter_context(termination_interrupts())
            cluster_logs.show(name or _only_cluster(), wanted, follow=follow, as_json=as_json)
            return
        opened = [stack.enter_context(closing(LogFile(path))) for path in read]
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
    return [expand_user(configured)] if configured else []


def _only_cluster() -> str:
    """Return the only cluster that is up on this machine.

    Raises:
        InputError: There is none, or several are.
    """
    running = running_heads()
    if len(running) == 1:
        return remember_cluster(running[0])
    raise InputError(
        "no log file is known",
        hint="name files, or set log.file in the configuration"
        + "".join(
            f"; {command('logs', '--cluster', one)} shows the log of a cluster" for one in running
        ),
    )
