"""The command ``sapwood``: puts the nouns together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sapwood.cli import (
    agent,
    build,
    cache,
    config,
    credential,
    dashboard,
    events,
    execute,
    lizard,
    logs,
    new,
    node,
    patch,
    policy,
    program,
    report,
    run,
    run_driver,
    runs,
    session,
    simulate,
    stage,
    token,
    toolchain,
    top,
    topology,
    tree,
    up,
)
from sapwood.cli.failures import EXIT_CODES, show_error
from sapwood.core.errors import InputError

_EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."

app = typer.Typer(
    name="sapwood",
    help="Turn machines into one tree and run compiled programs on it.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)
app.command("run", epilog=_EPILOG)(run.run)
app.command("run-driver", hidden=True)(run_driver.run_driver)
app.command("exec", context_settings={"allow_interspersed_args": False})(execute.execute)
app.command("up")(up.up)
app.command("down")(up.down)
app.command("new")(new.new)
app.command("build")(build.build)
app.command("report")(report.report)
app.command("top")(top.top)
app.command("simulate", hidden=True)(simulate.simulate)
app.command("patch")(patch.patch)
app.command("logs")(logs.logs)
app.command("dashboard")(dashboard.dashboard)
app.add_typer(program.app, name="program")
app.add_typer(node.app, name="node")
app.add_typer(stage.app, name="stage")
app.add_typer(token.app, name="token")
app.add_typer(credential.app, name="credential")
app.add_typer(policy.app, name="policy")
app.command("events")(events.events)
app.add_typer(session.app, name="session")
app.add_typer(agent.app, name="agent")
app.add_typer(runs.app, name="runs")
app.add_typer(tree.app, name="tree")
app.add_typer(topology.app, name="topology")
app.add_typer(config.app, name="config")
app.add_typer(cache.app, name="cache")
app.add_typer(toolchain.app, name="toolchain")
app.add_typer(lizard.app, name="lizard")


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
