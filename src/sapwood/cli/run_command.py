"""What ``sapwood run`` does: runs a program, runs it again after each edit, or shows the plan only.

``run.py`` has its options, so that ``--help`` imports none of this.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from sapwood.activity.checkpoint import is_whole
from sapwood.cli import present, starting
from sapwood.cli.credential_variables import files_for
from sapwood.cli.failures import EXIT_INTERRUPTED, as_sapwood_error, show_error
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.options import RunRequest
from sapwood.cli.present import print_json, shortened, table, write
from sapwood.cli.program import parameter_table
from sapwood.cli.progress import Display, RecordDisplay, follow, open_display
from sapwood.cli.report_command import write_of_run
from sapwood.cli.run_report import RunAnswer, show_answer, summarise
from sapwood.client import Cluster, Dataset, Program, Run, load, load_program, on
from sapwood.client.allocation_chain import AllocationChain
from sapwood.code.build import LibraryPlan, find_built, plan_build
from sapwood.code.cache import BuildCache
from sapwood.code.describe import ParameterDescription, describe
from sapwood.code.result_file import keep_result
from sapwood.code.watch import Version
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.core.errors import (
    DataMissingError,
    DrainedError,
    ResourceError,
    SapwoodError,
    UserCodeError,
)
from sapwood.environment.configuration import load_configuration
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.gpu.agents import agents_by_default
from sapwood.head.runs import PROGRESS, WORK


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
    dataset = load_data(program, request.data, request.columns)
    file = request.checkpoint
    if request.go_on and file is not None and is_whole(file):
        request = dataclasses.replace(request, resume=file)
    with termination_interrupts(), configure_logging(settings.log):
        if settings.nodes.allocations > 1:
            return run_through(settings, program, dataset, request)
        with starting_agents(settings) as cluster:
            return run_once(cluster, program, dataset, request)


@contextmanager
def starting_agents(settings: Settings, on_wait: WaitCallback = starting.wait) -> Iterator[Cluster]:
    """Start a cluster, say so meanwhile, and close it in the end.

    Args:
        settings: All settings.
        on_wait: Told what machines are waited for.

    Raises:
        SapwoodError: It cannot be started.
    """
    _say_starting(settings)
    try:
        cluster = _begin(settings, on_wait)
    finally:
        starting.clear()
    with cluster:
        yield cluster


def _say_starting(settings: Settings) -> None:
    count = settings.cluster.agents
    starting.say(
        f"starting {count} agent{'' if count == 1 else 's'}" if count else "starting agents"
    )


def _begin(settings: Settings, on_wait: WaitCallback) -> Cluster:
    spec = settings.cluster.on
    credential, key = files_for(spec)
    return on(spec, settings=settings, on_wait=on_wait, credential=credential, key=key)


def run_through(settings: Settings, program: Program, dataset: Dataset, request: RunRequest) -> int:
    """Run a program on several allocations, one after the other; return the exit code.

    Each time the machines leave, the run continues on the next ones, from its last
    checkpoint.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    with ExitStack() as stack:
        made = request.checkpoint is None  # and gone with this command
        if made:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sapwood-run-"))
            request = dataclasses.replace(request, checkpoint=Path(folder) / "checkpoint")
        file = request.checkpoint
        assert file is not None  # noqa: S101 - set above
        former, first = _stamp(file), request.resume  # the file may belong to another run
        _say_starting(settings)
        chain = AllocationChain(
            lambda on_wait: _begin(settings, on_wait), settings.nodes, starting.wait
        )
        try:
            stack.enter_context(chain)
        finally:
            starting.clear()
        while True:
            try:
                return run_once(chain.cluster, program, dataset, request, chain.follow)
            except SapwoodError as error:
                why = chain.goes_on(error)
                if not why:
                    if isinstance(error, DrainedError) and made:
                        error.hint = "allow more --allocations, or give a --checkpoint FILE"
                        error.where = ""
                    raise
                _say(
                    request,
                    f"{why}; continuing on machines {chain.count + 1} of "
                    f"{settings.nodes.allocations}",
                )
            try:
                chain.move()
            finally:
                starting.clear()
            written = _stamp(file) != former and is_whole(file)
            request = dataclasses.replace(request, resume=file if written else first)


def _stamp(file: Path) -> tuple[int, int]:
    """Return what tells a file from the one that takes its place; zeros if there is none."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def run_once(
    cluster: Cluster,
    program: Program,
    dataset: Dataset,
    request: RunRequest,
    begun: Callable[[Run], object] | None = None,
) -> int:
    """Run a program on a cluster and show the answer; return the exit code.

    Args:
        cluster: The agents.
        program: What runs.
        dataset: What it runs over.
        request: The options.
        begun: Told of the run.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    run = cluster.run(
        program,
        dataset,
        chunk=request.chunk,
        on_agent_loss=request.on_agent_loss,
        allow_nan=request.allow_nan,
        checkpoint=request.checkpoint,
        resume=request.resume,
        copy=False,  # nothing else has these arrays
    )
    if begun is not None:
        begun(run)
    whole = follow(run, _display(run, request))
    if request.report is not None and not (whole and run.exception() is None):
        write_of_run(run, None, request.report)
    if not whole:
        return EXIT_INTERRUPTED
    result = run.result()
    answer = _answer(program, dataset, run, result, request)
    if request.report is not None:
        write_of_run(run, answer, request.report)
    if request.output is not None:
        try:
            with _named(f"{program.name}.output", file=request.output), _whole(request.output):
                program.output(result, dataset, request.output)
        except (SapwoodError, OSError) as error:
            if not (request.as_json or request.quiet):
                with present.reader_may_leave():
                    show_answer(msgspec.structs.replace(answer, output=None))
            raise _kept(result, request.output, error) from error
    with present.reader_may_leave():  # the run is done: only the text is lost
        if request.as_json:
            print_json(answer, one_line=request.watch)
        elif not request.quiet:
            show_answer(answer)
    return 0


def load_data(
    program: Program, source: Any = None, columns: Sequence[str] | None = None
) -> Dataset:
    """Return the dataset of a file, or without one the data that the program brings.

    Args:
        program: The program.
        source: File, folder, pattern or URL; None for what the program brings.
        columns: The columns of a table that are used; None for all, or what the program says.

    Raises:
        DataMissingError: There is neither.
        DataError: They cannot be used.
    """
    if source is None and columns is None:
        columns = program.data_columns
    if source is None and (default := getattr(program, "default_data", None)) is not None:
        with _named(f"{program.name}.default_data"):
            source = default()
    if source is None:
        raise DataMissingError(
            f"program {program.name} brings no data of its own", hint="name a file with --data"
        )
    return load(source, fields=program.inputs, columns=columns)


def _display(run: Run, request: RunRequest) -> Display:
    if request.record is not None:
        folder = request.record
        return RecordDisplay(folder / PROGRESS, folder / WORK, lambda: run.record)
    quiet = request.quiet or request.as_json
    return open_display(run.program.name, quiet=quiet, verbose=request.verbose)


def _answer(
    program: Program, dataset: Dataset, run: Run, result: Any, request: RunRequest
) -> RunAnswer:
    return RunAnswer(
        program=program.name,
        parameters=dict(program.parameters),
        data=dataset.origin,
        items=dataset.length,
        progress=run.progress,
        statistics=run.statistics,
        result=summarise(result),
        output=None if request.output is None else str(request.output),
    )


def _kept(result: Any, path: Path, error: SapwoodError | OSError) -> SapwoodError | OSError:
    """Keep a result that cannot be written to its file; return the error that says where it is."""
    try:
        kept = keep_result(result, path)
    except OSError:
        return error
    read = f"pickle.load(open({str(kept)!r}, 'rb'))" if kept.suffix == ".pickle" else "any editor"
    what = error.what if isinstance(error, SapwoodError) else error.strerror or str(error)
    kind = type(error) if isinstance(error, SapwoodError) else ResourceError
    todo = error.hint if isinstance(error, SapwoodError) else "make room, or write somewhere else"
    return kind(
        f"{what}; the result is kept in {kept}",
        where=(isinstance(error, SapwoodError) and error.where) or str(path),
        hint=f"{todo}; read the kept result by {read}",
        details=error.details if isinstance(error, SapwoodError) else None,
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
    """Return what changes when a file is written; None if it is not a plain file."""
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


def execute_watching(request: RunRequest) -> int:
    """Run each version of a program as soon as it is built.

    Edits are built in the background; a run that has started keeps its version,
    and the newest one follows. A version that cannot be used, or a run that fails, is reported, and
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
        seconds = present.seconds(version.seconds)
        _say(request, f"version {version.number} ({version.hash[:12]}) {how} in {seconds}")
        program = version.program
        return run_once(
            cluster, program, load_data(program, request.data, request.columns), request
        )
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


class PlannedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The slice of one agent; an agent without items takes no part."""

    agent: int
    start: int
    stop: int
    items: int


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything ``sapwood run --dry-run --json`` prints; fields are only ever added."""

    program: str
    hash: str
    parameters: tuple[ParameterDescription, ...]
    libraries: tuple[LibraryPlan, ...]
    built: bool
    data: str
    items: int
    agents: int
    fanout: int
    split: list[PlannedSlice]


def show_plan(request: RunRequest) -> None:
    """Print what a request would do, having built and started nothing.

    Raises:
        SapwoodError: The program, its parameters, the compiler or the data are wrong.
    """
    plan = make_plan(request)
    if request.as_json:
        print_json(plan)
    else:
        _show(plan)


def make_plan(request: RunRequest) -> RunPlan:
    """Return what a request would do.

    Raises:
        SapwoodError: The program, its parameters, the compiler or the data are wrong.
    """
    settings = load_configuration(request.flags).settings
    program = load_program(request.program, request.parameters)
    libraries = plan_build(program)
    cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
    dataset = load_data(program, request.data, request.columns)
    agents = settings.cluster.agents or agents_by_default()
    parts = enumerate(dataset.split(agents, request.chunk), start=1)
    return RunPlan(
        program=program.name,
        hash=program.hash,
        parameters=describe(program).parameters,
        libraries=libraries,
        built=find_built(program, cache=cache) is not None,
        data=dataset.origin,
        items=dataset.length,
        agents=agents,
        fanout=settings.cluster.fanout,
        split=[
            PlannedSlice(agent=rank, start=part.start, stop=part.stop, items=len(part))
            for rank, part in parts
        ],
    )


def _show(plan: RunPlan) -> None:
    write(Text(f"{plan.program}: nothing is built or run", style="bold"))
    if plan.parameters:
        write("", parameter_table(plan.parameters))
    if plan.libraries:
        write("", _library_table(plan.libraries))
        write("already built" if plan.built else "not built yet: would be built first")
    tree = f"a tree of fan-out {plan.fanout}" if plan.fanout else "a flat tree"
    write("", Text(f"Data: {plan.items} items from {plan.data}"))
    write(Text(f"{plan.agents} agents in {tree}"), "", _split_table(plan.split))


def _library_table(libraries: tuple[LibraryPlan, ...]) -> Table:
    rows: list[tuple[str, str, str]] = []
    for one in libraries:
        rows.append((one.language, "sources", " ".join(one.sources)))
        rows += [("", name, value) for name, value in one.identity.items()]
    return table("Libraries", ("language", "", "made of"), rows, wrap="made of")


def _split_table(split: list[PlannedSlice]) -> Table:
    rows = [
        (str(part.agent), f"{part.start}..{part.stop}" if part.items else "idle", str(part.items))
        for part in split
    ]
    return table("", ("agent>", "slice", "items>"), shortened(rows))
