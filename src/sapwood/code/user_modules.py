"""References to functions, classes and modules that runners import from the user's own files.

Pickle names such an object by its module. That is too little where the file changes while a
cluster runs: a runner that has imported the module would continue with the old code. So a reference
also has a *version*, the hash of the file and of the user's files that it imports, and the folder
from which the client has imported it. A runner that has the module in another version is replaced.

Modules of the standard library, of installed packages and of Sapwood do not count as the user's.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import os
import sys
import sysconfig
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from sapwood.core.errors import ProcessSpentError
from sapwood.core.extras import is_own

INSTALLED = ("site-packages", "dist-packages")
"""Folders of packages that do not change while a cluster runs."""

_hashes: dict[str, tuple[int, int, str]] = {}
"""Of each file that was read: time of the last change, size, hash."""

_seen: dict[str, tuple[str, str]] = {}
"""In a runner, of each module: the versions of the first reference to it and of its files."""


def reference_to(value: Any) -> tuple[Any, ...] | None:
    """Return how pickle refers to a module, function or class of the user's; None for others.

    Args:
        value: A module, or a function or class that pickle names by its module.
    """
    if _is_runner:
        return None  # only a client's files change
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    module = sys.modules.get(name) if isinstance(name, str) else None
    if module is None or not is_of_user(module):
        return None
    qualname = "" if isinstance(value, ModuleType) else value.__qualname__
    return imported, (name, qualname, version_of(module), _folder(module))


def is_made_at_run_time(module: ModuleType) -> bool:
    """Whether no file or loader has made a module, so that no other process can import it."""
    return module.__spec__ is None and not hasattr(module, "__file__")


def is_of_user(module: ModuleType) -> bool:
    """Whether a module comes from a file of the user's own."""
    file = getattr(module, "__file__", None)
    if module.__name__ == "__main__" or is_own(module.__name__) or not isinstance(file, str):
        return False
    return _is_file_of_user(file)


def version_of(module: ModuleType) -> str:
    """Return the version of a module as its files are now.

    Example:
        >>> import sapwood.code.user_modules as module
        >>> version_of(module) == version_of(module)
        True
    """
    hasher = hashlib.sha256()
    for name, file in sorted(_files(module).items()):
        hasher.update(f"{name} {_hash(file)} ".encode())
    return hasher.hexdigest()[:16]


def imported(name: str, qualname: str, version: str, folder: str) -> Any:
    """Return what a reference names; called when a pickle is opened.

    Args:
        name: Of the module.
        qualname: Of the function or class; empty for the module itself.
        version: What :func:`version_of` returned where the pickle was made.
        folder: Where the module was imported from there.

    Raises:
        ProcessSpentError: This runner has imported the module, and its file has changed since.
        ImportError: There is no such module here.
        AttributeError: It has no such attribute.
    """
    module = _import(name, folder)
    first = _seen.get(name)
    if first is None:
        _seen[name] = version, version_of(module)
    elif first[0] != version:
        if _is_runner and version_of(module) != first[1]:
            raise ProcessSpentError(f"module '{name}' has changed since this process imported it")
        _seen[name] = version, first[1]
    value: Any = module
    for part in qualname.split(".") if qualname else ():
        value = getattr(value, part)
    return value


_is_runner = False


def be_runner() -> None:
    """Refuse references to changed modules from now on: a new process is to take them."""
    global _is_runner  # noqa: PLW0603 - what a process is does not change any more
    _is_runner = True


def _import(name: str, folder: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        root = name.partition(".")[0]
        if error.name not in {name, root} or folder in sys.path or not os.path.isdir(folder):  # noqa: PTH112 - as text
            raise
    sys.path.append(folder)  # the client has extended its own after the cluster began
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _folder(module: ModuleType) -> str:
    """Return the folder on the search path that a module was imported from."""
    file = str(module.__file__)
    levels = module.__name__.count(".") + (os.path.basename(file) == "__init__.py")  # noqa: PTH119
    folder = os.path.dirname(os.path.abspath(file))  # noqa: PTH100, PTH120 - fast, and as text
    for _ in range(levels):
        folder = os.path.dirname(folder)  # noqa: PTH120 - as above
    return folder


def _files(module: ModuleType) -> dict[str, str]:
    """Return the files of a module and of the user's modules that it uses, by module."""
    found: dict[str, str] = {}
    pending, known = [module], {module.__name__}
    while pending:
        one = pending.pop()
        found[one.__name__] = str(one.__file__)
        for value in list(vars(one).values()):
            name = value.__name__ if isinstance(value, ModuleType) else _module_of(value)
            if name is None or name in known:
                continue
            known.add(name)
            other = sys.modules.get(name)
            if other is not None and is_of_user(other):
                pending.append(other)
    return found


def _module_of(value: Any) -> str | None:
    if not isinstance(value, type | FunctionType):
        return None
    name = getattr(value, "__module__", None)
    return name if isinstance(name, str) else None


def _hash(file: str) -> str:
    try:
        status = os.stat(file)  # noqa: PTH116 - a fast path
    except OSError:
        return ""
    known = _hashes.get(file)
    if known is not None and known[:2] == (status.st_mtime_ns, status.st_size):
        return known[2]
    try:
        with open(file, "rb") as opened:  # noqa: PTH123 - as above
            found = hashlib.sha256(opened.read()).hexdigest()
    except OSError:
        return ""
    _hashes[file] = status.st_mtime_ns, status.st_size, found
    return found


@functools.cache
def _is_file_of_user(file: str) -> bool:
    parts = Path(file).absolute().parts
    if any(folder in parts for folder in INSTALLED):
        return False
    libraries = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return not any(file.startswith(f"{one}{os.sep}") for one in libraries if one)
