"""``sapwood top``: a cluster at a glance; ``top_display.py`` draws it."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Cluster, Debug, Json


def top(
    *,
    name: Cluster = "default",
    once: Annotated[
        bool, typer.Option("--once", help="Show it once and return; so it is without a terminal.")
    ] = False,
    seconds: Annotated[
        float,
        typer.Option("--seconds", "-s", metavar="S", min=0.2, help="Between two looks."),
    ] = 1.0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the health, nodes, load, sessions and runs of a cluster, until Ctrl-C.

    First comes what is wrong, then the busiest nodes and the newest sessions and runs, as many as
    the terminal has room for.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import top_display  # noqa: PLC0415 - --help must load little

        top_display.show(name, seconds, once=once, as_json=as_json)
