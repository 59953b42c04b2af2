"""``sapwood build``: the libraries of a program, for this machine or for others."""

from __future__ import annotations

import datetime as dt
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, TextIO

import typer

from sapwood.cli import completion, present
from sapwood.cli.failures import EXIT_INTERRUPTED, explain, reporting
from sapwood.cli.interrupts import termination_interrupts
from sapwood.cli.options import Debug, Json, Set, assignments
from sapwood.cli.present import print_json, table, write
from sapwood.code.build import Built
from sapwood.code.build import build as build_program
from sapwood.code.cache import BuildCache
from sapwood.code.load import load_program
from sapwood.code.program import Program
from sapwood.code.target import Target, parse_target
from sapwood.code.toolchain import by_zig
from sapwood.code.watch import VersionInfo, Watch
from sapwood.core.failures import new_thread
from sapwood.environment.configuration import load_configuration
from sapwood.environment.units import describe_size

_SLOW = "zig compiles its own libraries for a target first, which takes about a minute once"


@reporting
def build(
    program: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM",
            help="Folder with a program.toml, or a Python file with a Program class.",
            autocompletion=completion.programs,
        ),
    ],
    *,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TARGET",
            help="Target, for example aarch64-linux-gnu; may be repeated; default: native, this "
            "machine.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Build again after each edit, until Ctrl-C."),
    ] = False,
    settings: Set = None,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Build the sources of a program into the cache, for one target or several.

    A target is ARCHITECTURE-linux-gnu or -musl, then .VERSION of glibc, ,cpu=MODEL, ,cuda=sm_NN.

    Existing builds are not built again.

    With --watch --json there is one line for each version.
    """
    configured = load_configuration(assignments(settings or (), "--set")).settings.cache
    cache = BuildCache(configured.path(), size_limit=configured.size)
    targets = [parse_target(text) for text in target or ["native"]]
    if watch:
        with termination_interrupts():
            raise typer.Exit(watch_program(program, targets, cache, as_json=as_json))
    loaded = load_program(program)
    found = []
    with termination_interrupts():  # compilers end too
        for each in targets:
            why = _SLOW if by_zig(each, os.environ) else ""
            with passing_seconds(f"building for {each.triple}", sys.stderr, why=why):
                found.append(build_program(loaded, cache=cache, target=each))
    show_built(loaded, found, as_json=as_json)


def watch_program(program: str, targets: list[Target], cache: BuildCache, *, as_json: bool) -> int:
    """Build a program after each edit and tell how it went, until Ctrl-C.

    Returns:
        The exit code: 130, as only Ctrl-C ends it.
    """
    show = _show_version_json if as_json else _show_version
    watch = Watch(program, targets=lambda: targets, cache=cache, on_version=show)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    finally:
        watch.close()
    return 0


def _show_version(version: VersionInfo) -> None:
    now = dt.datetime.now().astimezone()
    if version.error is not None:
        typer.echo(explain(version.error), err=True)
        typer.echo(f"{now:%H:%M:%S} version {version.number} cannot be used", err=True)
        return
    how = "found built" if all(built.cached for built in version.builds) else "built"
    typer.echo(
        f"{now:%H:%M:%S} version {version.number} ({version.hash[:12]}) {how} "
        f"in {present.seconds(version.seconds)}"
    )


def _show_version_json(version: VersionInfo) -> None:
    record = {
        "version": version.number,
        "hash": version.hash,
        "seconds": version.seconds,
        "builds": list(map(_record, version.builds)),
        "error": None if version.error is None else version.error.to_record(),
    }
    print_json(record, one_line=True)


def show_built(program: Program, found: list[Built], *, as_json: bool) -> None:
    """Print what was built or found built."""
    if as_json:
        print_json(
            {"program": program.name, "hash": program.hash, "builds": list(map(_record, found))}
        )
        return
    rows = [
        (
            str(built.target),
            library.image.language,
            library.entry.key[:12],
            describe_size(sum(each.size for each in library.entry.manifest.files.values())),
            present.seconds(library.entry.manifest.seconds) if library.entry.built else "cached",
        )
        for built in found
        for library in built.libraries
    ]
    if not rows:
        write(f"{program.name} has no sources to build")
        return
    columns = ("target", "language", "key", "size>", "build>")
    write(table(program.name, columns, rows, wrap="target"))


def _record(built: Built) -> dict[str, object]:
    return {
        "target": str(built.target),
        "cached": built.cached,
        "seconds": built.seconds,
        "libraries": [
            {
                "language": library.image.language,
                "key": library.entry.key,
                "path": library.image.path,
                "sha256": library.image.sha256,
                "built": library.entry.built,
            }
            for library in built.libraries
        ],
    }


PATIENCE = 2.0
"""Seconds before anything is shown."""

TICK = 1.0
"""Seconds between two changes of the line."""


@contextmanager
def passing_seconds(
    text: str,
    stream: TextIO,
    *,
    why: str = "",
    patience: float = PATIENCE,
    tick: float = TICK,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show the present work and its duration, once it has taken a while.

    On a terminal that is one line, which changes and goes away in the end; elsewhere a line that
    stays, and only where there is something to explain.

    Args:
        text: Name of the work.
        stream: Where it is shown.
        why: Why it may take long.
        patience: Seconds before anything is shown.
        tick: Seconds between two changes.
        now: The clock.
    """
    over = threading.Event()
    begin = now()
    because = f" ({why})" if why else ""

    def show() -> None:
        if over.wait(patience):
            return
        if not stream.isatty():
            if why:
                stream.write(f"{text}{because}\n")
                stream.flush()
            return
        while True:
            stream.write(f"\r\x1b[K{text}: {now() - begin:.0f} s{because}")
            stream.flush()
            if over.wait(tick):
                break
        stream.write("\r\x1b[K")
        stream.flush()

    thread = new_thread("sapwood-waiting", show)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
