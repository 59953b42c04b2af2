"""Import packages that everything else works without."""

from __future__ import annotations

import importlib
from types import ModuleType


def fastpath(part: str) -> ModuleType | None:
    """Return a module of the package of shortcuts; None where that package is not installed.

    Args:
        part: Name of the module in it.

    Example:
        >>> fastpath("nothing of that name") is None
        True
    """
    return _module("sapwood.fastpath", part)


def merging(part: str) -> ModuleType | None:
    """Return a module of the package that merges sessions; None where it is not installed.

    Args:
        part: Name of the module in it.
    """
    return _module("sapwood.merging", part)


def _module(package: str, part: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"{package}.{part}")
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith(package):
            raise
        return None
