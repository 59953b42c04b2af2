"""Imports that end when nobody wants them any more: numpy's takes longer than a short session."""

import importlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec


class UnwantedError(BaseException):
    """An import was given up; no handler of exceptions in the module takes it for its own."""


class _Watch:
    """Asked for each module that is not imported yet, before those that find it."""

    def __init__(self, unwanted: Callable[[], object]) -> None:
        self._unwanted = unwanted

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing."""
        del name, path, target
        if self._unwanted():
            raise UnwantedError
        return None


def import_while_wanted(module: str, unwanted: Callable[[], object]) -> None:
    """Import a module.

    Args:
        module: Its name.
        unwanted: Whether nobody wants it any more; asked before each module that it imports.

    Raises:
        UnwantedError: Nobody does; what is imported by then is of no use to anybody.

    Example:
        >>> import_while_wanted("json", lambda: False)
    """
    watch = _Watch(unwanted)
    sys.meta_path.insert(0, watch)
    try:
        importlib.import_module(module)
    finally:
        sys.meta_path.remove(watch)
