"""Calls of actors in a runner: the objects, and what is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sapwood.code.runner.calling_each import call
from sapwood.core.errors import ActorLostError, ResourceError

MAX_ACTORS: Final = 10_000
"""Actors that one process holds."""

_actors: dict[str, Any] = {}


def construct(key: str, factory: Callable[..., Any], args: Sequence[Any]) -> None:
    """Make an actor; it replaces what the key had.

    Args:
        key: Names the actor from now on.
        factory: Its class.
        args: What the class is called with.

    Raises:
        ResourceError: This process holds too many.
        Exception: What the constructor raises.
    """
    if len(_actors) >= MAX_ACTORS:
        raise ResourceError(
            f"an agent holds at most {MAX_ACTORS} actors", hint="close some, or use more agents"
        )
    _actors[key] = call(factory, *args)


def call_method(key: str, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a method of an actor; run it to its end if it is an ``async`` one.

    Raises:
        ActorLostError: This process has no such actor.
        Exception: What the method raises.

    Example:
        >>> construct("basket", list, [[3, 1]])
        >>> call_method("basket", "index", [1], {})
        1
        >>> drop("basket")
    """
    if key not in _actors:
        raise ActorLostError(
            "the process with the actor's state has ended, and the state is gone",
            hint="make the actor again, or give it restarts=…",
        )
    return call(getattr(_actors[key], method), *args, **kwargs)


def drop(key: str) -> None:
    """Forget an actor, if this process has it."""
    _actors.pop(key, None)
