"""The envelope of a tagged message: sources, destinations and tags, and what a receive takes.

It imports nothing of the protocol: programs and their runners need no more than this.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sapwood.core.errors import ConfigurationError

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
        raise ConfigurationError(f"{tag!r} is no tag", hint="use an integer from 0 to 2**63 - 1")
    return tag


def check_places(ranks: Iterable[Any], agents: int) -> None:
    """Raise ConfigurationError if one of the ranks is neither the front end nor an agent."""
    for rank in ranks:
        if rank not in range(agents + 1):
            raise ConfigurationError(
                f"there is no agent {rank!r}", hint=f"the agents are 1 to {agents}"
            )


def to_ranks(destination: int | Iterable[int]) -> tuple[int, ...]:
    """Return where a message goes: one place or several, each once.

    Raises:
        ConfigurationError: Nowhere, or something that is no rank.
    """
    ranks = (destination,) if isinstance(destination, int) else tuple(dict.fromkeys(destination))
    if not ranks or not all(isinstance(rank, int) for rank in ranks):
        raise ConfigurationError(
            f"a message cannot be sent to {destination!r}", hint="use a rank, or a list of ranks"
        )
    return ranks
