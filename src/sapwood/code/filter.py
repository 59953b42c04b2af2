"""Own filters: what a place does with the values of a stream that pass it."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sapwood.core.errors import ProgramError


class Nothing(enum.Enum):
    """The value of a filter that passes nothing on."""

    NOTHING = "nothing"


NOTHING = Nothing.NOTHING
"""Returned by a filter that passes nothing on."""


class Filter:
    """Base of own filters: what a place does with the values of a stream that pass it.

    There is one object for each place and stream, so what it keeps on ``self`` is the state of
    that place from wave to wave. It lives in a process beside the place: a filter that crashes
    fails its wave, and the next wave finds a new object.

    Attributes:
        parameters: As last set by ``stream.configure``, the same at all places in one wave.
        rank: The place.
        depth: Its levels below the root, which has depth 0.
        wave: Number of the wave; 0 for what agents send without being asked.
        ranks: Of the values that :meth:`up` gets: the lowest rank that contributed to each.
        weights: Of the values that :meth:`up` gets: the items behind each, in a run of a program.

    Example:
        >>> class RunningMaximum(Filter):
        ...     greatest = 0
        ...     def up(self, values):
        ...         self.greatest = max(self.greatest, *values)
        ...         return self.greatest
        >>> place = RunningMaximum()
        >>> place.up([3, 5]), place.up([2, 4])
        (5, 5)
    """

    parameters: Mapping[str, Any] = {}
    rank: int = 0
    depth: int = 0
    wave: int = 0
    ranks: Sequence[int] = ()
    weights: Sequence[float] = ()

    def up(self, values: list[Any]) -> Any:
        """Return what is passed on of the children's values, which come in the order of ranks.

        What one place returns, the next one gets as a value; :data:`NOTHING` passes nothing on.
        """
        raise ProgramError(f"{type(self).__name__} has no way up", hint="define up(self, values)")

    def down(self, value: Any, child: int) -> Any:
        """Return what a child gets of a value on its way down; the value itself by default."""
        return value


def has_own(kind: type[Filter], method: str) -> bool:
    """Whether a filter class defines a method itself."""
    return getattr(kind, method) is not getattr(Filter, method)


def positional(function: Callable[..., Any]) -> int | None:
    """Return how many arguments a function takes by position; None if this is unknown."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    kinds = [parameter.kind for parameter in signature.parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return None
    own = {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
    return sum(kind in own for kind in kinds)


class FoldFilter(Filter):
    """A filter made of a function of two values that is associative.

    Args:
        function: ``function(left, right, **parameters)``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def up(self, values: list[Any]) -> Any:
        """Fold the values from left to right."""
        first, *rest = values
        for value in rest:
            first = self._function(first, value, **self.parameters)
        return first


class MapFilter(Filter):
    """A filter made of a function that changes what goes down.

    Args:
        function: ``function(value, **parameters)`` or ``function(value, child, **parameters)``.
        per_child: Which of the two.
    """

    def __init__(self, function: Callable[..., Any], *, per_child: bool) -> None:
        self._function = function
        self._per_child = per_child

    def down(self, value: Any, child: int) -> Any:
        """Call the function."""
        if self._per_child:
            return self._function(value, child, **self.parameters)
        return self._function(value, **self.parameters)
