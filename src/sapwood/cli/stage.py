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
from sapwood.cli.options import Cluster, Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.code.cache import BuildCache
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.hostset import fold_hosts
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size
from sapwood.head_client.stage_reports import StageReport
from sapwood.head_client.staging import Staging, folded, staged_files
from sapwood.views.words import moment_shown

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
    typer.Option(metavar="SPEC", help="head or head:NAME: the same as --cluster NAME."),
]


@app.command()
@reporting
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
    """List what is staged, and where."""
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
    if kind != "head":
        raise InputError(
            "only nodes of a head keep files", where=f"--on {on}", hint="write --on head"
        )
    return remember_cluster(named or name)


def _say_where(reports: Sequence[StageReport]) -> None:
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
