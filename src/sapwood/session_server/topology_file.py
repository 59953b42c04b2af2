"""Trees written down: one line for each place that has children.

::

    # place [@ hosts]: its children, from left to right
    front: left right
    left  @ n1:     1-4
    right @ n[2-3]: 5-8

``front`` is the client; every other name is a junction, and gets its rank in the order of the
lines. Numbers are agents. The agents of a line are distributed over its hosts in runs as
even as possible; a junction is on the first of them. Either no line names hosts or each one does
that has agents or is a junction's. What follows ``#`` is a remark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import expand_hosts, fold_hosts
from sapwood.core.rankset import to_ranges
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, Tree, with_spares

FRONT = "front"
"""Name of the client."""

MAX_AGENTS = 1_000_000
"""Agents that one file may name."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class PlannedTopology(msgspec.Struct, frozen=True):
    """A tree, and where its places are.

    Attributes:
        tree: The tree.
        hosts: Host of each place, by rank; empty for the client. No entries if
            the file names no hosts.
    """

    tree: Tree
    hosts: tuple[str, ...] = ()


class _Line(msgspec.Struct):
    number: int
    name: str
    children: list[int | str]
    hosts: list[str]


def parse_topology(text: str, where: str = "topology", *, spares: bool = False) -> PlannedTopology:
    r"""Return the tree that a text describes.

    Args:
        text: The lines.
        where: What errors call it, for example its path.
        spares: Whether every place with junctions below it gets a spare one.

    Raises:
        ConfigurationError: A line says nothing that can be, and which one.

    Example:
        >>> parse_topology("front: left 3\nleft: 1-2").tree.parents
        (-1, 4, 4, 0, 0)
    """
    lines = _lines(text, where)
    if FRONT not in lines:
        raise _wrong(where, 1, f"no line begins with {shown(FRONT)}", "say what the client has")
    count = _check_agents(lines, where)
    names = [name for name in lines if name != FRONT]
    ranks = {FRONT: ROOT} | {name: count + 1 + index for index, name in enumerate(names)}
    parents = [-1] + [ROOT] * (count + len(names))
    placed: dict[str, int] = {}
    for line in lines.values():
        for child in line.children:
            if isinstance(child, str):
                _check_junction(child, line, lines, placed, where)
                placed[child] = line.number
                child = ranks[child]  # noqa: PLW2901 - a name stands for its rank
            parents[child] = ranks[line.name]
    _check_reached(lines, placed, where)
    tree = Tree(count, tuple(parents))
    _check_order(tree, lines, ranks, where)
    hosts = _hosts(lines, ranks, tree.size, where)
    planned = with_spares(tree) if spares else tree
    beside = tuple(hosts[planned.parents[spare]] for spare in planned.spares) if hosts else ()
    return PlannedTopology(planned, hosts + beside)


def write_topology(tree: Tree, hosts: Sequence[str] = ()) -> str:
    """Return the lines that describe a tree.

    Args:
        tree: A tree as it was planned.
        hosts: Host of each place, by rank; none to name no hosts.

    Raises:
        ConfigurationError: Places were added or removed, a tree has spares, or the agents of a
            place are on its hosts in another way than a file can say.

    Example:
        >>> print(write_topology(Tree(3, (-1, 4, 4, 0, 0))), end="")
        front: j4 3
        j4: 1-2
    """
    if tree.epoch or tree.spares:
        raise ConfigurationError(
            "this tree cannot be written down",
            where="epoch" if tree.epoch else "spares",
            hint="only a tree as it was planned, without spares",
        )
    text = ""
    for rank in (ROOT, *tree.junctions):
        children = tree.children(rank)
        mine = [child for child in children if tree.is_agent(child)]
        at = ""
        if hosts and (mine or rank != ROOT):
            at = " @ " + fold_hosts([hosts[one] for one in mine] or [hosts[rank]])
        name = FRONT if rank == ROOT else f"j{rank}"
        text += f"{name}{at}: {' '.join(_folded(tree, children))}\n"
    if hosts and parse_topology(text).hosts != tuple(hosts):
        raise ConfigurationError(
            "these hosts cannot be written down",
            hint="agents of a place are on its hosts in runs as even as possible, in their order",
        )
    return text


def _folded(tree: Tree, children: Sequence[int]) -> list[str]:
    words: list[str] = []
    run: list[int] = []
    for child in [*children, -1]:
        if child > 0 and tree.is_agent(child):
            run.append(child)
            continue
        for first, stop in to_ranges(run):
            words.append(str(first) if stop == first + 1 else f"{first}-{stop - 1}")
        run = []
        if child > 0:
            words.append(f"j{child}")
    return words


# --- reading --------------------------------------------------------------------------------------


def _lines(text: str, where: str) -> dict[str, _Line]:
    found: dict[str, _Line] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        content = raw.partition("#")[0].strip()
        if not content:
            continue
        head, colon, rest = content.partition(":")
        name, at, hosts = (part.strip() for part in head.partition("@"))
        if not colon or not _NAME.fullmatch(name) or bool(at) != bool(hosts):
            raise _wrong(
                where,
                number,
                f"{shown(content)} is not a place with its children",
                "left @ n1: 1-4",
            )
        if name in found:
            raise _wrong(
                where,
                number,
                f"{shown(name)} has line {found[name].number} already",
                "make it one line",
            )
        found[name] = _Line(number, name, _children(rest, where, number), [])
        if hosts:
            try:
                found[name].hosts = expand_hosts(hosts)
            except ConfigurationError as error:
                raise _wrong(where, number, error.what, error.hint) from None
    return found


def _children(text: str, where: str, number: int) -> list[int | str]:
    found: list[int | str] = []
    for word in text.replace(",", " ").split():
        numbers = _RANGE.fullmatch(word)
        if numbers is not None:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            if not 0 < first <= last <= MAX_AGENTS:
                raise _wrong(
                    where, number, f"{shown(word)} names no agents", f"they are 1 to {MAX_AGENTS}"
                )
            found += range(first, last + 1)
        elif _NAME.fullmatch(word):
            found.append(word)
        else:
            raise _wrong(
                where, number, f"{shown(word)} is neither an agent nor a junction", "write 1-4 left"
            )
    if not found:
        raise _wrong(where, number, "a place without children", "leave out the line, or name some")
    return found


def _check_agents(lines: dict[str, _Line], where: str) -> int:
    """Return how many agents there are: each has one place, and none is left out."""
    seen: dict[int, int] = {}
    for line in lines.values():
        for child in line.children:
            if isinstance(child, int):
                if child in seen:
                    raise _wrong(
                        where,
                        line.number,
                        f"agent {child} is in line {seen[child]} already",
                        "an agent is below one place",
                    )
                seen[child] = line.number
    if not seen:
        raise _wrong(where, lines[FRONT].number, "no agent is given", "name agents by numbers: 1-4")
    for rank in range(1, max(seen) + 1):
        if rank not in seen:
            raise _wrong(
                where,
                seen[max(seen)],
                f"agent {max(seen)} is there, and agent {rank} is not",
                "number the agents from 1, without a gap",
            )
    return len(seen)


def _check_junction(
    child: str, line: _Line, lines: dict[str, _Line], placed: dict[str, int], where: str
) -> None:
    if child == FRONT:
        raise _wrong(where, line.number, "the client has no parent", "leave it out")
    if child not in lines:
        raise _wrong(
            where,
            line.number,
            f"junction {shown(child)} has no line",
            f"write {child}: 1-4",
        )
    if child in placed:
        raise _wrong(
            where,
            line.number,
            f"junction {shown(child)} is in line {placed[child]} already",
            "a junction is below one place",
        )


def _check_reached(lines: dict[str, _Line], placed: dict[str, int], where: str) -> None:
    reached = [FRONT]
    for name in reached:
        reached += [child for child in lines[name].children if isinstance(child, str)]
    for name, line in lines.items():
        if name not in reached:
            what = "is above itself" if name in placed else "has no parent"
            raise _wrong(
                where, line.number, f"junction {shown(name)} {what}", "put it below the client"
            )


def _check_order(tree: Tree, lines: dict[str, _Line], ranks: dict[str, int], where: str) -> None:
    for name, line in lines.items():
        leaves = tree.leaves(ranks[name])
        below = [leaf for child in line.children for leaf in _leaves_of(tree, child, ranks)]
        if below != list(range(leaves[0], leaves[0] + len(leaves))):
            raise _wrong(
                where,
                line.number,
                f"the agents below {shown(name)} are not one run in the order of their numbers",
                "number the agents from left to right: results come in that order",
            )


def _leaves_of(tree: Tree, child: int | str, ranks: dict[str, int]) -> tuple[int, ...]:
    return tree.leaves(ranks[child] if isinstance(child, str) else child)


def _hosts(
    lines: dict[str, _Line], ranks: dict[str, int], size: int, where: str
) -> tuple[str, ...]:
    named = [line for line in lines.values() if line.hosts]
    if not named:
        return ()
    hosts = [""] * size
    for line in lines.values():
        mine = [child for child in line.children if isinstance(child, int)]
        if not line.hosts:
            if mine or line.name != FRONT:
                raise _wrong(
                    where,
                    line.number,
                    f"{shown(line.name)} has no hosts, and line {named[0].number} has",
                    "name hosts in each line, or in none",
                )
            continue
        if line.name != FRONT:
            hosts[ranks[line.name]] = line.hosts[0]
        count = len(line.hosts)
        if 0 < len(mine) < count:
            raise _wrong(
                where, line.number, f"{count} hosts are too many for {len(mine)} agents", ""
            )
        for index, agent in enumerate(mine):
            hosts[agent] = line.hosts[index * count // len(mine)]
    return tuple(hosts)


def _wrong(where: str, line: int, what: str, hint: str) -> ConfigurationError:
    return ConfigurationError(what, where=f"{where}, line {line}", hint=hint)
