"""Python files of a bundle, imported from memory, so that a run keeps the version it began with.

The main file becomes a module of a unique name. Files beside it that it imports, at the
beginning or when a function is called, are served from the bundle.
"""

from __future__ import annotations

import ast
import functools
import linecache
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from sapwood.code.bundle import Bundle, read_file
from sapwood.code.bundle_imports import BundleImports
from sapwood.core.errors import BuildError, ProgramError, SapwoodError

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
