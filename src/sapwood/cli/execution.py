"""Runs what a request asks for and shows how it goes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapwood.cli import starting
from sapwood.cli.answer import Answer, show_answer
from sapwood.cli.failures import EXIT_INTERRUPTED
from sapwood.cli.following import follow
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.live import Display, open_display
from sapwood.cli.output import print_json
from sapwood.cli.request import RunRequest
from sapwood.cli.summary import summarise
from sapwood.client import Cluster, Dataset, Program, Run, load, load_program, local
from sapwood.core.errors import DataMissingError, SapwoodError, UserCodeError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings


def execute(request: RunRequest) -> int:
    """Run the program of a request to its end and show the answer.

    Returns:
        The exit code: 0, or 130 after Ctrl-C.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    settings = load_configuration(request.flags).settings
    starting.clear()  # what follows is code of the program, which may print
    program = load_program(request.program, request.parameters)
    if request.output is not None:
        program.check_output(request.output)
    dataset = load_data(program, request.data)
    with (
        termination_interrupts(),
        configure_logging(settings.log),
        starting_agents(settings) as cluster,
    ):
        return run_once(cluster, program, dataset, request)


@contextmanager
def starting_agents(settings: Settings) -> Iterator[Cluster]:
    """Start a cluster, say so meanwhile, and close it in the end.

    Raises:
        SapwoodError: It cannot be started.
    """
    count = settings.cluster.agents
    starting.say(
        f"starting {count} agent{'' if count == 1 else 's'}" if count else "starting agents"
    )
    try:
        cluster = local(settings=settings)
    finally:
        starting.clear()
    with cluster:
        yield cluster


def run_once(cluster: Cluster, program: Program, dataset: Dataset, request: RunRequest) -> int:
    """Run a program on a cluster and show the answer; return the exit code.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    run = cluster.run(
        program,
        dataset,
        chunk=request.chunk,
        on_agent_loss=request.on_agent_loss,
        allow_nan=request.allow_nan,
    )
    if not follow(run, _display(program, request)):
        return EXIT_INTERRUPTED
    result = run.result()
    answer = _answer(program, dataset, run, result, request)
    if request.output is not None:
        with _named(f"{program.name}.output", file=request.output), _whole(request.output):
            program.output(result, dataset, request.output)
    if request.as_json:
        print_json(answer, one_line=request.watch)
    elif not request.quiet:
        show_answer(answer)
    return 0


def load_data(program: Program, path: Path | None) -> Dataset:
    """Return the dataset of a file, or without one the data that the program brings.

    Raises:
        DataMissingError: There is neither.
        DataError: They cannot be used.
    """
    source: Any = path
    if source is None and (default := getattr(program, "default_data", None)) is not None:
        with _named(f"{program.name}.default_data"):
            source = default()
    if source is None:
        raise DataMissingError(
            f"program {program.name} brings no data of its own", hint="name a file with --data"
        )
    return load(source, fields=program.inputs)


def _display(program: Program, request: RunRequest) -> Display:
    quiet = request.quiet or request.as_json
    return open_display(program.name, quiet=quiet, verbose=request.verbose)


def _answer(
    program: Program, dataset: Dataset, run: Run, result: Any, request: RunRequest
) -> Answer:
    return Answer(
        program=program.name,
        parameters=dict(program.parameters),
        data=dataset.origin,
        items=dataset.length,
        progress=run.progress,
        statistics=run.statistics,
        result=summarise(result),
        output=None if request.output is None else str(request.output),
    )


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Remove the file that the block wrote when it fails: a half is worth less than none."""
    before = _version(path)
    try:
        yield
    except BaseException:
        if _version(path) != before:
            path.unlink(missing_ok=True)
        raise


def _version(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written; None for what is no plain file."""
    if not path.is_file():
        return None
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


@contextmanager
def _named(method: str, *, file: Path | None = None) -> Iterator[None]:
    """Turn an exception of a program's method into an error that names the method or the file."""
    try:
        yield
    except SapwoodError:
        raise
    except OSError as error:
        if error.filename is None and file is not None:
            error.filename = str(file)  # writing to an open file does not tell
        raise
    except Exception as error:
        raise UserCodeError(
            f"{type(error).__qualname__}: {error}",
            where=method,
            details={"traceback": traceback.format_exc()},
        ) from error
