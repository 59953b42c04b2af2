"""How a junction marks what it hands on, so that it cannot be taken for a value of a user."""

from __future__ import annotations

from typing import Any

PARTIAL = "sapwood:partial"
"""The only key of a dictionary that holds a partial result."""


def marked(partial: Any) -> dict[str, Any]:
    """Return a partial result as it travels on to the next vertex."""
    return {PARTIAL: partial}


def partial_of(value: Any) -> Any | None:
    """Return the partial result that a contribution is; None if it is a value of a user.

    Example:
        >>> partial_of(marked([1, 2])), partial_of({"count": 1})
        ([1, 2], None)
    """
    if isinstance(value, dict) and value.keys() == {PARTIAL}:
        return value[PARTIAL]
    return None
