"""Shapes of trees by their names, as settings and commands have them."""

from __future__ import annotations

from sapwood.core.arguments import text
from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest
from sapwood.core.topology import Tree, flat, kary, knomial
from sapwood.environment.folders import expand_user
from sapwood.session_server.topology_file import parse_topology

SHAPES = ("flat", "kary", "knomial", "file")

_HINT = "write flat, kary:K, knomial:K or file:PATH"

MAX_DIGITS = 9
"""Digits of a number in a shape, at most."""


def tree_of_shape(shape: str, agents: int, *, spares: bool = False) -> Tree:
    """Return the tree of a shape over some agents of one machine.

    Args:
        shape: ``flat``, ``kary:K``, ``knomial:K`` or ``file:PATH``.
        agents: How many; a file must have as many.
        spares: Whether there are spare junctions.

    Raises:
        ConfigurationError: There is no such shape, or a file is wrong or has other agents.

    Example:
        >>> tree_of_shape("knomial:2", 4).children(0)
        [1, 2, 5]
    """
    kind, colon, rest = text(shape, "shape").partition(":")
    if kind == "flat" and not colon:
        return flat(agents)
    if kind in {"kary", "knomial"} and rest.isdecimal() and len(rest) < MAX_DIGITS:
        return (kary if kind == "kary" else knomial)(agents, int(rest), spares=spares)
    if kind == "file" and rest:
        tree = read_topology(rest, spares=spares)
        if tree.agents != agents:
            raise ConfigurationError(
                f"the file has {tree.agents} agents, and there are to be {agents}",
                where=rest,
                hint="change the number of agents, or the file",
            )
        return tree
    hint = suggest(kind, SHAPES) if kind not in SHAPES else ""
    raise ConfigurationError(f"{shown(shape)} is not a shape of a tree", hint=hint or _HINT)


def agents_of_shape(shape: str) -> int:
    """Return how many agents a shape has, from its file; 0 for any number.

    Raises:
        ConfigurationError: The file cannot be read, or is wrong.
    """
    kind, _, path = shape.partition(":")
    return read_topology(path).agents if kind == "file" and path else 0


def read_topology(path: str, *, spares: bool = False) -> Tree:
    """Return the tree of a file.

    Raises:
        ConfigurationError: It cannot be read, or is wrong.
    """
    try:
        text = expand_user(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"this file cannot be read: {error}", where=path, hint="name a file with a tree"
        ) from error
    return parse_topology(text, path, spares=spares)
