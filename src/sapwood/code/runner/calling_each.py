"""Several calls of one function in one task."""

from collections.abc import Callable, Iterable
from typing import Any


def call_each(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what a function makes of each tuple of arguments.

    Example:
        >>> call_each(pow, [(2, 3), (3, 2)])
        [8, 9]
    """
    return [function(*one) for one in arguments]
