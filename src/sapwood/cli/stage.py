"""``sapwood stage``: files for the nodes of a cluster that is up, and files from them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from sapwood.cli import starting
from sapwood.cli.failures import remember_cluster, reporting
from sapwood.cli.head_access import connected
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import Cluster, Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.code.cache import BuildCache
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.hostset import fold_hosts
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size
from sapwood.head_client.stage_reports import StageInfo
from sapwood.head_client.staging import Staging, folded, staged_files
from sapwood.views.words import moment_shown

app = typer.Typer(
    help="Copy files to the nodes of a cluster and back.",
    epilog="Processes on a node find them in $SAPWOOD_STAGE, by their names.",
    no_args_is_help=True,
)

Nodes = Annotated[
    str,
    typer.Option(
        metavar="SET", help="These nodes, for example n[1-4]; default: all that are ready."
    ),
]

On = Annotated[
    str | None,
    typer.Option(metavar="SPEC", hidden=True, help="The former name of --cluster."),
]


@app.command()
@reporting
def put(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files and folders to copy.")
    ],
    *,
    nodes: Nodes = "",
    label: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="Name on the nodes; default: the name of FILE."),
    ] = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy files and folders to nodes.

    Content that a node has already is not sent; nodes pass content on to each other. Executable
    files stay executable.
    """
    name = head_of(name, on)
    listen = load_configuration().settings.nodes.node_listen
    with connected(name) as head:
        reports, failed = Staging(head, listen).put(files, nodes, label)
    if as_json and not failed:
        print_json({"staged": reports})
    elif not as_json:
        _say_where(reports)
    _raise(failed)


@app.command()
@reporting
def environment(
    lock: Annotated[
        Path,
        typer.Argument(metavar="LOCK", help="Requirements with hashes, pylock.toml or uv.lock."),
    ],
    *,
    nodes: Nodes = "",
    label: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="Name on the nodes; default: the name of LOCK."),
    ] = "",
    name: Cluster = "default",
    on: On = None,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Install the Python packages of a lock file on nodes.

    uv installs them here, once for each kind of node. `sapwood exec` and `sapwood run` use them
    by --packages NAME.
    """
    name = head_of(name, on)
    known = load_configuration(assignments(settings or (), "--set")).settings
    cache = BuildCache(known.cache.path(), size_limit=known.cache.size)
    starting.say("installing packages")
    try:
        with connected(name) as head:
            staging = Staging(head, known.nodes.node_listen)
            reports, failed = staging.environment(lock, cache, nodes, label)
    finally:
        starting.clear()
    if as_json and not failed:
        print_json({"staged": reports})
    elif not as_json:
        for one in reports:
            how = "installed by uv" if one.installed else "installed before"
            typer.echo(f"{one.name} for Python {one.python} on {one.platform}: {how}")
        _say_where(reports)
    _raise(failed)


@app.command()
@reporting
def get(
    remote: Annotated[
        str,
        typer.Argument(
            metavar="PATH", help="Path on the nodes; '$SAPWOOD_STAGE/NAME' is what was staged."
        ),
    ],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder here.")],
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Copy a file or a folder from nodes to this machine.

    A file that is equal on all nodes is written to DIR, otherwise each node's to DIR/NODE. Equal
    files are sent once.
    """
    name = head_of(name, on)
    with connected(name) as head:
        found, failed = Staging(head).get(remote, folder, nodes)
    if as_json and not failed:
        print_json({"collected": found})
    elif not as_json:
        for one in found:
            typer.echo(f"{one.path} ({describe_size(one.nbytes)}) from {fold_hosts(one.nodes)}")
    _raise(failed)


@app.command("list")
@reporting
def show(
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """List what is staged, and on which nodes."""
    name = head_of(name, on)
    with connected(name) as head:
        facts, failed = Staging(head).facts(nodes)
    _raise(failed)
    found = staged_files(facts)
    if as_json:
        print_json({"staged": found, "nodes": facts})
        return
    now = time.time()
    rows = [
        (
            one.name,
            one.kind,
            describe_size(one.nbytes),
            str(one.files),
            fold_hosts(one.nodes),
            moment_shown(one.since, now),
        )
        for one in found
    ]
    write(table("", ("name", "kind", "size>", "files>", "nodes", "since"), rows, wrap="nodes"))


@app.command()
@reporting
def delete(
    label: Annotated[str, typer.Argument(metavar="NAME", help="Name of what is staged.")],
    *,
    nodes: Nodes = "",
    name: Cluster = "default",
    on: On = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete what is staged under a name; its space is reused when it is needed."""
    name = head_of(name, on)
    with connected(name) as head:
        removed, failed = Staging(head).remove(label, nodes)
    _raise(failed)
    if not removed:
        raise InputError(
            f"nothing is staged as {shown(label)}", hint="`sapwood stage list` shows what is"
        )
    if as_json:
        print_json({"removed": label, "nodes": removed})
    else:
        typer.echo(f"removed {label} from {fold_hosts(removed)}")


def head_of(name: str, on: str | None) -> str:
    """Return which head is meant.

    Raises:
        InputError: The machines do not belong to a head.

    Example:
        >>> head_of("default", "head:team"), head_of("team", "head"), head_of("team", None)
        ('team', 'team', 'team')
    """
    if on is None:
        return name
    kind, _, named = on.partition(":")
    warn_of(f"--on {on}", f"--cluster {named or name}")
    if kind != "head":
        raise InputError(
            "only the nodes of a long-lived cluster store files",
            where=f"--on {on}",
            hint="write --cluster NAME instead",
        )
    return remember_cluster(named or name)


def _say_where(reports: Sequence[StageInfo]) -> None:
    for one in reports:
        if one.nodes:
            came = f"{describe_size(one.sent)} sent"
            if one.passed_on:
                came += f", {describe_size(one.passed_on)} passed on by nodes"
            typer.echo(
                f"{one.name} ({describe_size(one.nbytes)}) is on {fold_hosts(one.nodes)}: "
                + (came if one.sent or one.passed_on else "it was there")
            )


def _raise(failed: Mapping[str, SapwoodError]) -> None:
    if failed:
        raise folded(failed)
