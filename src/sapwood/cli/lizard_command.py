"""Registers and runs what ``sapwood lizard`` is asked for."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import typer

from sapwood.activity.run import Run
from sapwood.cli.failures import EXIT_INTERRUPTED
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.present import print_json
from sapwood.cli.progress import follow, open_display
from sapwood.client.local import local
from sapwood.code.cache import BuildCache
from sapwood.compat.lizard.directory import existing_directory, read_directory
from sapwood.compat.lizard.execution import RunOutcome, run_with_runner
from sapwood.compat.lizard.launch import Checked, check
from sapwood.compat.lizard.runner_module import RunnerModule
from sapwood.compat.lizard.store import ProgramStore
from sapwood.core.errors import ProgramError
from sapwood.core.suggest import suggest
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging


class LizardRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What ``sapwood lizard run`` is asked for."""

    folder: str
    runner: Path | None
    settings: dict[str, Any]
    flags: dict[str, Any]
    seed: int
    quiet: bool
    verbose: bool
    as_json: bool


def register(folder: str, flags: Mapping[str, Any]) -> Checked:
    """Build, check and keep a program.

    Raises:
        BuildError: A source does not compile.
        ProgramError: Something is missing or does not fit together.
    """
    configured = load_configuration(flags).settings.cache
    cache = BuildCache(configured.path(), size_limit=configured.size)
    path = existing_directory(folder)
    registration = read_directory(path)
    checked = check(registration, origin=str(path.resolve()), cache=cache)
    ProgramStore().add(registration)
    return checked


def execute(request: LizardRequest) -> None:
    """Register a program, run it and print its result.

    Raises:
        SapwoodError: Anything that kept it from finishing.
        typer.Exit: Ctrl-C ended the run.
    """
    settings = load_configuration(request.flags).settings
    folder = existing_directory(request.folder)
    checked = register(request.folder, request.flags)
    checksum = checked.registration.checksum
    if not request.as_json and not request.quiet:
        typer.echo(f"Program registered, checksum: {checksum}")
    runner = load_runner(folder, request.runner, checked)
    with (
        termination_interrupts(),
        configure_logging(settings.log),
        local(settings=settings) as cluster,
    ):
        outcome = run_with_runner(
            cluster,
            checked,
            runner,
            request.settings,
            seed=request.seed,
            follow=lambda run: _follow(run, request),
        )
    _show(request, checked, runner, outcome)


def load_runner(folder: Path, given: Path | None, checked: Checked) -> RunnerModule:
    """Return the runner module of a program's folder.

    Raises:
        ProgramError: There is none.
    """
    path = given or folder / "runner.py"
    if not path.is_file():
        beside = [entry.name for entry in folder.glob("*.py")]
        raise ProgramError(
            "the folder holds no runner module" if given is None else "there is no such file",
            where=str(path),
            hint=f"name it with --runner; {suggest('runner.py', beside)}",
        )
    return RunnerModule(path.resolve(), python=folder / checked.program.definition.python.name)


def _follow(run: Run, request: LizardRequest) -> None:
    quiet = request.quiet or request.as_json
    if not follow(run, open_display(run.program.name, quiet=quiet, verbose=request.verbose)):
        raise typer.Exit(EXIT_INTERRUPTED)


def _show(
    request: LizardRequest, checked: Checked, runner: RunnerModule, outcome: RunOutcome
) -> None:
    if request.as_json:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            runner.print_result(outcome.end_global_state, quiet=request.quiet)
        found = checked.registration
        answer = {"program": found.name, "checksum": found.checksum, "output": text.getvalue()}
        print_json({**answer, **msgspec.to_builtins(outcome)})
        return
    if not request.quiet:
        typer.echo(f"Run completed in {outcome.seconds} seconds")  # as lizard-slayer writes it
    runner.print_result(outcome.end_global_state, quiet=request.quiet)
    if not request.quiet:
        agents = f"{outcome.agents} agent{'' if outcome.agents == 1 else 's'}"
        limit = ", ended by max_iterations before the program was done" * outcome.cut_short
        facts = f"{outcome.iterations} iterations, {outcome.points} points, {agents}{limit}"
        typer.echo(facts)
