"""How user code in a runner enters a group: by runner RPC to its agent."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from sapwood.code.runner.group_messages import CALL, ENTER, STAY
from sapwood.comm.groups.handle import Group, GroupOptions, group_time
from sapwood.comm.messages.groups import GroupNumber
from sapwood.core.arguments import text
from sapwood.core.errors import ConfigurationError
from sapwood.core.rankset import to_ranges
from sapwood.core.request import Request
from sapwood.core.shown import shown

_tokens = itertools.count(1)


class GroupPlace(Protocol):
    """Where user code runs: what groups need of :class:`sapwood.types.AgentContext`."""

    rank: int
    agents: Sequence[int]

    def ask(
        self, name: str, value: Any = None, convert: Callable[[Any], Any] | None = None
    ) -> Request:
        """Ask the agent of this runner."""


class GroupRpc:
    """A group's way to the agent of this runner.

    Args:
        here: Where this code runs.
        stay: The request that is never answered.
    """

    def __init__(self, here: GroupPlace, stay: Request) -> None:
        self._here = here
        self._stay = stay

    def call(self, order: dict[str, Any], value: Any, convert: Callable[[Any], Any]) -> Request:
        """Make a call; the request is its converted result."""
        given = value if isinstance(value, tuple) else (value,)
        return self._here.ask(CALL, [order, *given], convert)

    def leave(self, _number: GroupNumber) -> None:
        """Leave the group."""
        self._stay.cancel()


def enter(
    here: GroupPlace,
    members: Iterable[int],
    name: str,
    options: GroupOptions,
    enter_timeout: float | None,
) -> Group:
    """Enter a group from user code; see :meth:`AgentContext.group`."""
    text(name, "name")
    enter_timeout = group_time(enter_timeout)
    group_time(options.timeout)
    ranks = checked(here.rank, members, max(here.agents, default=0))
    token = next(_tokens)
    stay = here.ask(STAY, token)
    order = {
        "token": token,
        "members": [list(one) for one in to_ranges(ranks)],
        "name": name,
        "timeout": enter_timeout,
    }
    try:
        number = here.ask(ENTER, order).result()
    except BaseException:
        stay.cancel()
        raise
    return Group(here.rank, ranks, tuple(number), GroupRpc(here, stay), options)


def checked(rank: int, members: Iterable[int], agents: int) -> list[int]:
    """Return the members of a group in order.

    Raises:
        ConfigurationError: They are not places, or this one is not among them.
    """
    ranks = members_of(members, agents)
    if rank not in ranks:
        raise ConfigurationError(
            f"rank {rank} is not in the group {ranks} that it is to enter",
            hint="only members can enter a group",
        )
    return ranks


def members_of(members: Any, agents: int) -> list[int]:
    """Return the members of a group in order.

    Raises:
        ConfigurationError: They are not places, or one is named twice.

    Example:
        >>> members_of({4, 1}, agents=4)
        [1, 4]
    """
    given = list(members) if isinstance(members, Iterable) else None
    if given is None or not all(isinstance(one, int) for one in given):
        raise ConfigurationError(
            f"{shown(members)} are not members of a group", hint="give ranks, as in [1, 2, 4]"
        )
    ranks = sorted(set(given))
    if len(ranks) != len(given):
        raise ConfigurationError(f"a member of the group {given} is named twice")
    wrong = [one for one in ranks if not 0 <= one <= agents]
    if wrong:
        raise ConfigurationError(
            f"unknown agent {wrong[0]}", hint=f"agents are 1 to {agents}, the client is 0"
        )
    return ranks
