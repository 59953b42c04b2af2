"""Whole numbers that callers give."""

from __future__ import annotations

import operator
from typing import Any

from sapwood.core.errors import InputError
from sapwood.core.shown import shown


def whole(value: Any, name: str, kind: type[InputError] = InputError) -> int:
    """Return a whole number as ``int``; those of numpy are some too.

    Args:
        value: What a caller gave.
        name: What it is called.
        kind: The class of the error.

    Raises:
        InputError: It is none, or one of its subclasses as ``kind`` says.

    Example:
        >>> whole(3, "chunk")
        3
        >>> whole("3", "chunk")
        Traceback (most recent call last):
        sapwood.core.errors.InputError: chunk is '3' (chunk). Hint: give a whole number
    """
    if not isinstance(value, bool):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise kind(f"{name} is {shown(value)}", where=name, hint="give a whole number")
