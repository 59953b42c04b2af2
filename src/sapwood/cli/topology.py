"""``sapwood topology``: shapes of trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import RenderableType
from rich.text import Text

from sapwood.cli.failures import reporting
from sapwood.cli.old_names import warn_of
from sapwood.cli.options import Debug, Json
from sapwood.cli.present import print_json, write
from sapwood.cli.status_tables import status_of
from sapwood.contexts.launchers.specs import machines
from sapwood.contexts.launchers.ssh import SshLauncher
from sapwood.core.errors import InputError
from sapwood.core.hints import command_line
from sapwood.core.hostset import split_hosts
from sapwood.core.rankset import fold
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, Tree, by_host, flat
from sapwood.core.topology import plan as planned_tree
from sapwood.environment.configuration import load_configuration
from sapwood.environment.cores import usable_cores
from sapwood.session_server.making import machines_above
from sapwood.session_server.shape import agents_of_shape, tree_of_shape

BY_HOST = "by-host"


MAX_LINES = 200
"""Lines of an outline; ``--json`` has all of the tree."""


app = typer.Typer(help="Show shapes of trees.", no_args_is_help=True)

_SHAPES = "flat, kary:16, knomial:2, by-host or file:PATH"


@app.callback()
def _noun() -> None:
    """Keep the noun: without this a single command would take its place."""


@app.command()
@reporting
def show(
    name: Annotated[str | None, typer.Argument(hidden=True)] = None,
    *,
    agents: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Agents of the tree.")
    ] = None,
    hosts: Annotated[
        int, typer.Option(metavar="N", min=1, help="Machines of the agents, evenly.")
    ] = 1,
    shape: Annotated[
        str,
        typer.Option(
            metavar="SHAPE",
            help=f"Shape of the tree: {_SHAPES}. With --on, of the machines: flat, kary:16, "
            "knomial:2 or file:PATH.",
        ),
    ] = "",
    on: Annotated[
        str,
        typer.Option(
            metavar="SPEC", help="Machines, as for `sapwood run`: show the tree over them."
        ),
    ] = "",
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show the tree that a cluster would have; nothing is started.

    Without --on, it is a cluster on this machine, as configured.

    Example: `sapwood topology show --on ssh:n[1-4] --agents 16 --shape kary:2`
    """
    if name is not None:
        instead = command_line("node", "list", "--cluster", name)
        warn_of(command_line("topology", "show", name), instead)
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


@app.command(
    hidden=True, context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@reporting
def plan() -> None:
    """Say where the planner is now."""
    raise InputError(
        "the planner of shapes is a script of Sapwood's repository now",
        hint="python benchmarks/plan_topology.py --agents 64",
    )


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
    tree, numbers = _placed(chosen, count, hosts)
    several = hosts > 1
    names = tuple(f"host {number}" if number else "" for number in numbers) if several else ()
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
            hint="give --agents N",
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


def _placed(shape: str, agents: int, hosts: int) -> tuple[Tree, tuple[int, ...]]:
    """Return a tree and the number of each place's host.

    The client is on a separate machine where there are several; a junction is where the
    first of its agents is.
    """
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
