"""Which machine is below which other one: the shape of a tree between machines.

A shape is a text: ``flat``, ``kary:K``, ``knomial:K``, or ``file:PATH`` for a file in which the
user says it (:func:`read_places`). Machines are counted from 1, and 0 is the machine of the
root. A shape is given as the machine above each, in order. In all shapes that are computed the
machines below one follow it directly, so a subtree has adjacent numbers.
"""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Sequence
from typing import Final

from sapwood.core.errors import ConfigurationError
from sapwood.core.hostset import expand_hosts
from sapwood.core.shown import shown

KINDS = ("flat", "kary", "knomial", "file")
"""How the text of a shape begins."""

ROOT_NAME: Final = "root"
"""What a file calls the place of the root."""

OLD_ROOT: Final = "head"
"""The former name of the root's machine; it works for one release."""

_WHERE = "nodes.topology"
_HINT = "write flat, kary:16, knomial:2 or file:PATH"


def parse_shape(text: str) -> tuple[str, str]:
    """Return kind and argument of a shape.

    Raises:
        ConfigurationError: It is none.

    Example:
        >>> parse_shape("kary:16"), parse_shape("flat")
        (('kary', '16'), ('flat', ''))
    """
    kind, _, rest = text.partition(":")
    number = kind in {"kary", "knomial"} and rest.isascii() and rest.isdecimal() and int(rest) > 1
    if not (text == "flat" or number or (kind == "file" and rest)):
        raise ConfigurationError(
            f"{shown(text)} is not a shape of a tree", where=_WHERE, hint=_HINT
        )
    return kind, rest


def shaped(text: str, count: int) -> list[int]:
    """Return the machine above each, for a shape that names no file.

    Args:
        text: The shape.
        count: Number of machines.

    Raises:
        ConfigurationError: It is no such shape.

    Example:
        >>> shaped("kary:2", 6), shaped("knomial:2", 7), shaped("flat", 3)
        ([0, 1, 1, 0, 4, 4], [0, 0, 2, 0, 4, 4, 6], [0, 0, 0])
    """
    kind, argument = parse_shape(text)
    above = [0] * count
    if kind == "kary":
        _divide(above, 0, range(1, count + 1), int(argument))
    elif kind == "knomial":
        _grow(above, range(count + 1), int(argument))
    elif kind == "file":
        raise ConfigurationError(f"{shown(text)} is to be read first", where=_WHERE)
    return above


def _divide(above: list[int], top: int, machines: range, fanout: int) -> None:
    """Put machines below another one, in as many groups of equal size as it may have children."""
    groups = min(fanout, len(machines))
    for group in range(groups):
        first, after = (len(machines) * end // groups for end in (group, group + 1))
        mine = machines[first:after]
        above[mine[0] - 1] = top
        _divide(above, mine[0], mine[1:], fanout)


def _grow(above: list[int], machines: range, radix: int) -> None:
    """Make the k-nomial tree over machines, the first of which is its root."""
    step = 1
    while step < len(machines):
        for start in range(step, min(step * radix, len(machines)), step):
            mine = machines[start : start + step]
            above[mine[0] - 1] = machines[0]
            _grow(above, mine, radix)
        step *= radix


def read_places(text: str, where: str) -> dict[str, list[str]]:
    r"""Return what a file says is below each place.

    All files of ``file:PATH`` have this grammar: TOML, each key is a place, its value the list of
    the places below it.

    Args:
        text: What the file says.
        where: The file, for messages.

    Raises:
        ConfigurationError: It is malformed.

    Example:
        >>> read_places('root = ["n1"]\nn1 = ["n[2-3]"]', "tree.toml")
        {'root': ['n1'], 'n1': ['n[2-3]']}
    """
    try:
        found = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigurationError(
            f"the file is not TOML: {error}", where=where, hint=f'write {ROOT_NAME} = ["n1", "n2"]'
        ) from error
    for place, below in found.items():
        if not isinstance(below, list) or not all(isinstance(one, str) for one in below):
            raise ConfigurationError(
                f"the value of {shown(place)} is not a list of texts",
                where=where,
                hint=f'write {ROOT_NAME} = ["n2", "n[3-4]"]',
            )
    return found


def read_host_tree(text: str, names: Sequence[str], where: str) -> list[int]:
    r"""Return the machine above each, as a file says it.

    The file is TOML: each key is a machine, its value the machines below it, also folded ones.
    ``root`` is the machine of the root. Machines that the file does not put anywhere are below it.

    Args:
        text: What the file says.
        names: The machines as the user calls them, in order.
        where: The file, for messages.

    Raises:
        ConfigurationError: It is malformed, names no machine of these, or goes round in a circle.

    Example:
        >>> read_host_tree('root = ["n1"]\nn1 = ["n[2-3]"]', ["n1", "n2", "n3"], "tree.toml")
        [0, 1, 1]
    """
    found = read_places(text, where)
    if OLD_ROOT in found and ROOT_NAME not in found and OLD_ROOT not in names:
        warnings.warn(
            f"{where}: the root is called {ROOT_NAME} now, not {OLD_ROOT}",
            DeprecationWarning,
            stacklevel=2,
        )
        found[ROOT_NAME] = found.pop(OLD_ROOT)
    numbers = {ROOT_NAME: 0} | {name: number for number, name in enumerate(names, start=1)}
    above: dict[int, int] = {}
    for parent, below in found.items():
        for child in [name for one in below for name in expand_hosts(one)]:
            for name in (parent, child):
                if name not in numbers:
                    raise ConfigurationError(
                        f"{shown(name)} is not a machine of the cluster", where=where
                    )
            if not numbers[child] or numbers[child] in above:
                raise ConfigurationError(f"{child} is below two machines", where=where)
            above[numbers[child]] = numbers[parent]
    for number in above:
        at, seen = number, set[int]()
        while at:
            if at in seen:
                raise ConfigurationError(f"{names[at - 1]} is below itself", where=where)
            seen.add(at)
            at = above.get(at, 0)
    return [above.get(number, 0) for number in range(1, len(names) + 1)]
