"""Trees that a file describes, in the grammar of :mod:`sapwood.core.host_tree`.

::

    root = ["left", "right"]
    left = ["1-4"]  # agents
    right = ["5-8"]

``root`` is the client; every other name is a junction, and gets its rank in the order of the lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sapwood.core.errors import ConfigurationError
from sapwood.core.host_tree import ROOT_NAME, read_places
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT, Tree, with_spares

MAX_AGENTS = 1_000_000
"""Agents that one file may name."""

_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")

Below = Mapping[str, Sequence[int | str]]
"""The agents and junctions below each place."""


def parse_topology(text: str, where: str = "topology", *, spares: bool = False) -> Tree:
    r"""Return the tree that a text describes.

    Args:
        text: The text, TOML.
        where: What errors call it, for example its path.
        spares: Whether every place with junctions below it gets a spare one.

    Raises:
        ConfigurationError: It is malformed, or not a tree of agents from left to right.

    Example:
        >>> parse_topology('root = ["left", "3"]\nleft = ["1-2"]').parents
        (-1, 4, 4, 0, 0)
    """
    places = read_places(text, where)
    if ROOT_NAME not in places:
        raise ConfigurationError(
            f"no line begins with {ROOT_NAME}", where=where, hint=f'write {ROOT_NAME} = ["1-4"]'
        )
    below = {name: _children(words, f"{where}, {name}") for name, words in places.items()}
    count = _check_agents(below, where)
    names = [name for name in below if name != ROOT_NAME]
    ranks = {ROOT_NAME: ROOT} | {name: count + 1 + index for index, name in enumerate(names)}
    parents = [-1] + [ROOT] * (count + len(names))
    _check_junctions(below, where)
    for name, children in below.items():
        for child in children:
            parents[ranks[child] if isinstance(child, str) else child] = ranks[name]
    tree = Tree(count, tuple(parents))
    _check_order(tree, below, ranks, where)
    return with_spares(tree) if spares else tree


def _children(words: Sequence[str], where: str) -> list[int | str]:
    found: list[int | str] = []
    for word in words:
        numbers = _RANGE.fullmatch(word)
        if numbers is None:
            found.append(word)
            continue
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if not 0 < first <= last <= MAX_AGENTS:
            raise ConfigurationError(
                f"{shown(word)} is not a range of agents",
                where=where,
                hint=f"agents are numbered from 1 to {MAX_AGENTS}",
            )
        found += range(first, last + 1)
    if not found:
        raise ConfigurationError(
            "a place without children", where=where, hint="leave out the line, or name some"
        )
    return found


def _check_agents(below: Below, where: str) -> int:
    """Return how many agents there are: each has one place, and none is left out."""
    seen: set[int] = set()
    for name, children in below.items():
        for child in children:
            if child in seen:
                raise ConfigurationError(
                    f"agent {child} is below two places", where=f"{where}, {name}"
                )
            if isinstance(child, int):
                seen.add(child)
    if not seen:
        raise ConfigurationError(
            "the file names no agent", where=where, hint='name agents by numbers: ["1-4"]'
        )
    missing = next((rank for rank in range(1, max(seen)) if rank not in seen), 0)
    if missing:
        raise ConfigurationError(
            f"the file has agent {max(seen)}, and not agent {missing}",
            where=where,
            hint="number the agents from 1, without a gap",
        )
    return len(seen)


def _check_junctions(below: Below, where: str) -> None:
    """Check that each junction is below one place, and the root above all of them."""
    reached = [ROOT_NAME]
    for name in reached:
        for child in below[name]:
            if isinstance(child, int):
                continue
            at = f"{where}, {name}"
            if child == ROOT_NAME:
                raise ConfigurationError("the root is below another vertex", where=at)
            if child not in below:
                raise ConfigurationError(
                    f"junction {shown(child)} has no line",
                    where=at,
                    hint=f'write {child} = ["1-4"]',
                )
            if child in reached:
                raise ConfigurationError(f"junction {shown(child)} is below two places", where=at)
            reached.append(child)
    for name in below:
        if name not in reached:
            raise ConfigurationError(
                f"junction {shown(name)} is not below the root",
                where=f"{where}, {name}",
                hint="name it in the list of the place above it",
            )


def _check_order(tree: Tree, below: Below, ranks: Mapping[str, int], where: str) -> None:
    """Check that results come in the order of the agents."""
    for name, children in below.items():
        leaves = tree.leaves(ranks[name])
        found = [
            leaf
            for child in children
            for leaf in tree.leaves(ranks[child] if isinstance(child, str) else child)
        ]
        if found != list(range(leaves[0], leaves[0] + len(leaves))):
            raise ConfigurationError(
                f"the agents below {shown(name)} are not in the order of their numbers",
                where=f"{where}, {name}",
                hint="number the agents from left to right: results come in that order",
            )
