"""Rooms that everything works without."""

from __future__ import annotations

import importlib
from types import ModuleType

_FASTPATH = "sapwood.fastpath"


def fastpath(part: str) -> ModuleType | None:
    """Return a module of the room of shortcuts; None where that room is not installed.

    Args:
        part: Name of the module in it.

    Example:
        >>> fastpath("nothing of that name") is None
        True
    """
    try:
        return importlib.import_module(f"{_FASTPATH}.{part}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(_FASTPATH):
            raise
        return None
