"""``sapwood topology``: shapes of trees, and what a wave costs in each."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.cli.failures import reported
from sapwood.cli.options import Debug, Json
from sapwood.cli.present import print_json, write

app = typer.Typer(
    help="Look at shapes of trees, and at what a wave costs in each.", no_args_is_help=True
)

Agents = Annotated[int | None, typer.Option("--agents", min=1, help="Agents of the tree.")]
Hosts = Annotated[
    int, typer.Option("--hosts", min=1, help="Machines that the agents are on, evenly.")
]
Link = Annotated[
    str,
    typer.Option(
        metavar="LATENCY,OVERHEAD,RATE",
        help="Figures of such links, for example 20us,5us,2GB (a second).",
    ),
]
_SHAPES = "flat, kary:K, knomial:K, by-host or file:PATH"


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(help="A cluster that is up.", show_default=False)
    ] = None,
    *,
    agents: Agents = None,
    hosts: Hosts = 1,
    shape: Annotated[
        str,
        typer.Option(
            help=f"Of the tree: {_SHAPES}. With --on, of the machines: flat, kary:K, knomial:K or "
            "file:PATH."
        ),
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            metavar="PLACES", help="The tree over these machines: as for `run --on`; none is used."
        ),
    ] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the tree of the machines of a cluster, or a tree of some shape.

    Without a name it is the tree that a cluster on this machine would have, as configured.
    With --on it is the tree that a cluster on those machines would have: nothing is started there.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import topology_tables  # noqa: PLC0415 - --help must load little

        if on:
            given = name is not None or hosts > 1
            shown = topology_tables.tree_on(on, shape, agents, given=given)
        elif name is not None:
            shown = topology_tables.control_tree(name, given=bool(agents or shape or hosts > 1))
        else:
            shown = topology_tables.tree_of(shape, agents, hosts)
        if as_json:
            print_json(shown)
        else:
            write(*topology_tables.outline(shown))


@app.command()
def plan(  # noqa: PLR0913 - an option each
    *,
    agents: Annotated[int, typer.Option("--agents", min=1, help="Agents of the tree.")],
    hosts: Hosts = 1,
    shape: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this: {_SHAPES}; may be repeated.", show_default=False),
    ] = None,
    nbytes: Annotated[
        str, typer.Option("--bytes", help="Size of what is broadcast, for example 64KiB.")
    ] = "1KiB",
    answer: Annotated[
        str, typer.Option(help="Size of an agent's answer; by default the same.")
    ] = "",
    grows: Annotated[
        bool, typer.Option("--grows", help="Answers are gathered, not reduced to one of them.")
    ] = False,
    cores: Annotated[
        int, typer.Option(min=0, help="Cores of each machine; by default this machine's.")
    ] = 0,
    local_link: Link = "",
    host_link: Link = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Predict what a wave costs in trees of several shapes, and recommend one.

    Figures of links are measured on this machine, which takes a second or two, unless they are
    given. Links between machines are taken to be 50us later and to carry 1 GB a second, and
    to cost their ends the same. Times are those of messages alone, by the model LogGP; the work of
    agents comes on top, and is the same in all shapes.
    """
    with reported(debug=debug, as_json=as_json):
        from sapwood.cli import topology_tables  # noqa: PLC0415 - --help must load little

        links = topology_tables.links(local_link, host_link, several=hosts > 1)
        load = topology_tables.load_of(nbytes, answer, grows=grows)
        found = topology_tables.compare(shape or [], agents, hosts, load, links, cores)
        if as_json:
            print_json(found)
        else:
            write(*topology_tables.compared(found))
