"""A program's library in the process of a runner."""

from __future__ import annotations

import _ctypes
import ctypes
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sapwood.errors import ExecutionError, FunctionMissingError, ProgramError
from sapwood.plugins.programs import floating_point
from sapwood_lizard.block_size import recommended_block
from sapwood_lizard.hardware import first_device
from sapwood_lizard.module import USER_PROGRAM


class ProgramLibrary:
    """The functions of a program, and what its device says.

    Args:
        path: The library, built with our own source beside the program's.

    Raises:
        ProgramError: It cannot be loaded here.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            with floating_point.preserved():
                self._library: Any = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise ProgramError(
                f"the program's library cannot be loaded: {error}",
                where=path,
                hint="it was built for another machine, or a function is declared that no "
                "source defines",
            ) from error
        self._begin: Any = self.function("sapwood_lizard_begin", [])
        self._end: Any = self.function("sapwood_lizard_end", [])
        self._end.restype = ctypes.c_char_p
        on_gpu = self._library["sapwood_lizard_on_gpu"]()
        self.recommended_block = recommended_block(first_device() if on_gpu else None)

    def function(self, name: str, arguments: Sequence[Any]) -> Any:
        """Return a function of C that returns nothing.

        Raises:
            FunctionMissingError: The library has none of that name.
        """
        try:
            function = self._library[name]
        except AttributeError:
            raise FunctionMissingError(
                f"the program's library has no function {name}", where=self.path
            ) from None
        function.argtypes = arguments
        function.restype = None
        return function

    def close(self) -> None:
        """Unload the library; its functions must not be called afterwards."""
        if self._library is not None:
            handle: int = self._library._handle  # noqa: SLF001 - ctypes has no public name for it
            self._library = self._begin = self._end = None
            _ctypes.dlclose(handle)

    @contextmanager
    def watching(self, name: str) -> Iterator[None]:
        """Raise what the device says after a call.

        Raises:
            ExecutionError: A kernel or a call of the CUDA runtime failed.
        """
        with floating_point.preserved():
            self._begin()
            yield
            error = self._end()
        if error is not None:
            raise ExecutionError(
                f"the device reports an error after {name}: {error.decode('utf-8', 'replace')}",
                where=name,
                hint="check what each CUDA call and launch returns",
            )

    def extension(self) -> ModuleType:
        """Return the library as the module ``user_program``.

        Raises:
            ProgramError: It is not an extension of that name.
        """
        loader = importlib.machinery.ExtensionFileLoader(USER_PROGRAM, self.path)
        spec = importlib.util.spec_from_file_location(USER_PROGRAM, self.path, loader=loader)
        try:
            if spec is None:
                raise ImportError("no loader")
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
        except ImportError as error:
            raise ProgramError(
                f"the program's library is not a Python extension: {error}",
                where=Path(self.path).name,
                hint=f"the wrapper must define PyInit_{USER_PROGRAM}",
            ) from error
        return module
