"""``sapwood exec``: a command on every node of a set of machines."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli import starting
from sapwood.cli.execute_command import (
    ExecRequest,
    run_everywhere,
)
from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Set, assignments, machines_of
from sapwood.core.errors import ArgumentError


@reporting
def execute(  # noqa: PLR0913 - each is an option of the command
    command: Annotated[
        list[str],
        typer.Argument(metavar="COMMAND...", help="The command; write -- before it."),
    ],
    *,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Machines: local, ssh:n1,n2, ssh:gpu[1-4], ssh:@FILE, slurm:4, ray:2, head, or "
            "nodes:2 for trying things.",
        ),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Run on the nodes of this session, by the right to run code there."
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The cluster of --session, --nodes and --on head: its name, or "
            "sapwood://HOST:PORT.",
        ),
    ] = "default",
    nodes: Annotated[
        str,
        typer.Option(
            metavar="SET",
            help="Run on these nodes only, such as n[1-3,7]; without --on and --session, on those "
            "of a head.",
        ),
    ] = "",
    label: Annotated[
        bool | None,
        typer.Option(
            "--label/--no-label",
            help="Write the node before each line, and equal lines of several nodes once; "
            "default: with several nodes.",
        ),
    ] = None,
    stdin: Annotated[
        str | None,
        typer.Option(
            metavar="all|NODE",
            help="Give standard input to all nodes or to one; default: it is empty everywhere.",
        ),
    ] = None,
    folder: Annotated[
        str,
        typer.Option(
            "--cwd",
            metavar="DIR",
            help="Where the command starts; default: the home folder, on local the current one.",
        ),
    ] = "",
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Staged environment that the command has (`sapwood stage environment`).",
        ),
    ] = None,
    settings: Set = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write output to a terminal as it is; default: escape sequences become visible.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each thing that happens.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a command on every node of a set of machines.

    The exit code is the largest of all nodes; a signal counts as 128 + its number.

    Ctrl-C interrupts the command on all nodes, a second one kills it; nothing is left behind.
    """
    flags: dict[str, str | int] = dict(assignments(settings or (), "--set"))
    if on is not None and session is not None:
        raise ArgumentError("--on and --session are both given", hint="leave one out")
    if on is not None:
        flags["cluster.on"] = machines_of(on, None, cluster) or on
    if session is not None:
        flags["cluster.on"] = f"session:{session}"
    if nodes and on is None and session is None:
        flags["cluster.on"] = machines_of("head", None, cluster) or "head"
    if environment is not None:
        flags["environment.packages"] = environment
    request = ExecRequest(
        command=command,
        flags=flags,
        label=label,
        stdin=stdin,
        folder=folder,
        as_json=as_json,
        cluster=cluster,
        nodes=nodes,
        raw=raw,
    )
    starting.say("starting the nodes")
    raise typer.Exit(run_everywhere(request))
