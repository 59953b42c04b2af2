"""What ``sapwood stage`` does."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from sapwood.cli import starting
from sapwood.cli.failures import remember_cluster
from sapwood.cli.head_connection import connected
from sapwood.cli.present import print_json, table, write
from sapwood.code.cache import BuildCache
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.hostset import fold_hosts
from sapwood.core.shown import shown
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size
from sapwood.head.stage_reports import StageReport
from sapwood.head.staging import Staging, folded, staged_files
from sapwood.views.words import moment_shown


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
            "files are kept by nodes that stay", where=f"--on {on}", hint="write --on head"
        )
    return remember_cluster(named or name)


def put(name: str, files: Sequence[Path], nodes: str, label: str, *, as_json: bool) -> None:
    """Stage files on nodes, and print the outcome."""
    listen = load_configuration().settings.nodes.node_listen
    with connected(name) as head:
        reports, failed = Staging(head, listen).put(files, nodes, label)
    if as_json and not failed:
        print_json({"staged": reports})
    elif not as_json:
        _say_where(reports)
    _raise(failed)


def environment(
    name: str,
    lock: Path,
    nodes: str,
    label: str,
    flags: Mapping[str, str | int],
    *,
    as_json: bool,
) -> None:
    """Stage the packages of a lock file on nodes, and print the outcome."""
    settings = load_configuration(flags).settings
    cache = BuildCache(settings.cache.path(), size_limit=settings.cache.size)
    starting.say("installing packages")
    try:
        with connected(name) as head:
            staging = Staging(head, settings.nodes.node_listen)
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


def get(name: str, remote: str, folder: Path, nodes: str, *, as_json: bool) -> None:
    """Collect files, and say where they are."""
    with connected(name) as head:
        found, failed = Staging(head).get(remote, folder, nodes)
    if as_json and not failed:
        print_json({"collected": found})
    elif not as_json:
        for one in found:
            typer.echo(f"{one.path} ({describe_size(one.nbytes)}) from {fold_hosts(one.nodes)}")
    _raise(failed)


def show(name: str, nodes: str, *, as_json: bool) -> None:
    """List what is staged."""
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


def remove(name: str, label: str, nodes: str, *, as_json: bool) -> None:
    """Have nothing at a name any more."""
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


def _raise(failed: Mapping[str, SapwoodError]) -> None:
    if failed:
        raise folded(failed)
