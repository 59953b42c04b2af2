"""The Python module of a program, loaded in this process under its own name."""

from __future__ import annotations

import io
import sys
import tokenize
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn, TypeVar

from sapwood import SapwoodError
from sapwood.errors import UserCodeError
from sapwood.plugins.programs import Bundle, import_main
from sapwood_lizard.importing import lizard_first, provide_lizard
from sapwood_lizard.patience import noted
from sapwood_lizard.registration import LizardDefinition

T = TypeVar("T")

USER_PROGRAM = "user_program"
"""Module of a C extension; it is there only where iterations run."""


def load_module(definition: LizardDefinition, *, origin: str, extension: ModuleType) -> ModuleType:
    """Import the Python module of a program, and what it imports beside it.

    Args:
        definition: The program.
        origin: Folder that tracebacks name.
        extension: What ``import user_program`` gives.

    Raises:
        BuildError: A file is not valid Python.
        ProgramError: Importing it raised an exception.
    """
    provide_lizard()
    main = definition.python.name if definition.python.name.endswith(".py") else "python_funcs.py"
    folder, _, name = main.rpartition("/")
    # As when Python runs a file: it imports modules from its own folder.
    files = {
        file.name.removeprefix(f"{folder}/"): _as_written(file.text)
        for file in definition.files
        if file.name.endswith(".py")
    }
    files[name] = _as_written(definition.python.text)
    bundle = Bundle(origin=str(Path(origin) / folder), main=name, files=files)
    with lizard_first(), user_program(extension), noted(f"the import of {name}"):
        return import_main(bundle, name)


def _as_written(text: str) -> bytes:
    """Return the bytes of a Python file, in the encoding that its first lines may name."""
    data = text.encode()
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data if encoding.startswith("utf-8") else text.encode(encoding)
    except (SyntaxError, UnicodeError):
        return data  # told where it is compiled


class user_program:  # noqa: N801 - reads as a statement: with user_program(module)
    """Lets ``import user_program`` give a module for a while."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module
        self._before: ModuleType | None = None

    def __enter__(self) -> None:
        self._before = sys.modules.get(USER_PROGRAM)
        sys.modules[USER_PROGRAM] = self._module

    def __exit__(self, *exc: object) -> None:
        if self._before is None:
            sys.modules.pop(USER_PROGRAM, None)
        else:
            sys.modules[USER_PROGRAM] = self._before


class AbsentExtension(ModuleType):
    """Stands for the extension in processes that do not run iterations."""

    def __init__(self) -> None:
        super().__init__(USER_PROGRAM)

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def absent(*_args: Any, **_kwargs: Any) -> NoReturn:
            raise UserCodeError(
                f"{USER_PROGRAM}.{name} was called outside of an iteration",
                hint="the extension is there in to_array and run_iteration only",
            )

        return absent


def call(name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function of a program; what it raises says which function it was."""
    import traceback  # noqa: PLC0415 - only errors need it, and it is slow to import

    try:
        with noted(name):
            return function(*args, **kwargs)
    except SapwoodError:
        raise
    except MemoryError:
        raise
    except (Exception, SystemExit) as error:  # an exit would end the prompt or the agent
        frame = error.__traceback__.tb_next if error.__traceback__ is not None else None
        raise UserCodeError(
            f"{type(error).__qualname__}: {error}",
            where=name,
            details={
                "exception type": type(error).__qualname__,
                "traceback": "".join(traceback.format_exception(type(error), error, frame)),
            },
        ) from error
