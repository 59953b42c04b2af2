"""Imports of a bundle's own Python files: at the beginning, and later from inside functions.

Files of a bundle are in ``sys.modules`` only while one of them is being imported, because two
programs may each have a ``helpers.py``. What a function imports when it is called is found too:
each module of a bundle has an ``__import__`` of its own, which knows the bundle.
"""

from __future__ import annotations

import builtins
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sapwood.code.bundle import Bundle

_importing = threading.RLock()  # sys.modules and sys.meta_path belong to the whole process


class BundleImports:
    """Finds and loads modules and packages among the files of a bundle.

    The base classes of :mod:`importlib.abc` would add nothing but the time to import them.

    Args:
        bundle: The files.
        execute: Runs the text of a file, called so at a path, in a namespace.
    """

    def __init__(
        self, bundle: Bundle, execute: Callable[[bytes, str, dict[str, Any]], None]
    ) -> None:
        self._bundle = bundle
        self._execute = execute
        self._tops = {
            Path(name).parts[0].removesuffix(".py") for name in bundle.files if name.endswith(".py")
        }
        self._modules: dict[str, ModuleType] = {}
        self._depth = 0

    def run(self, file: str, path: str, module: ModuleType) -> None:
        """Run a file of the bundle as a module, which finds the others now and later."""
        own = dict(vars(builtins))
        own["__import__"] = self._import
        module.__dict__["__builtins__"] = own
        with self.serving():
            self._execute(self._bundle.files[file], path, module.__dict__)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Let imports find the bundle's files, whatever else has their names."""
        with _importing:
            hidden = {} if self._depth else self._take()
            if not self._depth:
                sys.modules.update(self._modules)
                finder: Any = self
                sys.meta_path.insert(0, finder)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if not self._depth:
                    sys.meta_path.remove(finder)
                    self._modules = self._take()
                    sys.modules.update(hidden)

    def _take(self) -> dict[str, ModuleType]:
        names = [name for name in tuple(sys.modules) if name.partition(".")[0] in self._tops]
        return {name: sys.modules.pop(name) for name in names}

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002 - as builtins.__import__
        locals: Mapping[str, object] | None = None,  # noqa: A002 - as above
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if not level and name.partition(".")[0] not in self._tops:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        known = None if level else self._modules.get(name)
        if known is not None and not self._depth:
            # In a function that is called often: nothing is left to be imported.
            if not fromlist:
                return self._modules[name.partition(".")[0]]
            if all(hasattr(known, each) for each in fromlist):
                return known
        with self.serving():
            return builtins.__import__(name, globals, locals, fromlist or (), level)

    # --- as a finder and loader of the import system -------------------------------------------

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return how a module is loaded, or None for what is not in the bundle."""
        stem = fullname.replace(".", "/")
        for name, package in ((f"{stem}/__init__.py", True), (f"{stem}.py", False)):
            if name in self._bundle.files:
                origin = str(Path(self._bundle.origin) / name)
                loader: Any = self
                spec = importlib.machinery.ModuleSpec(
                    fullname, loader, origin=origin, is_package=package, loader_state=name
                )
                spec.has_location = True
                return spec
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        """Let an ordinary module be made."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file of a module."""
        spec = module.__spec__
        assert spec is not None  # noqa: S101 - the import system sets it before it calls this
        self.run(spec.loader_state, str(spec.origin), module)
