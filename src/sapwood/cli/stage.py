"""``sapwood stage``: files for the nodes of a cluster that is up, and files from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json, Set, assignments

app = typer.Typer(
    help="Keep files on the nodes of a cluster that is up.",
    epilog="Processes on a node find them in $SAPWOOD_STAGE, by their names.",
    no_args_is_help=True,
)

Nodes = Annotated[
    str,
    typer.Option(metavar="SET", help="The nodes, for example n[1-4]; default: all that are there."),
]

On = Annotated[
    str | None,
    typer.Option(metavar="SPEC", help="head or head:NAME: the same as --name NAME."),
]


@app.command()
def put(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files and folders.")],
    *,
    nodes: Nodes = "",
    label: Annotated[
        str, typer.Option("--as", metavar="NAME", help="What it is called there; default: as here.")
    ] = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Have files and folders on nodes.

    What a node has already is not sent; nodes pass content on to each other. A file that can be
    executed can be so there.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import stage_command  # noqa: PLC0415 - --help must load little

        stage_command.put(stage_command.head_of(name, on), files, nodes, label, as_json=as_json)


@app.command()
def environment(
    lock: Annotated[
        Path,
        typer.Argument(metavar="LOCK", help="Requirements with hashes, pylock.toml or uv.lock."),
    ],
    *,
    nodes: Nodes = "",
    label: Annotated[
        str, typer.Option("--as", metavar="NAME", help="What it is called there; default: as LOCK.")
    ] = "",
    name: Cluster = "default",
    on: On = None,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Have the Python packages of a lock file on nodes.

    uv installs them here, once for each kind of nodes. `sapwood exec` and `sapwood run` use them by
    --environment NAME.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import stage_command  # noqa: PLC0415 - --help must load little

        head = stage_command.head_of(name, on)
        flags = assignments(settings or (), "--set")
        stage_command.environment(head, lock, nodes, label, flags, as_json=as_json)


@app.command()
def get(
    remote: Annotated[
        str, typer.Argument(help="A path on the nodes; '$SAPWOOD_STAGE/NAME' is what was staged.")
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where it comes to.")],
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Collect a file or a folder from nodes.

    A file that is equal on all nodes is written to DIR, otherwise each node's to DIR/NODE. Equal
    files travel once.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import stage_command  # noqa: PLC0415 - --help must load little

        stage_command.get(stage_command.head_of(name, on), remote, folder, nodes, as_json=as_json)


@app.command("list")
def show(
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List what is staged, and where."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import stage_command  # noqa: PLC0415 - --help must load little

        stage_command.show(stage_command.head_of(name, on), nodes, as_json=as_json)


@app.command()
def remove(
    label: Annotated[str, typer.Argument(metavar="NAME", help="What it is called there.")],
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Have nothing at a name any more; its room is used when others need it."""
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import stage_command  # noqa: PLC0415 - --help must load little

        stage_command.remove(stage_command.head_of(name, on), label, nodes, as_json=as_json)
