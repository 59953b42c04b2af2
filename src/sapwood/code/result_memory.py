"""Arrays for results: on an agent they lie where the tree reads them, so nothing is copied."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Allocate = Callable[[Any, Any], Array | None]
"""Takes what :func:`empty` takes, and returns an array, or None where a usual one will do."""

_allocate: list[Allocate] = [lambda _shape, _dtype: None]
"""The only one: a runner's, as long as its process lives; elsewhere usual arrays do."""


def use(allocate: Allocate) -> None:
    """Have arrays for results made by a function from now on; a runner calls this once."""
    _allocate[:] = [allocate]


def empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Return an array without a defined content, to be filled and returned by a map or task.

    Where the result is large this saves a copy on the agent. Make a new one in each call:
    after the call its memory belongs to the tree.

    Args:
        shape: Extents of the array.
        dtype: Type of its items.

    Example:
        >>> empty((2, 3), "f4").shape
        (2, 3)
    """
    found = _allocate[0](shape, dtype)
    return np.empty(shape, dtype) if found is None else found


def take(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """Return an array where the tree reads it; None for a small one, or without a tree."""
    return _allocate[0](shape, dtype)


def zeros(shape: int | tuple[int, ...], dtype: Any = np.float64) -> Array:
    """Return an array of zeros; as :func:`empty` otherwise."""
    found = _allocate[0](shape, dtype)
    if found is None:
        return np.zeros(shape, dtype)
    found.fill(0)
    return found
