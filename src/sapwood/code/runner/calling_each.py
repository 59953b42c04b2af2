"""Calls of the functions of tasks and streams."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from types import CoroutineType
from typing import Any


def call(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function; run what it returns to its end if it is an ``async`` one.

    Example:
        >>> async def double(number):
        ...     return 2 * number
        >>> call(double, 4)
        8
    """
    result = function(*args, **kwargs)
    return _run(result) if type(result) is CoroutineType else result


def call_each(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what a function makes of each tuple of arguments.

    Example:
        >>> call_each(pow, [(2, 3), (3, 2)])
        [8, 9]
    """
    return finished(list(itertools.starmap(function, arguments)))


def finished(results: list[Any]) -> list[Any]:
    """Return results, with those of ``async`` functions run to their ends.

    Example:
        >>> finished([1, 2])
        [1, 2]
    """
    if CoroutineType not in set(map(type, results)):
        return results
    return [_run(one) if type(one) is CoroutineType else one for one in results]


def _run(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    import asyncio  # noqa: PLC0415 - few runners need it

    return asyncio.run(coroutine)
