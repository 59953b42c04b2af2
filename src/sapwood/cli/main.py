"""The command ``sapwood``: a table of its commands, each in the module of its noun."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from sapwood.cli import starting
from sapwood.cli.added_commands import WithAdded, check_installed
from sapwood.cli.failures import EXIT_CODES, show_error
from sapwood.cli.lazy import LazyEntry, LazyGroup
from sapwood.core.errors import InputError, SapwoodError

EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."

COMMANDS = {
    "run": LazyEntry(
        "sapwood.cli.run:run", "Run a program over data on agents, of this machine or of others."
    ),
    "run-driver": LazyEntry(
        "sapwood.cli.run_driver:run_driver",
        "Drive a detached run, which is read from standard input; its head calls this.",
        hidden=True,
    ),
    "exec": LazyEntry(
        "sapwood.cli.execute:execute",
        "Run a command on every node of a set of machines.",
        context_settings={"allow_interspersed_args": False},
    ),
    "up": LazyEntry(
        "sapwood.cli.up:up",
        "Start a cluster that stays, and show the line with which other machines join it.",
    ),
    "down": LazyEntry(
        "sapwood.cli.up:down", "End a cluster, its nodes, and all that runs on them."
    ),
    "new": LazyEntry(
        "sapwood.cli.new:new",
        "Make a folder with a small program that runs, to be changed into yours.",
    ),
    "build": LazyEntry(
        "sapwood.cli.build:build",
        "Build the sources of a program into the cache, for one target or several.",
    ),
    "report": LazyEntry(
        "sapwood.cli.report:report",
        "Write all that is known of a detached run into one HTML file, which needs no network.",
    ),
    "top": LazyEntry(
        "sapwood.cli.top:top",
        "Show the health, nodes, load, sessions and runs of a cluster, until Ctrl-C.",
    ),
    "simulate": LazyEntry(
        "sapwood.cli.simulate:simulate",
        "Run waves over a tree while processes fail, and check that nothing is lost or doubled.",
        hidden=True,
    ),
    "logs": LazyEntry(
        "sapwood.cli.logs:logs", "Print what processes and machines have logged, merged by time."
    ),
    "dashboard": LazyEntry(
        "sapwood.cli.dashboard:dashboard",
        "Show a link that lets a browser in, once, within five minutes.",
    ),
    "events": LazyEntry(
        "sapwood.cli.events:events",
        "Show what happened: nodes, refusals, credentials, sessions, runs, changes of the policy.",
    ),
    "program": LazyEntry("sapwood.cli.program:app", "Describe programs."),
    "node": LazyEntry(
        "sapwood.cli.node_commands:app",
        "Look at this machine, join a cluster, and manage its nodes.",
    ),
    "stage": LazyEntry("sapwood.cli.stage:app", "Keep files on the nodes of a cluster."),
    "token": LazyEntry("sapwood.cli.token:app", "Manage join tokens."),
    "credential": LazyEntry("sapwood.cli.credential:app", "Issue, list and revoke credentials."),
    "policy": LazyEntry("sapwood.cli.policy:app", "Show and change the policy of a cluster."),
    "session": LazyEntry(
        "sapwood.cli.session:app", "Manage sessions, which outlive the programs that use them."
    ),
    "agent": LazyEntry("sapwood.cli.agent:app", "Let agents that you start join a session."),
    "runs": LazyEntry("sapwood.cli.runs:app", "Manage detached runs (`sapwood run --detach`)."),
    "tree": LazyEntry("sapwood.cli.tree:app", "Show the links between the machines."),
    "topology": LazyEntry(
        "sapwood.cli.topology:app", "Show shapes of trees, and the cost of a wave in each."
    ),
    "config": LazyEntry("sapwood.cli.config:app", "Show and check the configuration."),
    "cache": LazyEntry("sapwood.cli.cache:app", "Show and empty the cache of built programs."),
    "toolchain": LazyEntry("sapwood.cli.toolchain:app", "Show compilers and their targets."),
}
"""The commands of this package, with their lines in ``sapwood --help``."""


OLD_OPTIONS = {"--name": "--cluster"}
"""Options that have another name now; the old name works for one release."""


def with_new_names(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the new names of options; warn of old ones.

    Example:
        >>> with_new_names(["node", "list", "--cluster", "lab"])
        ['node', 'list', '--cluster', 'lab']
    """
    if words[:1] == ["exec"] or (words[:1] and words[0] not in COMMANDS):
        return list(words)  # some of them are for other programs or packages
    found = []
    for word in words:
        option, equals, value = word.partition("=")
        new = OLD_OPTIONS.get(option)
        if new is not None:
            typer.echo(f"sapwood: {option} is called {new} now", err=True)
        found.append(word if new is None else f"{new}{equals}{value}")
    return found


class SapwoodGroup(LazyGroup):
    """The commands of ``sapwood``."""

    entries = WithAdded(COMMANDS)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that words name, with the rest of the words."""
        try:
            check_installed(args[0], self.entries)
            found = super().resolve_command(ctx, with_new_names(args))
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
