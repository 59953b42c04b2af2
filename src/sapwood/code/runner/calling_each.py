"""Calls of the functions of tasks and streams."""

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
    if type(result) is CoroutineType:
        import asyncio  # noqa: PLC0415 - few runners need it

        return asyncio.run(result)
    return result


def call_each(function: Callable[..., Any], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what a function makes of each tuple of arguments.

    Example:
        >>> call_each(pow, [(2, 3), (3, 2)])
        [8, 9]
    """
    return [call(function, *one) for one in arguments]
