"""``sapwood exec``: a command on every node of a set of machines."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from sapwood.cli import starting
from sapwood.cli.credential_variables import files_for
from sapwood.cli.exec_views import ExecView, JsonLines, Terminal
from sapwood.cli.failures import reporting
from sapwood.cli.gathering import Gathered, OutputFiles
from sapwood.cli.head_access import open_head
from sapwood.cli.interrupts import forwarded_interrupts, termination_interrupts
from sapwood.cli.node_groups import without_groups
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import (
    CLUSTER_VARIABLE,
    Debug,
    Set,
    assignments,
    chosen_cluster,
    given_variables,
    head_if_named,
    machines_of,
)
from sapwood.cli.present import answer_stream
from sapwood.client.executing import PIECE, commands_on, start_command
from sapwood.code.runner.packages import packages_variables
from sapwood.core.errors import ArgumentError
from sapwood.core.failures import new_thread
from sapwood.core.hostset import fold_hosts
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import parse_duration
from sapwood.nodes.commands import Commands, NodeChoice, NodeExit, NodeOutput, RunningCommand

LATE: Final = 124
"""Exit code of a node where the command ran longer than its time limit, as of ``timeout``."""


@reporting
def execute(  # noqa: PLR0913 - each is an option of the command
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...", help="The command and its arguments; write -- before it."
        ),
    ] = None,
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
            metavar="SESSION",
            help="Run on the nodes of this session; needs the right to run code there.",
        ),
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar=CLUSTER_VARIABLE,
            callback=chosen_cluster,
            show_default="the only one that is up here, or 'default'",
            help="Run on this cluster, or on what --session and --nodes name there: its name, or "
            "sapwood://HOST:PORT.",
        ),
    ] = "default",
    nodes: Annotated[
        str,
        typer.Option(
            metavar="SET",
            help="Run on these nodes only, such as n[1-3,7], or groups: @NAME, "
            "@slurm:PARTITION, @./FILE.",
        ),
    ] = "",
    exclude: Annotated[
        str, typer.Option(metavar="SET", help="Leave out these nodes, or groups.")
    ] = "",
    pick: Annotated[
        int, typer.Option(metavar="N", min=0, help="Run on N of the nodes, chosen by chance.")
    ] = 0,
    shell: Annotated[
        bool,
        typer.Option("--shell", help="Ask for command lines, and run each on all nodes."),
    ] = False,
    fold: Annotated[
        bool,
        typer.Option(
            "--fold", "-b", help="Show whole outputs at the end: equal ones once, with their nodes."
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="As --fold, and of others how they differ from the usual one."),
    ] = False,
    outdir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write outputs into files: NODE.out and NODE.err."),
    ] = None,
    time_limit: Annotated[
        str,
        typer.Option(metavar="TIME", help="Kill the command where it runs longer (exit code 124)."),
    ] = "",
    connect: Annotated[
        str,
        typer.Option("--timeout", metavar="TIME", help="Time in which each machine must answer."),
    ] = "",
    label: Annotated[
        bool | None,
        typer.Option(
            "--label/--no-label",
            help="Label each line with its node, and print equal lines of several nodes once; "
            "default: if there are several nodes.",
        ),
    ] = None,
    stdin: Annotated[
        str | None,
        typer.Option(
            metavar="all|NODE",
            help="Send standard input to all nodes or to one; default: to none.",
        ),
    ] = None,
    folder: Annotated[
        str,
        typer.Option(
            "--cwd",
            metavar="DIR",
            help="Working directory of the command; default: the home folder, with local this one.",
        ),
    ] = "",
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]",
            help="Environment variable of the command; NAME alone takes its value from here; may "
            "be repeated.",
        ),
    ] = None,
    packages: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Staged packages of the command (`sapwood stage environment`).",
        ),
    ] = None,
    old_packages: Annotated[str | None, typer.Option("--environment", hidden=True)] = None,
    settings: Set = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw",
            help="Write escape sequences to a terminal as they are; default: make them visible.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each event.")
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
    if as_json and (fold or diff):
        raise ArgumentError("--json shows output as it arrives", hint="leave out --fold and --diff")
    _check_command(command or (), shell=shell)
    choice = NodeChoice(without_groups(nodes), without_groups(exclude), pick)
    if on is None and session is None:
        on = "head" if choice != NodeChoice() else head_if_named()
    if on is not None:
        flags["cluster.on"] = machines_of(on, None, cluster) or on
    if session is not None:
        flags["cluster.on"] = f"session:{session}"
    flags |= _of_packages(packages, old_packages)
    if connect:
        flags["nodes.start_timeout"] = connect
    limit = _seconds(time_limit)
    starting.say("starting the nodes")
    known = load_configuration(flags).settings
    credential, key = files_for(known.cluster.on)

    def new_view(names: Sequence[str]) -> ExecView:
        view: ExecView
        if as_json:
            view = JsonLines(answer_stream().buffer)
        elif fold or diff:
            view = Gathered(names, diff=diff, raw=raw)
        else:
            view = Terminal(names, label=len(names) > 1 if label is None else label, raw=raw)
        return view if outdir is None else OutputFiles(outdir, names, view)

    with (
        termination_interrupts(),
        commands_on(
            known.cluster.on,
            known,
            starting.wait,
            partial(open_head, cluster),
            credential=credential,
            key=key,
            nodes=choice,
        ) as commands,
    ):
        variables = packages_variables(known.environment.packages)
        variables = {**variables, **given_variables(env or ())}
        make = _Runs(commands, folder, variables, new_view, limit)
        starting.clear()
        if shell:
            status = _ask_for_lines(make)
        else:
            names = commands.names
            status = make.run(command or [], names if stdin == "all" else [stdin] if stdin else [])
    raise typer.Exit(status)


def _check_command(command: Sequence[str], *, shell: bool) -> None:
    """Check that there is a command, or that lines are asked for.

    Raises:
        ArgumentError: Both, or neither.
    """
    if bool(command) == shell:
        raise ArgumentError(
            "--shell and a command are both given" if shell else "no command is given",
            hint="write it behind --, for example `sapwood exec -- uname -a`",
        )


def _of_packages(packages: str | None, old: str | None) -> dict[str, str]:
    """Return the settings of ``--packages``, and of the option that it was called before."""
    if old is not None:
        warn_of("--environment", "--packages")
        packages = old if packages is None else packages
    return {} if packages is None else {"environment.packages": packages}


def _seconds(text: str) -> float | None:
    """Return the seconds of ``--time-limit``.

    Raises:
        ArgumentError: It is not a duration.
    """
    if not text:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise ArgumentError(str(error), where="--time-limit") from error
    if seconds <= 0:
        raise ArgumentError("the time limit is 0", where="--time-limit", hint="give more, or none")
    return seconds


class _Runs:
    """Runs commands on the same nodes, one after the other.

    Args:
        commands: Starts them.
        folder: Where they start.
        variables: Their environment variables.
        new_view: Makes what shows one, given the names of the nodes.
        limit: Seconds that one may take; None for any time.
    """

    def __init__(
        self,
        commands: Commands,
        folder: str,
        variables: Mapping[str, str],
        new_view: Callable[[Sequence[str]], ExecView],
        limit: float | None,
    ) -> None:
        self.commands = commands
        self._folder = folder
        self._variables = variables
        self._new_view = new_view
        self._limit = limit

    def run(self, command: Sequence[str], input_to: Sequence[str]) -> int:
        """Run a command on all nodes and show what it does; return its exit code."""
        names = self.commands.names
        view = self._new_view(names)
        with (
            start_command(
                self.commands, command, self._folder, self._variables, input_to
            ) as running,
            forwarded_interrupts(running.signal),
            _standard_input(running) if input_to else contextlib.nullcontext(),
        ):
            return _follow(running, view, names, self._limit)


def _ask_for_lines(runs: _Runs) -> int:
    """Run each line of standard input by a shell on all nodes; return the last exit code."""
    with contextlib.suppress(ImportError):  # a Python without it edits no lines
        import readline  # noqa: F401, PLC0415 - it changes input()
    prompt = f"{fold_hosts(runs.commands.names)}> " if sys.stdin.isatty() else ""
    status = 0
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            return status
        if line in {"exit", "quit"}:
            return status
        if line:
            status = runs.run(["sh", "-c", line], ())


def _follow(
    running: RunningCommand, view: ExecView, names: Sequence[str], limit: float | None
) -> int:
    end = None if limit is None else time.monotonic() + limit
    status, open_nodes = 0, dict.fromkeys(names)
    while not running.is_over:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            break
        waits = [one for one in (view.patience, left) if one is not None]
        event = running.next(min(waits, default=None))
        if isinstance(event, NodeOutput):
            view.wrote(event)
        elif event is not None:
            status = max(status, event.status)
            open_nodes.pop(event.node, None)
            view.ended(event)
        view.show_due()
    if open_nodes and limit is not None:
        running.close()
        for node in open_nodes:
            view.ended(NodeExit(node, LATE, f"killed because it ran longer than {limit:g} s"))
        status = max(status, LATE)
    view.close(status)
    return status


@contextlib.contextmanager
def _standard_input(running: RunningCommand) -> Iterator[None]:
    """Give a command what comes by standard input."""
    bell = os.eventfd(0, os.EFD_CLOEXEC)
    thread = new_thread("sapwood-input", _feed, running, bell)
    thread.start()
    try:
        yield
    finally:
        os.eventfd_write(bell, 1)
        running.close()  # it reads no more
        thread.join()
        os.close(bell)


def _feed(running: RunningCommand, bell: int) -> None:
    waiting = select.poll()
    waiting.register(bell, select.POLLIN)
    waiting.register(0, select.POLLIN)
    more = True
    while more:
        ready = dict(waiting.poll())
        if bell in ready:
            return
        try:
            data = os.read(0, PIECE)
        except OSError:  # there is none
            data = b""
        more = running.give(data) and bool(data)
