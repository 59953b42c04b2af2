"""Public names that are imported from their own modules when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class LazyNames:
    """The public names of a module, which other modules define.

    Args:
        module: Name of the module that has them.
        homes: For each other module, the names in it, separated by blanks.

    Example:
        >>> LazyNames("sapwood.types", {"sapwood.core.request": "Request"}).find("Request")
        <class 'sapwood.core.request.Request'>
    """

    def __init__(self, module: str, homes: Mapping[str, str]) -> None:
        self._module = module
        self.home_of = {name: home for home, names in homes.items() for name in names.split()}

    def is_installed(self, name: str) -> bool:
        """Return whether the package of a name is installed; it is not imported."""
        try:
            return find_spec(self.home_of[name].rpartition(".")[0]) is not None
        except ModuleNotFoundError:
            return False

    def find(self, name: str) -> Any:
        """Return what a name stands for.

        Raises:
            AttributeError: The module has no such name, or its package is not installed.
        """
        home = self.home_of.get(name)
        if home is None:
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        try:
            found = import_module(home)
        except ModuleNotFoundError as error:
            if error.name is None or not home.startswith(error.name):
                raise
            raise AttributeError(
                f"this installation has no {self._module}.{name}: it lacks the package "
                f"{error.name.rpartition('.')[0] if error.name == home else error.name}"
            ) from error
        return found if home == f"{self._module}.{name}" else getattr(found, name)
