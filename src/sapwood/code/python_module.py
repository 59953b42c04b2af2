"""Python files of a bundle, imported from memory, so that a run keeps the version it began with.

The main file becomes a module of a unique name. Files beside it that it imports, at the
beginning or when a function is called, are served from the bundle. They are in ``sys.modules``
only while one of them is being imported, because two programs may each have a ``helpers.py``. So
each module of a bundle has its own ``__import__``, which knows the bundle.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib.machinery
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from sapwood.code.bundle import Bundle, read_file
from sapwood.core.errors import BuildError, ProgramError, SapwoodError

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
        """Return None, so that Python makes an ordinary module."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file of a module."""
        spec = module.__spec__
        assert spec is not None  # noqa: S101 - the import system sets it before it calls this
        self.run(spec.loader_state, str(spec.origin), module)


REMEMBERED_FILES = 64
"""Compiled files that a process keeps, so that loading a program again costs little."""

_parsing = threading.Lock()  # CPython 3.11 counts the depth of a syntax tree once for all threads


def python_files(folder: Path, main: str, *, named_by: str) -> dict[str, bytes]:
    """Return a Python file and the files beside it that it imports, by name."""
    files: dict[str, bytes] = {}
    pending = [main]
    while pending:
        name = pending.pop()
        if name in files:
            continue
        files[name] = data = read_file(folder, name, named_by=named_by)
        check_syntax(data, str(folder / name))
        # Parsing costs milliseconds: only where a module beside it could be meant.
        if not data.isascii() or any(
            module.encode() in data for module in _modules_of(folder) if f"{module}.py" != name
        ):
            for module in _imported(data, str(folder / name)):
                pending.extend(_beside(folder, module))
    return files


def import_main(bundle: Bundle, main: str) -> ModuleType:
    """Import a Python file of a bundle under a unique name.

    Raises:
        BuildError: It is not valid Python.
        ProgramError: It raised an exception.
    """
    path = str(Path(bundle.origin) / main)
    name = f"sapwood_program_{bundle.hash[:16]}_{Path(main).stem}"
    check_syntax(bundle.files[main], path)
    module = ModuleType(name)
    module.__file__ = path
    imports = BundleImports(bundle, _execute)
    with imports.serving():
        sys.modules[name] = module
        try:
            imports.run(main, path, module)
        except SapwoodError:
            del sys.modules[name]
            raise
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise ProgramError(
                f"importing {main} failed: {type(error).__name__}: {error}",
                where=_last_line(error, path),
                details={"traceback": traceback.format_exc()},
            ) from error
    return module


def _execute(data: bytes, path: str, namespace: dict[str, Any]) -> None:
    code = check_syntax(data, path)
    _remember_lines(path, data)
    exec(code, namespace)  # noqa: S102 - running the user's program is the task


@functools.lru_cache(maxsize=REMEMBERED_FILES)
def check_syntax(data: bytes, path: str) -> CodeType:
    """Compile a Python file; one that was compiled already is only looked up.

    Raises:
        BuildError: It is not valid Python.
    """
    try:
        return compile(data, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise BuildError(
            f"{Path(path).name} is not valid Python: {getattr(error, 'msg', error)}",
            where=f"{path}:{line}" if line else path,
            details={"compiler output": "".join(traceback.format_exception_only(error))},
        ) from error


def syntax_tree(data: bytes, path: str) -> ast.Module:
    """Parse a Python file; from any thread.

    Raises:
        BuildError: It is not valid Python.
    """
    check_syntax(data, path)
    with _parsing:
        return ast.parse(data)


def _remember_lines(path: str, data: bytes) -> None:
    # Tracebacks show the lines that ran, also after the file was edited or where it is not.
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    linecache.cache[path] = (len(data), None, lines, path)


def _imported(data: bytes, path: str) -> Iterator[str]:
    for node in ast.walk(syntax_tree(data, path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _modules_of(folder: Path) -> Iterator[str]:
    """Yield the names of the modules and packages in a folder."""
    for name in os.listdir(folder):  # noqa: PTH208 - only the names are wanted, and fast
        if name.endswith(".py"):
            yield name.removesuffix(".py")
        elif (folder / name / "__init__.py").is_file():
            yield name


def _beside(folder: Path, module: str) -> Iterator[str]:
    top = module.partition(".")[0]
    if (folder / f"{top}.py").is_file():
        yield f"{top}.py"
    elif (folder / top / "__init__.py").is_file():
        for path in sorted((folder / top).rglob("*.py")):
            yield path.relative_to(folder).as_posix()


def _last_line(error: BaseException, path: str) -> str:
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"{path}:{lines[-1].lineno}" if lines else path
