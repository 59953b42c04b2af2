"""Python as a language of sources: its functions are called by name, like native ones."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from sapwood.code.bundle import Bundle
from sapwood.code.interface import ElementType, FunctionSignature, Interface, ParameterSignature
from sapwood.code.languages.base import Artefact, BuildRequest, LoadedCode
from sapwood.code.python_module import check_syntax, import_main, syntax_tree
from sapwood.core import typed
from sapwood.core.errors import FunctionMissingError, ProgramError

_ANY = ElementType(c="object", dtype="O")
_LIBRARY = "modules.msgpack"


class Python:
    """Python: a build checks the syntax and packs the files; a load imports them."""

    name = "python"
    suffixes: tuple[str, ...] = (".py",)
    absorbs: tuple[str, ...] = ()

    def identity(self, request: BuildRequest) -> Mapping[str, str]:
        """Return the version of the interpreter."""
        return {"python": sys.version}

    def build(self, request: BuildRequest) -> Artefact:
        """Check the syntax of the sources and pack them into one file."""
        files = {source: (request.folder / source).read_bytes() for source in request.sources}
        for source, data in files.items():
            check_syntax(data, source)
        bundle = Bundle(origin=request.origin, sources=request.sources, files=files)
        (request.output / _LIBRARY).write_bytes(msgspec.msgpack.encode(bundle))
        return Artefact(library=_LIBRARY)

    def discover(self, request: BuildRequest, artefact: Artefact) -> Interface:
        """Return the public top-level functions of the sources."""
        bundle = _read(request.output / artefact.library)
        return Interface(
            functions=tuple(
                _signature(node, source)
                for source in bundle.sources
                for node in syntax_tree(bundle.files[source], source).body
                if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            )
        )

    def load(self, path: Path, interface: Interface) -> LoadedCode:
        """Import the sources under their own names."""
        bundle = _read(path)
        return _LoadedModules([import_main(bundle, source) for source in bundle.sources])

    def unload(self, code: LoadedCode) -> None:
        """Forget the modules."""
        if isinstance(code, _LoadedModules):
            for module in code.modules:
                sys.modules.pop(module.__name__, None)


class _LoadedModules:
    """Sources that are imported in this process."""

    def __init__(self, modules: list[ModuleType]) -> None:
        self.modules = modules

    def function(self, name: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a function of the modules."""
        for module in self.modules:
            found: Any = getattr(module, name, None)
            if callable(found):
                return found  # type: ignore[no-any-return]  # callable() says no more
        raise FunctionMissingError(f"no Python source defines {name}")


def _read(path: Path) -> Bundle:
    try:
        return typed.unpacker(Bundle)(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ProgramError(
            f"the packed Python files cannot be read: {error}",
            where=str(path),
            hint="remove the build cache and run again",
        ) from error


def _signature(node: ast.FunctionDef, source: str) -> FunctionSignature:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return FunctionSignature(
        name=node.name,
        parameters=tuple(
            ParameterSignature(name=argument.arg, c="object", element=_ANY)
            for argument in arguments
        ),
        returns=_ANY,
        doc=ast.get_docstring(node) or "",
        file=source,
        line=node.lineno,
    )
