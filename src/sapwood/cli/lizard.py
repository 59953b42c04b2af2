"""``sapwood lizard``: programs of lizard-slayer, unchanged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json, assignments, run_settings
from sapwood.cli.present import print_json, table, write
from sapwood.environment.units import describe_size, parse_duration

if TYPE_CHECKING:
    from sapwood.compat.lizard.hardware import DeviceAttributes

app = typer.Typer(help="Register and run programs of lizard-slayer.", no_args_is_help=True)

Folder = Annotated[
    str, typer.Argument(metavar="DIR", help="Folder with config.yaml and what it names.")
]
Checksum = Annotated[str, typer.Argument(metavar="CHECKSUM", help="What load printed.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", "-p", metavar="PORT", min=0, max=65535, help="Its port; 0 for a free one."
    ),
]
Token = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="File with the token that requests must show."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say what is done, on stderr.")]
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
        help="A setting of Sapwood, for example limits.time=10s; may be repeated.",
    ),
]


@app.command()
def run(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    folder: Folder,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="What the runner module gets in run_settings; may be repeated.",
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
    runner: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The runner module; default: runner.py in the folder."),
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
        bool, typer.Option("--quiet", "-q", help="Print what the runner module prints, not more.")
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
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.lizard_command import LizardRequest, execute  # noqa: PLC0415 - --help is fast

        given = {"cluster.agents": agents, "cluster.fanout": fanout}
        flags = {key: value for key, value in given.items() if value is not None}
        flags |= _limits(run_time_limit, max_iterations)
        request = LizardRequest(
            folder=folder,
            runner=runner,
            settings=run_settings(settings or ()),
            flags=assignments(configuration or (), "--config") | flags,
            seed=seed,
            quiet=quiet,
            verbose=verbose,
            as_json=as_json,
        )
        execute(request)


@app.command()
def load(
    *,
    folder: Folder,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Register a program: build it, check that its parts fit together, print its checksum."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.lizard_command import register  # noqa: PLC0415 - --help must be fast

        found = register(folder, assignments(configuration or (), "--config")).registration
        if as_json:
            print_json({"name": found.name, "checksum": found.checksum})
        else:
            typer.echo(f"Program registered, checksum: {found.checksum}")


@app.command()
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
        typer.Option(metavar="N", min=0, help="Its own agents; default: one for each core or GPU."),
    ] = 0,
    on: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="Machines of its own agents, as for `sapwood run`: ssh:n1,n2 …"
        ),
    ] = "local",
    token: Token = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its certificate (PEM): it speaks TLS.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The key of the certificate (PEM).")
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
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.lizard_serving import (  # noqa: PLC0415 - --help must be fast
            ServerRequest,
            run_server,
        )

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
                flags=_logged(configuration, verbose=verbose)
                | _limits(run_time_limit, max_iterations),
                as_json=as_json,
            )
        )


@app.command()
def client(  # noqa: PLR0913 - each parameter is one option of the command line
    *,
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", min=1, max=65535, help="The server's.")
    ] = 5000,
    address: Annotated[
        str,
        typer.Option(
            "--addr", "-a", metavar="HOST", help="The server: a name, an address, or https://…"
        ),
    ] = "localhost",
    agents: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Agents that it brings; default: one a GPU, or else a core."
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
        typer.Option(metavar="FILE", help="The certificate that the server's is signed by (PEM)."),
    ] = None,
    client_port: Annotated[
        int,
        typer.Option(metavar="PORT", min=0, max=65535, help="Its own, on loopback; default: free."),
    ] = 0,
    keep: Annotated[
        bool, typer.Option("--keep", "-k", help="Keep the folder of its programs at the end.")
    ] = False,
    retry: Annotated[
        str,
        typer.Option(metavar="TIME", help="How long to look for the server again after its end."),
    ] = "60s",
    quiet: Quiet = False,
    verbose: Verbose = False,
    configuration: Configured = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Bring the agents of this machine to a server, also to one that was started again."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli.lizard_serving import (  # noqa: PLC0415 - --help must be fast
            ClientRequest,
            run_client,
        )

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
def show(*, as_json: Json = False, debug: Debug = False) -> None:
    """List the registered programs."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.compat.lizard.store import ProgramStore  # noqa: PLC0415 - --help must be fast

        found = ProgramStore().all()
        if as_json:
            print_json({"programs": [{"name": p.name, "checksum": p.checksum} for p in found]})
        elif found:
            rows = [(each.checksum, each.name, describe_size(len(each.data))) for each in found]
            write(table("", ("checksum", "name", "size>"), rows, wrap="name"))
        else:
            typer.echo("no programs are registered; `sapwood lizard load DIR` registers one")


@app.command()
def remove(checksum: Checksum, *, as_json: Json = False, debug: Debug = False) -> None:
    """Forget a registered program."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.compat.lizard.store import ProgramStore  # noqa: PLC0415 - --help must be fast

        ProgramStore().remove(checksum)
        if as_json:
            print_json({"removed": checksum})


@app.command()
def hardware(*, as_json: Json = False, debug: Debug = False) -> None:
    """Show the GPUs of this machine, and how many threads a block of a program gets."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.compat.lizard.block_size import (  # noqa: PLC0415 - --help must be fast
            recommended_block,
        )
        from sapwood.compat.lizard.hardware import find_devices  # noqa: PLC0415 - as above

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
