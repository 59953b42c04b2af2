"""The command ``sapwood``: a table of its commands, each in the module of its noun."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from sapwood.cli import starting
from sapwood.cli.added_commands import WithAdded, check_installed
from sapwood.cli.failures import EXIT_CODES, show_error
from sapwood.cli.lazy import LazyEntry, LazyGroup
from sapwood.cli.old_names import with_new_names
from sapwood.core.errors import InputError, SapwoodError

EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."

PROGRAMS = "Programs and runs"
CLUSTERS = "Clusters"
HERE = "This machine"

COMMANDS = {
    "run": LazyEntry(
        "sapwood.cli.run_commands:app",
        "Run a program over data on agents, of this machine or of others.",
        panel=PROGRAMS,
    ),
    "exec": LazyEntry(
        "sapwood.cli.execute:execute",
        "Run a command on every node of a set of machines.",
        context_settings={"allow_interspersed_args": False},
        panel=PROGRAMS,
    ),
    "new": LazyEntry(
        "sapwood.cli.new:new", "Create a folder with a small program that runs.", panel=PROGRAMS
    ),
    "build": LazyEntry(
        "sapwood.cli.build:build",
        "Build the sources of a program into the cache, for one target or several.",
        panel=PROGRAMS,
    ),
    "program": LazyEntry("sapwood.cli.program:app", "Describe programs.", panel=PROGRAMS),
    "report": LazyEntry(
        "sapwood.cli.report:report",
        "Write a report of a detached run, as one HTML file, or as a trace for Perfetto.",
        panel=PROGRAMS,
    ),
    "up": LazyEntry(
        "sapwood.cli.up:up",
        "Start a long-lived cluster, and show how other machines join it.",
        panel=CLUSTERS,
    ),
    "down": LazyEntry(
        "sapwood.cli.up:down",
        "Stop a cluster, its nodes, and all that runs on them.",
        panel=CLUSTERS,
    ),
    "top": LazyEntry(
        "sapwood.cli.top:top",
        "Show the health, nodes, load, sessions and runs of a cluster, until Ctrl-C.",
        panel=CLUSTERS,
    ),
    "stack": LazyEntry(
        "sapwood.cli.stack:stack",
        "Show where user code is now: the stacks of all agents, equal ones once.",
        panel=CLUSTERS,
    ),
    "profile": LazyEntry(
        "sapwood.cli.profile:profile",
        "Sample how often which user code runs on the agents of a session.",
        panel=CLUSTERS,
    ),
    "dashboard": LazyEntry(
        "sapwood.cli.dashboard:dashboard",
        "Show a link that opens the dashboard of a cluster.",
        panel=CLUSTERS,
    ),
    "events": LazyEntry(
        "sapwood.cli.events:events",
        "Show the events of a cluster: nodes, refusals, credentials, sessions, runs, policy.",
        panel=CLUSTERS,
    ),
    "logs": LazyEntry(
        "sapwood.cli.logs:logs",
        "Print the log lines of processes and machines, merged by time.",
        panel=CLUSTERS,
    ),
    "node": LazyEntry(
        "sapwood.cli.node_commands:app",
        "Check this machine, join a cluster, and manage the nodes of a cluster.",
        panel=CLUSTERS,
    ),
    "session": LazyEntry(
        "sapwood.cli.session_commands:app",
        "Manage sessions, which outlive the programs that use them.",
        panel=CLUSTERS,
    ),
    "agent": LazyEntry(
        "sapwood.cli.agent:app",
        "Invite agents that you start into a session, and be one.",
        panel=CLUSTERS,
    ),
    "stage": LazyEntry(
        "sapwood.cli.stage:app", "Copy files to the nodes of a cluster and back.", panel=CLUSTERS
    ),
    "token": LazyEntry(
        "sapwood.cli.token:app", "Create, list and revoke join tokens.", panel=CLUSTERS
    ),
    "credential": LazyEntry(
        "sapwood.cli.credential:app", "Issue, list and revoke credentials.", panel=CLUSTERS
    ),
    "policy": LazyEntry(
        "sapwood.cli.policy:app", "Show and change the policy of a cluster.", panel=CLUSTERS
    ),
    "config": LazyEntry("sapwood.cli.config:app", "Show and check the configuration.", panel=HERE),
    "cache": LazyEntry(
        "sapwood.cli.cache:app", "Show and prune the cache of built programs.", panel=HERE
    ),
    "topology": LazyEntry("sapwood.cli.topology:app", "Show shapes of trees.", panel=HERE),
    "run-driver": LazyEntry(
        "sapwood.cli.run_driver:run_driver",
        "Drive a detached run, which is read from standard input; its head calls this.",
        hidden=True,
    ),
}
"""The commands of this package, with their lines in ``sapwood --help``."""


class SapwoodGroup(LazyGroup):
    """The commands of ``sapwood``."""

    entries = WithAdded(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that words name, with the rest of the words."""
        try:
            args = with_new_names(args, COMMANDS)
            check_installed(args[0], self.entries)
            found = super().resolve_command(ctx, args)
        except SapwoodError as error:
            raise typer.Exit(show_error(error, as_json="--json" in args)) from None
        starting.clear()  # the module of the command is imported
        return found


app = typer.Typer(
    name="sapwood",
    cls=SapwoodGroup,
    help="Turn machines into one tree and run compiled programs on it.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _show_version(wanted: bool) -> None:  # noqa: FBT001 - the shape of a typer callback
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - a slow import, wanted only here

        typer.echo(f"sapwood {version('sapwood')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    del version  # its callback has done the work


def main() -> None:
    """Run the command line; the entry point of the console script."""
    if "--json" not in sys.argv:
        app(prog_name="sapwood")
        return
    try:
        sys.exit(app(prog_name="sapwood", standalone_mode=False))
    except Exception as error:
        said = getattr(error, "format_message", None)  # what commands have no name for elsewhere
        if said is None:
            raise
        sys.exit(show_error(InputError(said(), hint="see --help"), as_json=True))
