"""``sapwood cache``: list cached builds, and make room."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.code.cache import BuildCache, EntrySummary
from sapwood.core.errors import InputError
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size, parse_size

app = typer.Typer(help="Show and prune the cache of built programs.", no_args_is_help=True)


@app.command()
@reporting
def show(*, settings: Set = None, as_json: Json = False, debug: Debug = False) -> None:
    """List what is in the cache, least recently used first."""
    cache = _open(settings)
    entries = cache.entries()
    total = sum(entry.bytes for entry in entries)
    if as_json:
        print_json({"folder": str(cache.folder), "bytes": total, "entries": entries})
        return
    columns = ("key", "size>", "last used", "language", "sources")
    write(table("", columns, map(_row, entries), wrap="sources"))
    limit = describe_size(cache.size_limit)
    typer.echo(f"{cache.folder}: {describe_size(total)} of at most {limit}")


@app.command()
@reporting
def prune(
    *,
    to: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep at most this much; default: the configured size."),
    ] = None,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Delete the least recently used builds; builds in use stay."""
    cache = _open(settings)
    before = sum(entry.bytes for entry in cache.entries())
    removed = cache.prune(None if to is None else _size(to))
    freed = before - sum(entry.bytes for entry in cache.entries())
    if as_json:
        print_json({"folder": str(cache.folder), "removed": removed, "bytes": freed})
        return
    typer.echo(f"removed {removed} builds, {describe_size(freed)}")


def _open(settings: list[str] | None) -> BuildCache:
    configured = load_configuration(assignments(settings or (), "--set")).settings.cache
    return BuildCache(configured.path(), size_limit=configured.size)


def _row(entry: EntrySummary) -> tuple[str, ...]:
    used = dt.datetime.fromtimestamp(entry.used, dt.UTC).astimezone()
    return (
        entry.key[:12],
        describe_size(entry.bytes),
        f"{used:%Y-%m-%d %H:%M}",
        entry.description.get("language", ""),
        entry.description.get("sources", ""),
    )


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except ValueError as error:
        raise InputError(str(error), where="--to") from error
