"""What a wave would cost in trees of several shapes, and the shape that a model recommends.

``python benchmarks/plan_topology.py --agents 64 --bytes 64KiB`` measures links of this machine in a
second or two, unless ``--local-link`` gives their figures. Links between machines are taken
to be 50 us later and to carry 1 GB a second. Times are those of messages alone, by the model LogGP
(``wave_cost.py``); the work of agents comes on top. ``topology.py`` compares them with real waves.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec
from rich.console import RenderableType
from rich.text import Text

from link_measurement import measure_links
from sapwood.cli.present import FittingTable, print_json, seconds, shortened, write
from sapwood.core.errors import InputError, SapwoodError
from sapwood.core.shown import shown
from sapwood.core.topology import Tree, by_host
from sapwood.environment.cores import usable_cores
from sapwood.environment.units import describe_size, parse_duration, parse_size
from sapwood.session_server.shape import tree_of_shape
from wave_cost import LinkCost, WaveCost, WaveLoad, predict

BY_HOST = "by-host"

HOST_LATENCY = 50e-6
"""Seconds that a message between machines is taken to be longer under way."""

HOST_PER_BYTE = 1e-9
"""Seconds for a byte between machines: a gigabyte a second."""

AS_GOOD = 1.02
"""Times that differ by less are the same: then the tree with fewer junctions is better."""

MAX_NAME = 18
"""Characters of a shape in the table."""


def main(words: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    given = _options().parse_args(words)
    try:
        costs = links(given.local_link, given.host_link, several=given.hosts > 1)
        load = load_of(given.bytes, given.answer, grows=given.grows)
        found = compare(given.shape, given.agents, given.hosts, load, costs, given.cores)
    except SapwoodError as error:
        print(f"{error.what} ({error.hint})", file=sys.stderr)
        return error.exit_code
    if given.json:
        print_json(found)
    else:
        write(*compared(found))
    return 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="The cost of a wave in trees of several shapes.")
    parser.add_argument("--agents", type=int, default=64, help="agents of the tree")
    parser.add_argument("--hosts", type=int, default=1, help="machines of the agents, evenly")
    parser.add_argument("--shape", action="append", default=[], help="only this; may be repeated")
    parser.add_argument("--bytes", default="1KiB", help="size of what is broadcast")
    parser.add_argument("--answer", default="", help="size of an agent's answer; default: the same")
    parser.add_argument("--grows", action="store_true", help="answers are gathered, not reduced")
    parser.add_argument("--cores", type=int, default=0, help="cores of each machine")
    link = "LATENCY,OVERHEAD,RATE of links, such as 20us,5us,2GB (a second)"
    parser.add_argument("--local-link", default="", help=f"{link} on a machine")
    parser.add_argument("--host-link", default="", help=f"{link} between machines")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


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
        tree, numbers = _placed(shape, agents, hosts)
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


def _placed(shape: str, agents: int, hosts: int) -> tuple[Tree, tuple[int, ...]]:
    """Return a tree, and the host of each place; a junction is on the host of its first agent."""
    if shape == BY_HOST:
        shares = [agents // hosts + (number < agents % hosts) for number in range(hosts)]
        return by_host(shares)
    tree = tree_of_shape(shape, agents)
    if hosts == 1:
        return tree, (0,) * tree.size
    numbers = [0] * tree.size
    for rank in range(1, tree.size):
        numbers[rank] = 1 + (tree.leaves(rank)[0] - 1) * hosts // agents
    return tree, tuple(numbers)


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


if __name__ == "__main__":
    sys.exit(main())
