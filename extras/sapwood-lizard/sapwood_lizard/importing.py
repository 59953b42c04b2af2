"""The module names that programs and prompts know: ``lizard`` and what is in it.

Nothing here hides another package of that name: the finder is the last one, and where a program
must get this one it gets it only while it is imported.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

MODULES: Final = {
    "lizard": "",
    "lizard.user_prog_resources": "sapwood_lizard.structures",
    "lizard.runtime_helper": "sapwood_lizard.runtime_helper",
}
"""Importable modules, and where they are."""

_swapping = threading.RLock()  # sys.modules belongs to the whole process


class LizardFinder:
    """Finds the modules of :data:`MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how a module is loaded, or None for others."""
        if fullname not in MODULES:
            return None
        loader: Any = self
        package = not MODULES[fullname]
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Return None, so that Python makes an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module with the names of the one that it stands for."""
        place = MODULES[module.__name__]
        if not place:
            module.__doc__ = "Programs of lizard-slayer on Sapwood."
            return
        source = importlib.import_module(place)
        names: Sequence[str] = source.__all__
        module.__doc__ = source.__doc__
        module.__dict__.update({name: getattr(source, name) for name in names})


def provide_lizard() -> None:
    """Let ``import lizard`` work in this process, unless a package of that name is installed."""
    if not any(isinstance(finder, LizardFinder) for finder in sys.meta_path):
        finder: Any = LizardFinder()
        sys.meta_path.append(finder)


@contextmanager
def lizard_first() -> Iterator[None]:
    """Let ``import lizard`` give this package for a while, whatever else is installed."""
    finder: Any = LizardFinder()
    with _swapping:
        hidden = _take()
        sys.meta_path.insert(0, finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            _take()
            sys.modules.update(hidden)


def _take() -> dict[str, ModuleType]:
    names = [name for name in tuple(sys.modules) if name.partition(".")[0] == "lizard"]
    return {name: sys.modules.pop(name) for name in names}
