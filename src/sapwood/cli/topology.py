"""``sapwood topology``: shapes of trees, and what a wave costs in each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from sapwood.cli.failures import reporting
from sapwood.cli.options import Debug, Json
from sapwood.cli.present import FittingTable, print_json, seconds, shortened, write
from sapwood.cli.status_tables import status_of
from sapwood.client.link_measurement import measure_links
from sapwood.client.wave_cost import LinkCost, WaveCost, WaveLoad, predict
from sapwood.contexts.launchers.specs import machines
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.core.errors import InputError
from sapwood.core.hostset import split_hosts
from sapwood.core.rankset import fold
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, Tree, by_host, flat
from sapwood.core.topology import plan as planned_tree
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.environment.units import describe_size, parse_duration, parse_size
from sapwood.session_server.making import machines_above
from sapwood.session_server.shape import agents_of_shape, read_topology, tree_of_shape

BY_HOST = "by-host"

HOST_LATENCY = 50e-6
"""Seconds that a message between machines is taken to be longer under way."""

HOST_PER_BYTE = 1e-9
"""Seconds for a byte between machines: a gigabyte a second."""

AS_GOOD = 1.02
"""Times that differ by less are the same: then the tree with fewer junctions is better."""

MAX_LINES = 200
"""Lines of an outline; ``--json`` has all of the tree."""

MAX_NAME = 18
"""Characters of a shape in the table."""

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
@reporting
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
    if on:
        given = name is not None or hosts > 1
        shown = tree_on(on, shape, agents, given=given)
    elif name is not None:
        shown = control_tree(name, given=bool(agents or shape or hosts > 1))
    else:
        shown = tree_of(shape, agents, hosts)
    if as_json:
        print_json(shown)
    else:
        write(*outline(shown))


@app.command()
@reporting
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
    costs = links(local_link, host_link, several=hosts > 1)
    load = load_of(nbytes, answer, grows=grows)
    found = compare(shape or [], agents, hosts, load, costs, cores)
    if as_json:
        print_json(found)
    else:
        write(*compared(found))


class ShownTree(msgspec.Struct, frozen=True):
    """A tree as it is shown.

    Attributes:
        agents: Number of agents.
        junctions: Number of junctions.
        depth: Links between the client and the deepest agent.
        parents: Parent of each place, by rank.
        names: The name of each place: its host, or the host of a node of a cluster.
    """

    agents: int
    junctions: int
    depth: int
    parents: tuple[int, ...]
    names: tuple[str, ...] = ()


class ShapeCost(msgspec.Struct, frozen=True):
    """What a wave costs in a tree of one shape."""

    shape: str
    recommended: bool
    cost: WaveCost


class ShapeComparison(msgspec.Struct, frozen=True):
    """What a wave costs in several shapes, and by which figures."""

    agents: int
    hosts: int
    cores: int
    load: WaveLoad
    local: LinkCost
    remote: LinkCost
    shapes: tuple[ShapeCost, ...]


def tree_of(shape: str, agents: int | None, hosts: int) -> ShownTree:
    """Return the tree of a shape, by default the one that is configured."""
    settings = load_configuration().settings.cluster
    chosen = shape or settings.shape
    count = agents or agents_of_shape(chosen) or settings.agents or usable_cores()
    if not chosen:
        tree = planned_tree(count, settings.fanout, spares=settings.spares) if hosts == 1 else None
        chosen = BY_HOST if tree is None else ""
        if tree is not None:
            return _shown(tree, ())
    tree, numbers, names = _placed(chosen, count, hosts)
    if not names and hosts > 1:
        names = tuple(f"host {number}" if number else "" for number in numbers)
    return _shown(tree, names)


def tree_on(spec: str, shape: str, agents: int | None, *, given: bool) -> ShownTree:
    """Return the tree that a cluster on some machines would have; nothing is started there.

    Args:
        spec: The machines, as for ``run --on``.
        shape: How they are to be below each other; by default as configured.
        agents: Agents altogether; by default as configured, or one for each core of each node.
        given: Whether other machines are named besides.

    Raises:
        InputError: Other machines are named besides, or it is not known how many agents there
            would be.
        ConfigurationError: The text names no machines, or there is no such shape.
        NodeLostError: The head that it names is not up.
    """
    if given:
        raise InputError("--on names the machines", hint="leave out the name and --hosts")
    settings = load_configuration().settings
    kind, rest = machines(spec)
    if kind == "local":
        return tree_of(shape, agents, 1)
    names, cores = _machines_of(kind, rest)
    count = agents or settings.cluster.agents
    if not (count or all(cores)):
        raise InputError(
            "the number of agents is unknown until the machines are allocated",
            hint="say --agents N",
        )
    several = len(names)
    shares = (
        [count // several + (number < count % several) for number in range(several)]
        if count
        else cores
    )
    above = machines_above(shares, names, shape or settings.nodes.topology)
    tree, numbers = by_host(shares, above)
    return _shown(tree, tuple(names[number - 1] if number else "" for number in numbers))


def _machines_of(kind: str, rest: str) -> tuple[list[str], list[int]]:
    """Return what machines are called, and how many cores each has; 0 where that is not known."""
    if kind == "head":
        nodes = [one.record for one in status_of(rest or "default").nodes]
        ready = [one for one in nodes if one.state == "ready"]
        if not ready:
            raise InputError("the head has no nodes that are ready", where=rest or "default")
        return [one.name for one in ready], [one.facts.cores if one.facts else 0 for one in ready]
    if kind == "ssh":
        names = list(SshLauncher(split_hosts(rest)).hosts)
    elif kind == "session" or not rest:
        raise InputError(
            f"the machines of {shown(kind)} are not known before it is used",
            where="--on",
            hint="name hosts, or how many: slurm:4",
        )
    else:
        names = [f"host {number}" for number in range(1, int(rest) + 1)]
    return names, [int(kind == "nodes")] * len(names)


def control_tree(name: str, *, given: bool) -> ShownTree:
    """Return the tree of the nodes of a cluster that is up, as its head has it.

    Raises:
        InputError: A shape was asked for besides.
        NodeLostError: The cluster is not up.
    """
    if given:
        raise InputError(
            "the shape of a running cluster is fixed",
            hint="leave out its name, or the other options",
        )
    nodes = [one for one in status_of(name).nodes if one.record.state != "removed"]
    names = ("", *(f"{one.record.name} ({one.record.state})" for one in nodes))
    return _shown(flat(len(nodes)), names)


def _shown(tree: Tree, names: tuple[str, ...]) -> ShownTree:
    deepest = max((len(list(tree.ancestors(rank))) for rank in tree.agent_ranks), default=0)
    return ShownTree(tree.agents, len(tree.junctions), deepest, tree.parents, names)


def outline(shown: ShownTree) -> list[RenderableType]:
    """Return a tree line by line: junctions with what is below them, agents folded."""
    tree = Tree(shown.agents, shown.parents)
    junctions = f"{shown.junctions} junction{'' if shown.junctions == 1 else 's'}"
    agents = f"{shown.agents} agent{'' if shown.agents == 1 else 's'}"
    lines = [f"{agents}, {junctions}, depth {shown.depth}", "client"]
    _outline(tree, ROOT, "", shown.names, lines)
    if len(lines) > MAX_LINES:
        left_out = len(lines) - MAX_LINES
        lines = [*lines[:MAX_LINES], f"({left_out} more lines; --json has all)"]
    return [Text(line) for line in lines]


def _outline(tree: Tree, rank: int, margin: str, names: Sequence[str], lines: list[str]) -> None:
    groups: list[tuple[str, list[int]]] = []
    for child in tree.children(rank):
        name = names[child] if names else ""
        before, run = groups[-1] if groups else ("", [])
        if run and name == before and tree.is_agent(child) and tree.is_agent(run[0]):
            run.append(child)
        else:
            groups.append((name, [child]))
    for index, (name, places) in enumerate(groups):
        last = index == len(groups) - 1
        is_agent = tree.is_agent(places[0])
        text = fold("agent" if is_agent else "junction", places)
        lines.append(f"{margin}{'└─' if last else '├─'} {text}" + (f" on {name}" if name else ""))
        if not is_agent:
            _outline(tree, places[0], margin + ("   " if last else "│  "), names, lines)


def links(local: str, remote: str, *, several: bool) -> tuple[LinkCost, LinkCost]:
    """Return the figures of links on one machine and between machines, measured unless given."""
    here = _link(local) if local else measure_links()
    if remote and not several:
        raise InputError("--host-link is for several machines", hint="give --hosts as well")
    if remote:
        return here, _link(remote)
    return here, LinkCost(
        here.latency + HOST_LATENCY, here.overhead, max(here.per_byte, HOST_PER_BYTE)
    )


def _link(text: str) -> LinkCost:
    words = text.split(",")
    try:
        latency, overhead, rate = words
        found = LinkCost(parse_duration(latency), parse_duration(overhead), 1 / parse_size(rate))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"{shown(text)} does not say how fast a link is: {error}",
            hint="write latency, overhead and bytes a second: 20us,5us,2GB",
        ) from None
    return found


def load_of(nbytes: str, answer: str, *, grows: bool) -> WaveLoad:
    """Return what goes through the tree in a wave."""
    try:
        down = parse_size(nbytes)
        return WaveLoad(down, parse_size(answer) if answer else down, grows)
    except ValueError as error:
        raise InputError(str(error), where="--bytes") from None


def compare(
    shapes: Sequence[str],
    agents: int,
    hosts: int,
    load: WaveLoad,
    links: tuple[LinkCost, LinkCost],
    cores: int = 0,
) -> ShapeComparison:
    """Return what a wave costs in trees of several shapes; the best one is recommended.

    Example:
        >>> link = LinkCost(20e-6, 5e-6, 1e-9)
        >>> found = compare(["flat", "kary:8"], 64, 1, WaveLoad(64, 64), (link, link), cores=64)
        >>> [one.shape for one in found.shapes if one.recommended]
        ['kary:8']
    """
    if hosts > agents:
        raise InputError(
            f"{hosts} machines for {agents} agents", hint="a machine has at least one agent"
        )
    count = cores or usable_cores()
    local, remote = links
    costs: dict[str, WaveCost] = {}
    for shape in dict.fromkeys(shapes or usual_shapes(agents, hosts)):
        tree, numbers, _ = _placed(shape, agents, hosts)
        cost = predict(tree, load, local, remote, numbers, count)
        inner = tuple(one for one in cost.places if one.messages_down)  # all agents are alike
        costs[shape] = msgspec.structs.replace(cost, places=inner)
    least = min(cost.seconds for cost in costs.values())
    good = [shape for shape, cost in costs.items() if cost.seconds <= AS_GOOD * least]
    best = min(good, key=lambda shape: costs[shape].junctions)
    found = tuple(ShapeCost(shape, shape == best, cost) for shape, cost in costs.items())
    return ShapeComparison(agents, hosts, count, load, local, remote, found)


def usual_shapes(agents: int, hosts: int) -> list[str]:
    """Return the shapes that are worth a look.

    Example:
        >>> usual_shapes(20, 4)
        ['flat', 'by-host', 'kary:2', 'kary:4', 'kary:8', 'kary:16', 'knomial:2', 'knomial:4']
    """
    widths = [width for width in (2, 4, 8, 16, 32, 64) if width < agents]
    knomials = [f"knomial:{k}" for k in (2, 4) if k < agents]
    several = [BY_HOST] if 1 < hosts < agents else []
    return ["flat", *several, *(f"kary:{width}" for width in widths), *knomials]


def _placed(shape: str, agents: int, hosts: int) -> tuple[Tree, tuple[int, ...], tuple[str, ...]]:
    """Return a tree, the number of each place's host, and what these are called.

    The client is on a separate machine where there are several; a junction is where the
    first of its agents is.
    """
    if shape == BY_HOST:
        shares = [agents // hosts + (number < agents % hosts) for number in range(hosts)]
        return *by_host(shares), ()
    if shape.startswith("file:"):
        planned = read_topology(shape.removeprefix("file:"))
        if planned.hosts and planned.tree.agents == agents:
            known = {name: number for number, name in enumerate(dict.fromkeys(planned.hosts))}
            return planned.tree, tuple(known[name] for name in planned.hosts), planned.hosts
    tree = tree_of_shape(shape, agents)
    if hosts == 1:
        return tree, (0,) * tree.size, ()
    numbers = [0] * tree.size
    for rank in range(1, tree.size):
        numbers[rank] = 1 + (tree.leaves(rank)[0] - 1) * hosts // agents
    return tree, tuple(numbers), ()


def compared(found: ShapeComparison) -> list[RenderableType]:
    """Return the table of shapes, and by which figures it was made."""
    columns = ["", "shape", "depth>", "junctions>", "msgs>", "busiest>", "its bytes>", "hosts>"]
    rows = [_row(one, found.hosts) for one in found.shapes]
    machines = f" on {found.hosts} machines" if found.hosts > 1 else ""
    grows = "gathered" if found.load.grows else "reduced"
    down, up = describe_size(found.load.down), describe_size(found.load.up)
    lines = [
        f"one wave: {down} to {found.agents} agents{machines}, {up} from each, {grows}",
        f"links on a machine: {_figures(found.local)}",
    ]
    if found.hosts > 1:
        lines.append(f"links between machines: {_figures(found.remote)}")
    cores = f"{found.cores} core{'' if found.cores == 1 else 's'} a machine"
    lines.append(f"{cores}; busiest: messages and bytes of the place with the most")
    table = FittingTable(
        "", [*columns, "time>"], shortened(rows), ("hosts", "depth") if found.hosts == 1 else ()
    )
    return [table, *map(Text, lines)]


def _row(one: ShapeCost, hosts: int) -> tuple[str, ...]:
    cost = one.cost
    return (
        "*" if one.recommended else "",
        one.shape if len(one.shape) <= MAX_NAME else f"…{one.shape[1 - MAX_NAME :]}",
        str(cost.depth),
        str(cost.junctions),
        str(cost.messages),
        str(cost.busiest),
        describe_size(cost.busiest_bytes),
        describe_size(cost.between_hosts) if hosts > 1 else "-",
        seconds(cost.seconds),
    )


def _figures(link: LinkCost) -> str:
    rate = f"{describe_size(1 / link.per_byte)}/s" if link.per_byte else "no time for bytes"
    return f"latency {seconds(link.latency)}, overhead {seconds(link.overhead)}, {rate}"
