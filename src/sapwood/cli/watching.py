"""``sapwood run --watch``: run again after each edit, until Ctrl-C."""

from __future__ import annotations

import datetime as dt

import typer

from sapwood.cli import figures, starting
from sapwood.cli.execution import load_data, run_once, starting_agents
from sapwood.cli.failures import EXIT_INTERRUPTED, as_sapwood_error, show_error
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.request import RunRequest
from sapwood.client import Cluster, load_program
from sapwood.code.watch import Version
from sapwood.core.errors import SapwoodError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging


def execute_watching(request: RunRequest) -> int:
    """Run each version of a program as soon as it is built.

    What is edited meanwhile is built in the background; a run that has begun keeps its version,
    and the newest one follows. A version that cannot be used, or a run that fails, is told, and
    the next edit is waited for.

    Returns:
        The exit code: 130, as only Ctrl-C ends it.

    Raises:
        SapwoodError: The program cannot be loaded at the start, or no cluster made.
    """
    settings = load_configuration(request.flags).settings
    starting.clear()  # what follows is code of the program, which may print
    program = load_program(request.program, request.parameters)
    if request.output is not None:
        program.check_output(request.output)
    with (
        termination_interrupts(),
        configure_logging(settings.log),
        starting_agents(settings) as cluster,
        cluster.watch(request.program, parameters=request.parameters) as watch,
    ):
        number = 0
        try:
            while True:
                version = watch.wait(number + 1)
                number = version.number
                if _run_version(cluster, version, request) == EXIT_INTERRUPTED:
                    return EXIT_INTERRUPTED
                newest = watch.version
                if newest is not None and newest.number == number:
                    _say(request, "waiting for an edit; Ctrl-C ends")
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


def _run_version(cluster: Cluster, version: Version, request: RunRequest) -> int:
    """Run one version; what goes wrong is shown and does not end the watch."""
    try:
        if version.error is not None or version.program is None:
            raise version.error or SapwoodError("the program cannot be loaded")
        how = "found built" if all(built.cached for built in version.builds) else "built"
        seconds = figures.seconds(version.seconds)
        _say(request, f"version {version.number} ({version.hash[:12]}) {how} in {seconds}")
        program = version.program
        return run_once(cluster, program, load_data(program, request.data), request)
    except (SapwoodError, OSError) as error:
        known = as_sapwood_error(error)
        if known is None:
            raise
        became = "cannot be used" if version.error is not None else "did not finish"
        _say(request, f"version {version.number} {became}")
        return show_error(known, as_json=request.as_json)


def _say(request: RunRequest, text: str) -> None:
    """Tell what happens on stderr, so that stdout has results only."""
    if not request.quiet:
        now = dt.datetime.now().astimezone()
        typer.echo(f"{now:%H:%M:%S} {text}", err=True)
