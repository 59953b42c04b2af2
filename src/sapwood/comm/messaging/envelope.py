"""The envelope of a tagged message: sources, destinations and tags, and what a receive takes.

It imports nothing of the protocol: programs and their runners need no more than this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sapwood.core.errors import ConfigurationError
from sapwood.core.rankset import fold
from sapwood.core.shown import shown
from sapwood.core.topology import ROOT

ANY = -1
"""Any source, or any tag."""

MAX_TAG = 2**63 - 1
"""Largest tag; the smallest is 0."""


def check_tag(tag: Any) -> int:
    """Return a tag if it is one.

    Raises:
        ConfigurationError: It is not an integer from 0.
    """
    if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag <= MAX_TAG:
        raise ConfigurationError(
            f"{shown(tag)} is not a tag", hint="use an integer from 0 to 2**63 - 1"
        )
    return tag


def check_places(ranks: Iterable[Any], agents: Sequence[int]) -> None:
    """Raise ConfigurationError if one of the ranks is neither the client nor an agent."""
    for rank in ranks:
        if not isinstance(rank, int) or (rank != ROOT and rank not in agents):
            raise ConfigurationError(
                f"agent {shown(rank)} does not exist", hint=f"the agents are {ranks_text(agents)}"
            )


def check_receive(source: Any, tag: Any, agents: Sequence[int]) -> None:
    """Check what a receive waits for: a place or :data:`ANY`, and a tag or :data:`ANY`.

    Raises:
        ConfigurationError: There is no such place or tag.
    """
    if not isinstance(source, int) or source != ANY:
        check_places([source], agents)
    if not isinstance(tag, int) or tag != ANY:
        check_tag(tag)


def ranks_text(agents: Sequence[int]) -> str:
    """Return the ranks of agents as people read them.

    Example:
        >>> ranks_text([1, 2, 3]), ranks_text([1, 3, 4])
        ('1 to 3', '1,3-4')
    """
    last = len(agents)
    if agents and agents[-1] == last:
        return f"1 to {last}"
    return fold("", agents).strip(" []")


def to_ranks(destination: int | Iterable[int]) -> tuple[int, ...]:
    """Return where a message goes: one place or several, each once.

    Raises:
        ConfigurationError: The list is empty, or has a value that is not a rank.
    """
    ranks = ranks_of(destination)
    if not ranks:
        raise ConfigurationError("the message has no destination", hint="give at least one rank")
    return ranks


def ranks_of(given: Any) -> tuple[int, ...]:
    """Return a rank, or several, as a tuple, each once.

    Raises:
        ConfigurationError: It is something else.

    Example:
        >>> ranks_of(3), ranks_of([2, 1, 2])
        ((3,), (2, 1))
    """
    try:
        ranks = (given,) if isinstance(given, int) else tuple(dict.fromkeys(given))
    except TypeError:
        ranks = (None,)
    if not all(isinstance(rank, int) for rank in ranks):
        raise ConfigurationError(
            f"{shown(given)} is not a rank", hint="give a rank, or a list of ranks"
        )
    return ranks
