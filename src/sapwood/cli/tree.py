"""``sapwood tree``: the links between the machines of a cluster."""

from __future__ import annotations

import typer

from sapwood.cli import status_tables
from sapwood.cli.failures import reporting
from sapwood.cli.options import Cluster, Debug, Json
from sapwood.cli.present import print_json, write

app = typer.Typer(help="Look at the links between the machines.", no_args_is_help=True)


@app.callback()
def _tree() -> None:
    """Keep `status` a subcommand, because others will follow."""


@app.command()
@reporting
def status(*, name: Cluster = "default", as_json: Json = False, debug: Debug = False) -> None:
    """Show how each node of a cluster is reached, and why one is not.

    The round trip comes from heartbeats and holds what both processes take, too. The clock of a
    node is compared with the head clock now: ±1 ms means that they agree as far as this can be
    measured. A queue is what is written and not yet sent, or waits until the node takes it.
    """
    found = status_tables.status_of(name)
    if as_json:
        print_json(found)
    else:
        write(*status_tables.links_shown(found))
