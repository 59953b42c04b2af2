"""``sapwood run``: one program over one dataset on agents of this machine, or of others."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood.activity.profile_round import ProfileRound
from sapwood.activity.run import Run
from sapwood.cli import present, starting
from sapwood.cli.credential_variables import files_for
from sapwood.cli.declared import as_flags, declared, given_words
from sapwood.cli.failures import EXIT_INTERRUPTED, as_sapwood_error, show_error
from sapwood.cli.head_connection import CALL_TIMEOUT, asked_head
from sapwood.cli.interrupts import (
    answered_quits,
    no_exit_of_process,
    termination_interrupts,
)
from sapwood.cli.options import (
    CLUSTER_VARIABLE,
    Debug,
    Env,
    Set,
    assignments,
    chosen_cluster,
    head_if_named,
    machines_of,
    output_path,
    require_together,
    variables,
)
from sapwood.cli.present import print_json
from sapwood.cli.profile import write_profile
from sapwood.cli.progress import Display, RecordDisplay, follow, open_display
from sapwood.cli.report import write_of_run
from sapwood.cli.run_inputs import check_inputs, loaded, naming_method, of_program
from sapwood.cli.run_plan import show_plan
from sapwood.cli.run_report import RunAnswer, show_answer, summarise
from sapwood.cli.runs import facts
from sapwood.client.allocation_chain import AllocationChain
from sapwood.client.cluster import Cluster
from sapwood.client.detached_runs import DetachedRun
from sapwood.client.finding import must_be_there
from sapwood.client.hosts import start
from sapwood.client.profiles import with_names
from sapwood.code.load import load_program
from sapwood.code.profiles import check_profile_file
from sapwood.code.result_file import keep_result
from sapwood.code.run_spec import RunSpec
from sapwood.code.watch import VersionInfo
from sapwood.contexts.launchers.allocation import WaitCallback
from sapwood.contexts.launchers.specs import machines as named_machines
from sapwood.core.errors import (
    ConfigurationError,
    DrainedError,
    NotReadyError,
    ResourceError,
    SapwoodError,
)
from sapwood.core.hints import command
from sapwood.core.options import PATH, option
from sapwood.core.terminal_text import printable
from sapwood.environment.configuration import load_configuration
from sapwood.environment.folders import expand_user
from sapwood.environment.logs import configure_logging
from sapwood.environment.settings import Settings
from sapwood.head import calls
from sapwood.head.parts.runs import Runs
from sapwood.head.parts.sessions import Sessions
from sapwood.head.runs import PROGRESS, WORK


class RunMachines(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``sapwood run`` that stand for settings of its cluster."""

    on: Annotated[
        str | None,
        option(
            "Machines: local, ssh:n1,n2, ssh:gpu[1-4], ssh:@FILE, slurm:4, ray:2, head, or nodes:2 "
            "for trying out several nodes on this machine.",
            "SPEC",
            setting="cluster.on",
        ),
    ] = None
    agents: Annotated[
        int | None, option("Agents to start.", "N", least=1, setting="cluster.agents")
    ] = None
    fanout: Annotated[
        int | None, option("Children of a junction.", "K", least=2, setting="cluster.fanout")
    ] = None
    topology: Annotated[
        str | None,
        option(
            "How machines are below each other: flat, kary:16, knomial:2 or file:PATH.",
            "SHAPE",
            setting="nodes.topology",
        ),
    ] = None
    memory_limit: Annotated[
        str | None,
        option("Largest memory of a runner, for example 2GiB.", "SIZE", setting="limits.memory"),
    ] = None
    check_memory: Annotated[
        bool,
        option(
            "Put arrays of native functions between guard pages, to find reads past the end and "
            "writes to inputs; slower.",
            setting="limits.check_memory",
        ),
    ] = False
    allocations: Annotated[
        int | None,
        option(
            "Largest number of Slurm allocations that the run uses one after the other.",
            "N",
            least=1,
            setting="nodes.allocations",
        ),
    ] = None
    packages: Annotated[
        str | None,
        option(
            "Staged packages for runners (`sapwood stage environment`).",
            "NAME",
            setting="environment.packages",
        ),
    ] = None


class RunOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``sapwood run`` that say where its answer goes, and what is shown meanwhile.

    Attributes:
        record: The folder in which the driver of a detached run leaves its progress, or None.
    """

    output: Annotated[
        Path | None,
        option("Write the result to this file.", "FILE", unit=PATH, words=("--output", "-o")),
    ] = None
    report: Annotated[
        Path | None,
        option(
            "Write a report of the run to FILE.html, or a trace for Perfetto to FILE.json.",
            "FILE",
            unit=PATH,
        ),
    ] = None
    profile: Annotated[
        Path | None,
        option(
            "Sample user code, and write a flame graph (FILE.html), a profile for speedscope "
            "(FILE.json) or collapsed stacks (FILE.folded).",
            "FILE",
            unit=PATH,
        ),
    ] = None
    as_json: Annotated[
        bool, option("Print one JSON object on stdout, nothing else.", words=("--json",))
    ] = False
    watch: Annotated[bool, option("Run again after each edit, until Ctrl-C.")] = False
    quiet: Annotated[bool, option("Show errors only.", words=("--quiet", "-q"))] = False
    verbose: Annotated[
        bool, option("Show progress as lines, also into a file.", words=("--verbose", "-v"))
    ] = False
    record: Path | None = None


@declared
def run(  # noqa: PLR0913 - each is an option of the command line, or a group of them
    *,
    spec: RunSpec,
    machines: RunMachines,
    shown: RunOutput,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="Run on the agents of this session."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return immediately; `sapwood run list` shows the run."),
    ] = False,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            envvar=CLUSTER_VARIABLE,
            callback=chosen_cluster,
            show_default="the only one that is up here, or 'default'",
            help="Cluster to run on, or of --session and --detach: its name, or sapwood://HOST:PORT.",
        ),
    ] = "default",
    env: Env = None,
    settings: Set = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be built and how data would be split."),
    ] = False,
    debug: Debug = False,
) -> None:
    r"""Run a program over data on agents, of this machine or of others.

    `sapwood run PROGRAM` is short for `sapwood run start PROGRAM`. The other commands are about
    detached runs. Ctrl-C cancels a run and leaves nothing behind. Ctrl-\ shows where user code
    is now, on all agents.

    With --watch, each edit is built immediately; a run that has begun keeps its version, and a run
    of the newest version follows. With --json, there is one line for each run.

    Examples: `sapwood run fit --agents 4`, `sapwood run fit --on ssh:n1,n2 --data points.npy`
    """
    del debug  # the declaration reports errors
    own = (machines.on, machines.agents, machines.fanout, machines.packages, env)
    if session is not None and any(own):
        raise ConfigurationError(
            "a session has its agents, with their environment variables",
            hint="leave out --on, --agents, --fanout, --packages and --env" + _with_variables(env),
        )
    on = machines.on
    if on is None and session is None and not detach:
        on = head_if_named()
    where = machines_of(on, session, cluster)
    if detach and session is not None:  # its driver knows the cluster, which keeps the run
        where = f"session:{session}"
    flags: dict[str, Any] = {
        **assignments(settings or (), "--set"),
        **variables(env or ()),
        **as_flags(msgspec.structs.replace(machines, on=where)),
    }
    shown = msgspec.structs.replace(
        shown,
        output=output_path(shown.output),
        report=output_path(shown.report),
        profile=output_path(shown.profile),
    )
    if shown.profile is not None:
        check_profile_file(shown.profile)
    require_together(
        {
            **given_words(spec, machines, shown),
            "--detach": detach,
            "--dry-run": dry_run,
            "--env": env,
        }
    )
    with no_exit_of_process():
        if detach:
            begin(spec, flags, shown, cluster)
        elif dry_run:
            show_plan(spec, flags, as_json=shown.as_json)
        else:
            starting.say("loading")
            work = execute_watching if shown.watch else execute
            raise typer.Exit(work(spec, flags, shown))


def _with_variables(env: list[str] | None) -> str:
    """Return what gives the agents of a session some environment variables."""
    if not env:
        return ""
    words = [word for one in env for word in ("--env", one)]
    return f"; {command('session', 'create', *words)} makes a session with its variables"


def begin(spec: RunSpec, flags: Mapping[str, Any], shown: RunOutput, cluster: str) -> None:
    """Start a run that continues without this process.

    Raises:
        SapwoodError: It cannot be started; nothing is left at the head then.
    """
    output = shown.output
    check_inputs(spec, output)
    kind, which = named_machines(load_configuration(flags).settings.cluster.on)
    if kind == "session":
        with suppress(NotReadyError):  # the run waits for it
            must_be_there(asked_head(cluster, CALL_TIMEOUT, Sessions.find, which))
    wanted = calls.CreateRun(
        spec=msgspec.structs.replace(
            spec,
            program=str(expand_user(str(spec.program)).resolve()),
            data=None if spec.data is None else whole_source(spec.data),
        ),
        settings=dict(flags),
        output="" if output is None else str(output.resolve()),
        folder=str(Path.cwd()),
    )
    record = asked_head(cluster, CALL_TIMEOUT, Runs.create, wanted)
    if shown.as_json:
        print_json(facts(DetachedRun(record, partial(asked_head, cluster), cluster)))
    else:
        follows = command("run", "follow", record.id, cluster=cluster)
        typer.echo(f"The run {record.id} has begun: {follows} shows its output and its answer.")


def whole_source(data: str) -> str:
    """Return data as another process in another folder finds them.

    Example:
        >>> whole_source("https://example.org/a.csv"), whole_source("/data/*.csv")
        ('https://example.org/a.csv', '/data/*.csv')
    """
    return data if "://" in data else str(expand_user(data).absolute())


def execute(spec: RunSpec, flags: Mapping[str, Any], shown: RunOutput) -> int:
    """Run a program to its end and show the answer.

    Returns:
        The exit code: 0, or 130 after Ctrl-C.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    settings = load_configuration(flags).settings
    starting.clear()  # what follows is code of the program, which may print
    spec = loaded(spec, shown.output)
    with termination_interrupts(), configure_logging(settings.log):
        if settings.nodes.allocations > 1:
            return run_through(settings, spec, shown)
        with starting_agents(settings) as cluster:
            return run_once(cluster, spec, shown)


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
    with cluster, answered_quits(lambda: _show_stacks(cluster)):
        yield cluster


def _show_stacks(cluster: Cluster) -> None:
    """Show where user code is now, on standard error."""
    try:
        text = str(cluster.stacks())
    except SapwoodError as error:  # the cluster has just been closed
        text = str(error)
    typer.echo(printable(text), err=True)


def _say_starting(settings: Settings) -> None:
    count = settings.cluster.agents
    starting.say(
        f"starting {count} agent{'' if count == 1 else 's'}" if count else "starting agents"
    )


def _begin(settings: Settings, on_wait: WaitCallback) -> Cluster:
    spec = settings.cluster.on
    credential, key = files_for(spec)
    return start(spec, settings=settings, on_wait=on_wait, credential=credential, key=key)


def run_through(settings: Settings, spec: RunSpec, shown: RunOutput) -> int:
    """Run a program on several allocations, one after the other; return the exit code.

    Each time the machines leave, the run continues on the next ones, from its last
    checkpoint.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    with ExitStack() as stack:
        made = spec.checkpoint is None  # and gone with this command
        if spec.checkpoint is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sapwood-run-"))
            file = Path(folder) / "checkpoint"
        else:
            file = Path(spec.checkpoint)
        spec = msgspec.structs.replace(spec, checkpoint=str(file))
        former = _stamp(file)  # the file may belong to another run
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
                return run_once(chain.cluster, spec, shown, chain.follow)
            except SapwoodError as error:
                why = chain.goes_on(error)
                if not why:
                    if isinstance(error, DrainedError) and made:
                        error.hint = "allow more --allocations, or give a --checkpoint FILE"
                        error.where = ""
                    raise
                _say(
                    shown,
                    f"{why}; continuing on machines {chain.count + 1} of "
                    f"{settings.nodes.allocations}",
                )
            try:
                chain.move()
            finally:
                starting.clear()
            if _stamp(file) != former:  # by this run
                spec = msgspec.structs.replace(spec, resume=None, auto_resume=True)


def _stamp(file: Path) -> tuple[int, int]:
    """Return what tells a file from the one that takes its place; zeros if there is none."""
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_ino, status.st_mtime_ns


def run_once(
    cluster: Cluster,
    spec: RunSpec,
    shown: RunOutput,
    begun: Callable[[Run], object] | None = None,
) -> int:
    """Run a program on a cluster and show the answer; return the exit code.

    Args:
        cluster: The agents.
        spec: What runs; program and data are loaded.
        shown: Where the answer goes.
        begun: Told of the run.

    Raises:
        SapwoodError: Anything that kept the run from finishing.
    """
    # Nothing else has these arrays, and the columns of the loaded data are chosen.
    asked = msgspec.structs.replace(spec, copy=False, columns=None)
    run = cluster.run(**msgspec.structs.asdict(asked))
    if begun is not None:
        begun(run)
    sampling = None if shown.profile is None else ProfileRound(cluster.session)
    whole = follow(run, _display(run, shown))
    profile = None if sampling is None else with_names(sampling.stop())
    if shown.profile is not None and profile is not None:
        write_profile(profile, shown.profile)
    if shown.report is not None and not (whole and run.exception() is None):
        write_of_run(run, None, shown.report, profile)
    if not whole:
        return EXIT_INTERRUPTED
    result, program, output = run.result(), run.program, shown.output
    answer = RunAnswer(
        program=program.name,
        parameters=dict(program.parameters),
        options=msgspec.structs.replace(run.spec, columns=spec.columns).given(),
        data=run.data.origin,
        items=run.data.length,
        progress=run.progress,
        statistics=run.statistics,
        result=summarise(result),
        output=None if output is None else str(output),
    )
    if shown.report is not None:
        write_of_run(run, answer, shown.report, profile)
    if output is not None:
        try:
            with naming_method(f"{program.name}.output", file=output), _whole(output):
                program.output(result, run.data, output)
        except (SapwoodError, OSError) as error:
            if not (shown.as_json or shown.quiet):
                with present.reader_may_leave():
                    show_answer(msgspec.structs.replace(answer, output=None))
            raise _kept(result, output, error) from error
    with present.reader_may_leave():  # the run is done: only the text is lost
        if shown.as_json:
            print_json(answer, one_line=shown.watch)
        elif not shown.quiet:
            show_answer(answer)
    return 0


def _display(run: Run, shown: RunOutput) -> Display:
    if shown.record is not None:
        folder = shown.record
        return RecordDisplay(folder / PROGRESS, folder / WORK, lambda: run.record)
    quiet = shown.quiet or shown.as_json
    return open_display(run.program.name, quiet=quiet, verbose=shown.verbose)


def _kept(result: Any, path: Path, error: SapwoodError | OSError) -> SapwoodError | OSError:
    """Keep a result that cannot be written to its file; return the error that says where it is."""
    try:
        kept = keep_result(result, path)
    except OSError:
        return error
    read = f"pickle.load(open({str(kept)!r}, 'rb'))" if kept.suffix == ".pickle" else "any editor"
    what = error.what if isinstance(error, SapwoodError) else error.strerror or str(error)
    kind = type(error) if isinstance(error, SapwoodError) else ResourceError
    todo = error.hint if isinstance(error, SapwoodError) else "free space, or write somewhere else"
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


def execute_watching(spec: RunSpec, flags: Mapping[str, Any], shown: RunOutput) -> int:
    """Run each version of a program as soon as it is built.

    Edits are built in the background; a run that has started keeps its version,
    and the newest one follows. A version that cannot be used, or a run that fails, is reported, and
    the next edit is waited for.

    Returns:
        The exit code: 130, as only Ctrl-C ends it.

    Raises:
        SapwoodError: The program cannot be loaded at the start, or no cluster made.
    """
    settings = load_configuration(flags).settings
    starting.clear()  # what follows is code of the program, which may print
    program = load_program(spec.program, spec.parameters or {})
    if shown.output is not None:
        program.check_output(shown.output)
    with (
        termination_interrupts(),
        configure_logging(settings.log),
        starting_agents(settings) as cluster,
        cluster.watch(spec.program, parameters=spec.parameters) as watch,
    ):
        number = 0
        try:
            while True:
                version = watch.wait(number + 1)
                number = version.number
                if _run_version(cluster, version, spec, shown) == EXIT_INTERRUPTED:
                    return EXIT_INTERRUPTED
                newest = watch.version
                if newest is not None and newest.number == number:
                    _say(shown, "waiting for an edit; Ctrl-C ends")
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


def _run_version(cluster: Cluster, version: VersionInfo, spec: RunSpec, shown: RunOutput) -> int:
    """Run one version; what goes wrong is shown and does not end the watch."""
    try:
        if version.error is not None or version.program is None:
            raise version.error or SapwoodError("the program cannot be loaded")
        how = "found built" if all(built.cached for built in version.builds) else "built"
        seconds = present.seconds(version.seconds)
        _say(shown, f"version {version.number} ({version.hash[:12]}) {how} in {seconds}")
        return run_once(cluster, of_program(spec, version.program), shown)
    except (SapwoodError, OSError) as error:
        known = as_sapwood_error(error)
        if known is None:
            raise
        became = "cannot be used" if version.error is not None else "did not finish"
        _say(shown, f"version {version.number} {became}")
        return show_error(known, as_json=shown.as_json)


def _say(shown: RunOutput, text: str) -> None:
    """Tell what happens on stderr, so that stdout has results only."""
    if not shown.quiet:
        now = dt.datetime.now().astimezone()
        typer.echo(f"{now:%H:%M:%S} {text}", err=True)
