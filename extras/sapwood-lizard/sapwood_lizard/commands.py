"""``sapwood lizard``: programs of lizard-slayer, unchanged."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from sapwood import Run, local
from sapwood.errors import ProgramError
from sapwood.plugins.caches import BuildCache
from sapwood.plugins.commands import (
    EXIT_INTERRUPTED,
    Debug,
    Json,
    assignments,
    configure_logging,
    describe_size,
    follow,
    load_configuration,
    open_display,
    parse_duration,
    print_json,
    reporting,
    run_settings,
    table,
    termination_interrupts,
    write,
)
from sapwood.plugins.tools import suggest
from sapwood_lizard.block_size import recommended_block
from sapwood_lizard.directory import existing_directory, read_directory
from sapwood_lizard.execution import RunOutcome, run_with_runner
from sapwood_lizard.hardware import DeviceAttributes, find_devices
from sapwood_lizard.launch import Checked, check
from sapwood_lizard.runner_module import RunnerModule
from sapwood_lizard.serving_commands import ClientRequest, ServerRequest, run_client, run_server
from sapwood_lizard.store import ProgramStore

app = typer.Typer(help="Register and run programs of lizard-slayer.", no_args_is_help=True)

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="Folder with config.yaml and the files that it names.")
]
Checksum = Annotated[
    str, typer.Argument(metavar="CHECKSUM", help="Checksum, as `sapwood lizard load` printed it.")
]
Port = Annotated[
    int,
    typer.Option(
        "--port",
        "-p",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port to listen at; 0 for a free one.",
    ),
]
Token = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the token that requests must show."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Report the work on stderr.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")]
RunTimeLimit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Longest time of a whole run, for example 10min."),
]
MaxIterations = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="End a run after N iterations, with the result so far."),
]
Configured = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="KEY=VALUE",
        help="Setting of Sapwood, for example limits.time=10s; may be repeated.",
    ),
]


@app.command()
@reporting
def run(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    folder: Folder,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Value for the runner module, in run_settings; may be repeated.",
        ),
    ] = None,
    agents: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Agents to start; default: one for each core."),
    ] = None,
    fanout: Annotated[
        int | None,
        typer.Option(metavar="K", min=2, help="Children of a junction; default: a flat tree."),
    ] = None,
    runner: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Runner module; default: runner.py in the folder."),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=2**63 - 1, help="Seed of the random numbers of the program."
        ),
    ] = 0,
    run_time_limit: RunTimeLimit = None,
    max_iterations: MaxIterations = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only what the runner module prints.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show progress as lines, also into a file.")
    ] = False,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Register a program and run it on agents of this machine by its runner module.

    Prints the checksum, what the runner module prints, and the time taken.
    """
    given = {"cluster.agents": agents, "cluster.fanout": fanout}
    flags: dict[str, Any] = {
        **assignments(configuration or (), "--config"),
        **{key: value for key, value in given.items() if value is not None},
        **_limits(run_time_limit, max_iterations),
    }
    known = load_configuration(flags).settings
    path = existing_directory(folder)
    checked = register(folder, flags)
    if not as_json and not quiet:
        typer.echo(f"Program registered, checksum: {checked.registration.checksum}")
    module = load_runner(path, runner, checked)

    def followed(run: Run) -> None:
        display = open_display(run.program.name, quiet=quiet or as_json, verbose=verbose)
        if not follow(run, display):
            raise typer.Exit(EXIT_INTERRUPTED)

    with (
        termination_interrupts(),
        configure_logging(known.log),
        local(settings=known) as cluster,
    ):
        outcome = run_with_runner(
            cluster, checked, module, run_settings(settings or ()), seed=seed, follow=followed
        )
    _show(checked, module, outcome, quiet=quiet, as_json=as_json)


@app.command()
@reporting
def load(
    *,
    folder: Folder,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Register a program: build it, check that its parts fit together, print its checksum."""
    found = register(folder, assignments(configuration or (), "--config")).registration
    if as_json:
        print_json({"name": found.name, "checksum": found.checksum})
    else:
        typer.echo(f"Program registered, checksum: {found.checksum}")


@app.command()
@reporting
def server(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    host: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="Where it listens. Any but loopback needs --token, --certificate and --key.",
        ),
    ] = "127.0.0.1",
    port: Port = 5000,
    agents: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Agents of the server; default: one for each core or GPU."
        ),
    ] = 0,
    on: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Machines for the server's agents, as for `sapwood run`: ssh:n1,n2 …",
        ),
    ] = "local",
    token: Token = None,
    certificate: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Certificate of the server (PEM), to serve with TLS."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the certificate (PEM).")
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, max=2**63 - 1, help="Seed of the random numbers of the programs."
        ),
    ] = 0,
    keep: Annotated[
        bool,
        typer.Option("--keep", "-k", help="Keep its programs also with --port 0."),
    ] = False,
    run_time_limit: RunTimeLimit = None,
    max_iterations: MaxIterations = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Serve lizard-slayer's API: programs are registered and run by HTTP.

    Its agents and its clients' agents run them, one run after the other.
    The next server of the same port knows its programs.

    DELETE /events/ID cancels a run of a program that never sets done.
    --run-time-limit and --max-iterations end all such runs.
    --config limits.time=TIME limits each call of a program's function.
    """
    run_server(
        ServerRequest(
            host=host,
            port=port,
            agents=agents,
            spec=on,
            token=token,
            certificate=certificate,
            key=key,
            seed=seed,
            keep=keep,
            quiet=quiet,
            flags=_logged(configuration, verbose=verbose) | _limits(run_time_limit, max_iterations),
            as_json=as_json,
        )
    )


@app.command()
@reporting
def client(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    port: Annotated[
        int,
        typer.Option("--port", "-p", metavar="PORT", min=1, max=65535, help="Port of the server."),
    ] = 5000,
    address: Annotated[
        str,
        typer.Option(
            "--addr",
            "-a",
            metavar="HOST",
            help="Server: a host name, an address, or https://HOST.",
        ),
    ] = "localhost",
    agents: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Agents to bring; default: one for each GPU, or else core."
        ),
    ] = 0,
    no_gpu: Annotated[
        bool, typer.Option("--no-gpu", "-n", help="Use the processor, not the GPU.")
    ] = False,
    cuda_bin: Annotated[
        Path | None,
        typer.Option("--bin", "-b", metavar="DIR", help="Folder of the CUDA compiler."),
    ] = None,
    cuda_lib: Annotated[
        Path | None,
        typer.Option(
            "--include", "-i", metavar="DIR", help="Folder of the CUDA libraries (lib64)."
        ),
    ] = None,
    token: Token = None,
    certificate: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Certificate that signed the server's certificate (PEM)."
        ),
    ] = None,
    client_port: Annotated[
        int,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Port of the client, on loopback; default: a free one.",
        ),
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", "-k", help="Keep the folder of its programs at the end.")
    ] = False,
    retry: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to try to reach a server that has ended."),
    ] = "60s",
    quiet: Quiet = False,
    verbose: Verbose = False,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring the agents of this machine to a server, also to one that was started again."""
    scheme = "http" if certificate is None else "https"
    named = address if "//" in address else f"{scheme}://{address}:{port}"
    run_client(
        ClientRequest(
            server=named,
            port=client_port,
            agents=agents,
            gpu=not no_gpu,
            cuda_bin=cuda_bin,
            cuda_lib=cuda_lib,
            token=token,
            certificate=certificate,
            keep=keep,
            retry=parse_duration(retry),
            quiet=quiet,
            flags=_logged(configuration, verbose=verbose),
            as_json=as_json,
        )
    )


def _limits(run_time: str | None, iterations: int | None) -> dict[str, Any]:
    """Return settings by which runs end that would not end otherwise."""
    given = {"limits.run_time": run_time, "limits.iterations": iterations}
    return {key: value for key, value in given.items() if value is not None}


def _logged(configuration: list[str] | None, *, verbose: bool) -> dict[str, Any]:
    """Return settings by which a server or a client says what it does, if that is wanted."""
    level = {"log.console": "info"} if verbose else {}
    return {**level, **assignments(configuration or (), "--config")}


@app.command("list")
@reporting
def show(*, as_json: Json = False, debug: Debug = False) -> None:
    """List the registered programs."""
    found = ProgramStore().all()
    if as_json:
        print_json({"programs": [{"name": p.name, "checksum": p.checksum} for p in found]})
    elif found:
        rows = [(each.checksum, each.name, describe_size(len(each.data))) for each in found]
        write(table("", ("checksum", "name", "size>"), rows, wrap="name"))
    else:
        typer.echo("no programs are registered; `sapwood lizard load DIR` registers one")


@app.command()
@reporting
def delete(checksum: Checksum, *, as_json: Json = False, debug: Debug = False) -> None:
    """Delete a registered program."""
    ProgramStore().remove(checksum)
    if as_json:
        print_json({"deleted": checksum})


@app.command()
@reporting
def hardware(*, as_json: Json = False, debug: Debug = False) -> None:
    """Show the GPUs of this machine, and how many threads a block of a program gets."""
    devices = find_devices()
    block = recommended_block(devices[0] if devices else None)
    if as_json:
        print_json({"gpus": devices, "block_size": block})
        return
    if devices:
        columns = ("GPU", "capability", "memory>", "processors>", "block>")
        write(table("", columns, map(_device, devices), wrap="GPU"))
    else:
        typer.echo("no GPU: kernels are patched and run on the CPU")
    typer.echo(f"threads of a block: {block}")


def _device(found: DeviceAttributes) -> tuple[str, ...]:
    return (
        found.name,
        f"{found.major}.{found.minor}",
        describe_size(found.memory),
        str(found.multiprocessors),
        str(found.max_block),
    )


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


def _show(
    checked: Checked, runner: RunnerModule, outcome: RunOutcome, *, quiet: bool, as_json: bool
) -> None:
    if as_json:
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            runner.print_result(outcome.end_global_state, quiet=quiet)
        found = checked.registration
        answer = {"program": found.name, "checksum": found.checksum, "output": text.getvalue()}
        print_json({**answer, **msgspec.to_builtins(outcome)})
        return
    if not quiet:
        typer.echo(f"Run completed in {outcome.seconds} seconds")  # as lizard-slayer writes it
    runner.print_result(outcome.end_global_state, quiet=quiet)
    if not quiet:
        agents = f"{outcome.agents} agent{'' if outcome.agents == 1 else 's'}"
        limit = ", ended by max_iterations before the program was done" * outcome.cut_short
        facts = f"{outcome.iterations} iterations, {outcome.points} points, {agents}{limit}"
        typer.echo(facts)
