"""A runner's part in the collective operations of an :class:`sapwood.types.AgentGroup`."""

from __future__ import annotations

from typing import Any

from sapwood.code.runner.here import here
from sapwood.code.runner.process_state import kept
from sapwood.comm.groups.handle import Group
from sapwood.core.errors import DataMissingError
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest


def take_part(
    members: list[int], group: str, operation: str, name: str, reduction: str, into: str
) -> None:
    """Make the calls of one operation in a group with the client, which is its root.

    Args:
        members: All members' ranks.
        group: The group's name.
        operation: The operation.
        name: Which value is given, or kept.
        reduction: The reduction, where there is one.
        into: Under which name a result that all get is kept.

    Raises:
        DataMissingError: No value of that name is kept here.
    """
    with here().group(members, name=group, enter_timeout=None) as together:
        if operation == "barrier":
            together.barrier()
        elif operation == "broadcast":
            kept[name] = together.broadcast()
        elif operation == "scatter":
            kept[name] = together.scatter()
        else:
            _give(together, operation, _value(name), reduction)
            if into:
                kept[into] = together.broadcast()


def _give(together: Group, operation: str, value: Any, reduction: str) -> None:
    if operation == "gather":
        together.gather(value)
    else:
        together.reduce(value, reduction)


def _value(name: str) -> Any:
    if name not in kept:
        raise DataMissingError(
            f"agent {here().rank} keeps no value {shown(name)}",
            hint=f"broadcast or scatter it first; {suggest(name, kept)}",
        )
    return kept[name]
