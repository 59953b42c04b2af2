"""``sapwood run``: one program over one dataset on agents of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from sapwood.cli import completion, starting
from sapwood.cli.answer_file import answering
from sapwood.cli.failures import reported
from sapwood.cli.options import (
    Debug,
    Env,
    Json,
    RunRequest,
    Set,
    assignments,
    machines_of,
    output_path,
    require_together,
    variables,
)
from sapwood.core.errors import ConfigurationError


def run(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    program: Annotated[
        Path,
        typer.Argument(
            help="Folder with a program.toml, or a Python file with a Program class.",
            autocompletion=completion.programs,
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Data to run over: .npy, .npz, .csv, .parquet, .arrow or an image; a folder or a "
            "pattern of such files; a URL. Default: the program's own.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns of a table that are used; default: all."),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Machines: local, ssh:n1,n2, ssh:gpu[1-4], ssh:@FILE, slurm:4, ray:2, head, or "
            "nodes:2 for trying things.",
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Agents to start; default: one a processor core."),
    ] = None,
    fanout: Annotated[
        int | None,
        typer.Option(metavar="K", min=2, help="Children of a junction; default: a flat tree."),
    ] = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            help="How machines are below each other: flat, kary:16, knomial:2 or file:PATH.",
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="Parameter of the program; may be given several times.",
            autocompletion=completion.parameter_names,
        ),
    ] = None,
    chunk: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Items that stay together when data are split."),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Longest time of one call, for example 2s or 500ms."),
    ] = None,
    run_time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Longest time of the whole run, for example 10min."),
    ] = None,
    max_iterations: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="End after N iterations, with the result so far."),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Most memory of one runner, for example 2GiB."),
    ] = None,
    check_memory: Annotated[
        bool,
        typer.Option(
            "--check-memory",
            help="Put all arrays of native functions between guards: finds reads past the end "
            "and writes to inputs, too; slower.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the result to this file."),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the state there periodically."),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Go on from the checkpoint in this file."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report of the run there, as one HTML file."),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option("--continue", help="Go on from --checkpoint if it is there, else begin."),
    ] = False,
    allocations: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Allocations of Slurm that the run may have in turn; default: 1.",
        ),
    ] = None,
    on_agent_loss: Annotated[
        Literal["replace", "fail"],
        typer.Option(metavar="replace|fail", help="What to do when an agent is lost."),
    ] = "replace",
    allow_nan: Annotated[
        bool, typer.Option("--allow-nan", help="Take data with NaN and infinite values, too.")
    ] = False,
    session: Annotated[
        str | None,
        typer.Option(metavar="SESSION", help="Run on the agents of this session."),
    ] = None,
    detach: Annotated[
        bool,
        typer.Option("--detach", help="Return at once; `sapwood runs list` shows the run."),
    ] = False,
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The cluster of --session, --detach and --on head: its name, or "
            "sapwood://HOST:PORT.",
        ),
    ] = "default",
    environment: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Staged environment whose packages runners have (`sapwood stage environment`).",
        ),
    ] = None,
    record: Annotated[Path | None, typer.Option(hidden=True)] = None,
    env: Env = None,
    settings: Set = None,
    as_json: Json = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show what would be built and how data would be split."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Stay and run again after each edit, until Ctrl-C."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show progress as lines, also into a file.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Run a program over data on agents, of this machine or of others.

    Ctrl-C cancels the run; nothing is left behind.

    With --watch each edit is built at once; a run that has begun keeps its version and the next one
    follows. With --watch --json it prints a line a run.
    """
    with answering(record), reported(debug=debug, as_json=as_json):
        own = on is not None or agents is not None or fanout is not None or bool(environment)
        if session is not None and (own or env):
            raise ConfigurationError(
                "a session has its agents, with their environment variables",
                hint="leave out --on, --agents, --fanout, --environment and --env; "
                "`sapwood session create --env NAME` makes a session with a variable",
            )
        machines = machines_of(on, session, cluster)
        if detach and session is not None:  # its driver knows the cluster, which keeps the run
            machines = f"session:{session}"
        given = {
            "cluster.on": machines,
            "cluster.agents": agents,
            "cluster.fanout": fanout,
            "nodes.topology": topology,
            "limits.time": time_limit,
            "limits.run_time": run_time_limit,
            "limits.iterations": max_iterations,
            "limits.memory": memory_limit,
            "limits.check_memory": True if check_memory else None,
            "environment.packages": environment,
            "nodes.allocations": allocations,
        }
        flags = {key: value for key, value in given.items() if value is not None}
        request = RunRequest(
            program=program,
            data=data,
            columns=None if columns is None else tuple(columns.split(",")),
            parameters=assignments(parameter or (), "-p"),
            flags=assignments(settings or (), "--set") | variables(env or ()) | flags,
            chunk=chunk,
            output=output_path(output),
            on_agent_loss=on_agent_loss,
            allow_nan=allow_nan,
            quiet=quiet,
            verbose=verbose,
            as_json=as_json,
            watch=watch,
            record=record,
            checkpoint=checkpoint,
            resume=resume,
            report=output_path(report),
            go_on=go_on,
        )
        require_together(
            {
                "--allocations": allocations,
                "--checkpoint": checkpoint,
                "--continue": go_on,
                "--detach": detach,
                "--dry-run": dry_run,
                "--env": env,
                "--report": report,
                "--resume": resume,
                "--watch": watch,
            }
        )
        if detach:
            from sapwood.cli.runs_command import begin  # noqa: PLC0415 - --help must load little

            begin(request, session or "", cluster)
            return
        _execute(request, dry_run=dry_run)


def _execute(request: RunRequest, *, dry_run: bool) -> None:
    if dry_run:
        from sapwood.cli.run_command import show_plan  # noqa: PLC0415 - --help must not load numpy

        show_plan(request)
        return
    starting.say("loading")
    if request.watch:
        from sapwood.cli.run_command import execute_watching  # noqa: PLC0415 - as above

        raise typer.Exit(execute_watching(request))
    if request.record is not None:
        from sapwood.cli.run_driver import drive  # noqa: PLC0415 - as above

        raise typer.Exit(drive(request, request.record))
    from sapwood.cli.run_command import execute  # noqa: PLC0415 - --help must not load numpy

    raise typer.Exit(execute(request))
