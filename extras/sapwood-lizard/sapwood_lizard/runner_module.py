"""Runner modules: they make parameters and dataset of settings, and print the result.

A runner imports a module called ``python_funcs`` that lies beside it. Every program has one of
that name, so each runner keeps its own, and gives the name back after every call.
"""

from __future__ import annotations

import ast
import ctypes
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sapwood import SapwoodError
from sapwood.errors import BuildError, FunctionMissingError, ProgramError, UserCodeError
from sapwood.plugins.programs import syntax_tree
from sapwood.plugins.tools import expand_user, suggest
from sapwood_lizard.contract import CLASSES, can_be_called
from sapwood_lizard.importing import lizard_first
from sapwood_lizard.module import call
from sapwood_lizard.structures import field_types, shape_of

FUNCTIONS: Final = ("init_global_params", "init_dataset", "print_result")

_PACKAGE: Final = "sapwood_lizard_runner"
"""What a runner module that is given by its path is part of, where it imports by ``from .``."""


class RunnerModule:
    """A runner module, loaded.

    Args:
        path: Its file.
        name: The name that it gets as a module.
        python: The program's Python module, where it is not called ``python_funcs.py``.

    Raises:
        BuildError: It is not valid Python.
        ProgramError: Importing it failed, or a function is missing.
    """

    def __init__(self, path: Path, *, name: str = "runner", python: Path | None = None) -> None:
        self.path = path
        self._folders = list(dict.fromkeys([path.parent, *([python.parent] if python else [])]))
        self._modules: dict[str, ModuleType] = {}
        self._params: Any = None
        with self._at_home():
            if python is not None and not (path.parent / "python_funcs.py").exists():
                _load(python, "python_funcs")
            self.module = _load(path, name)
        for function in FUNCTIONS:
            if not callable(getattr(self.module, function, None)):
                raise FunctionMissingError(
                    f"the runner module has no function {function}",
                    where=str(path),
                    hint=suggest(function, [key for key in vars(self.module) if key[0] != "_"]),
                )

    @property
    def extension(self) -> bool | None:
        """What it says of the kind of its program; None when it says nothing."""
        found = getattr(self.module, "C_EXTENSION", None)
        return None if found is None else bool(found)

    def check_belongs_to(self, program: ModuleType) -> None:
        """Check that the structures which it knows, if any, match the program's structures.

        Raises:
            ProgramError: They belong to another program.
        """
        known = [one for one in self._modules.values() if _has_structures(one)]
        differing = [_difference(one, program) for one in known]
        if differing and all(differing):
            raise ProgramError(
                f"the runner module belongs to another program: {differing[0]}",
                where=str(self.path),
                hint="give the runner module of this program, or register the program that lies "
                "beside this one",
            )

    def inputs(self, settings: Mapping[str, Any], *, extension: bool) -> tuple[Any, Any]:
        """Return global parameters and dataset, encoded; of C extensions as they are."""
        with self._at_home(), _settings_named(settings):
            name = "init_global_params"
            params = self._params = call(name, self.module.init_global_params, settings)
            dataset = call("init_dataset", self.module.init_dataset, params, settings)
            if extension:
                return params, dataset
            for what, made in ((name, params), ("init_dataset", dataset)):
                if not callable(getattr(made, "encode", None)):
                    raise ProgramError(
                        f"{what} returned {type(made).__name__}, which is not a structure",
                        where=str(self.path),
                        hint="return an object of a class derived from EncodableStructure",
                    )
            encoded = call("Dataset.encode", dataset.encode, params)
            return call("GlobalParams.encode", params.encode, None), encoded

    def print_result(self, state: Any, *, quiet: bool) -> None:
        """Let it print the result.

        Args:
            state: The last global state, encoded; of a C extension as it is.
            quiet: Handed on as ``quiet_print``, if it takes that.
        """
        function = self.module.print_result
        takes_quiet = can_be_called(function, "global_params", "state", quiet_print=quiet)
        more = {"quiet_print": quiet} if takes_quiet else {}
        with self._at_home():
            call("print_result", function, self._params, state, **more)

    @contextmanager
    def _at_home(self) -> Iterator[None]:
        """Let imports find what lies beside runner and program, whatever else is loaded."""
        beside = (path for folder in self._folders for path in folder.iterdir())
        tops = {path.stem for path in beside if _can_be_imported(path)}
        tops |= {"python_funcs", _PACKAGE}
        hidden = _take(tops)
        sys.modules.update(self._modules)
        before, writes = list(sys.path), sys.dont_write_bytecode
        sys.path[:0] = map(str, self._folders)
        sys.dont_write_bytecode = True
        try:
            with lizard_first():
                yield
        finally:
            sys.path[:] = before
            sys.dont_write_bytecode = writes
            self._modules |= _take(tops)
            sys.modules.update(hidden)


def _has_structures(module: ModuleType) -> bool:
    kinds = [getattr(module, name, None) for name in CLASSES]
    return all(isinstance(kind, type) and issubclass(kind, ctypes.Structure) for kind in kinds)


def _difference(known: ModuleType, program: ModuleType) -> str:
    """Return in what structures of two modules differ; nothing when they are alike."""
    for name in CLASSES:
        own, other = getattr(known, name), getattr(program, name)
        if shape_of(own) != shape_of(other):
            fields = [", ".join(each for each, _ in field_types(kind)) for kind in (own, other)]
            if fields[0] == fields[1]:
                return f"the fields of {name} are of other types there"
            return f"its {name} has the fields {fields[0]}, and the program has {fields[1]}"
    return ""


def _can_be_imported(path: Path) -> bool:
    """Say whether a file is a module, or a folder a package that no other one comes before."""
    if path.suffix == ".py" or (path / "__init__.py").is_file():
        return True
    known = getattr(sys.modules.get(path.name), "__file__", None)
    return known is None and path.is_dir() and any(path.glob("*.py"))


def _take(tops: set[str]) -> dict[str, ModuleType]:
    """Remove modules, and those in packages, of some names from ``sys.modules``."""
    names = [name for name in tuple(sys.modules) if name.partition(".")[0] in tops]
    return {name: sys.modules.pop(name) for name in names}


@contextmanager
def _settings_named(settings: Mapping[str, Any]) -> Iterator[None]:
    """Report a KeyError of a missing setting as such."""
    try:
        yield
    except UserCodeError as error:
        cause = error.__cause__
        missing = cause.args[0] if isinstance(cause, KeyError) and cause.args else None
        if isinstance(missing, str) and missing not in settings:
            given = f"given: {', '.join(settings)}" if settings else "none is given"
            error.hint = f"the setting {missing} is missing: --set {missing}=VALUE; {given}"
        raise


def find_runner(module: str) -> tuple[Path, str]:
    """Return the file of a runner module and its name as a module.

    Args:
        module: A dotted name, as an import statement has it, or a path.

    Raises:
        ProgramError: There is no such module.
    """
    if module.endswith(".py") or "/" in module:
        path = expand_user(module)
        path = path / "runner.py" if path.is_dir() else path
        if not path.is_file():
            raise ProgramError("runner module not found", where=str(path))
        return path.resolve(), path.stem
    stem = Path(*module.split("."))
    for entry in ("", *sys.path):
        path = Path(entry) / stem.with_suffix(".py")
        if path.is_file():
            return path.resolve(), module
    raise ProgramError(
        f"module not found: {module}",
        where=f"looked for {stem}.py in the working folder and on sys.path",
        hint="start Python in the folder that the name begins in, or give the path of the file",
    )


def _is_in_a_package(path: Path) -> bool:
    """Say whether a file imports by ``from .``: a prompt names it as part of a package."""
    try:
        tree = syntax_tree(path.read_bytes(), str(path))
    except BuildError:
        return False  # told where it is loaded
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _load(path: Path, name: str) -> ModuleType:
    if "." not in name and _is_in_a_package(path):
        package = sys.modules[_PACKAGE] = ModuleType(_PACKAGE)
        package.__path__ = [str(path.parent)]
        name = f"{_PACKAGE}.{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ProgramError("this is no Python module", where=str(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise BuildError(
            f"{path.name} is not valid Python: {error.msg}",
            where=f"{error.filename}:{error.lineno}",
        ) from error
    except SapwoodError:
        raise
    except (Exception, SystemExit) as error:
        raise ProgramError(
            f"importing {path.name} failed: {type(error).__name__}: {error}", where=str(path)
        ) from error
    return module
