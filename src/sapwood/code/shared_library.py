"""Shared libraries in this process: load, call, unload; for every language that makes one."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import platform
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sapwood.code import floating_point
from sapwood.code.interface import Interface
from sapwood.code.native_binding import NativeFunction
from sapwood.core.errors import ProgramError

_ELF_MACHINES: Final[Mapping[int, str]] = {
    3: "i386",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv64",
}
"""Numbers of architectures in the header of an ELF file."""


class SharedLibrary:
    """A library that is loaded in this process.

    Args:
        path: Its file.
        interface: Its functions.

    Raises:
        ProgramError: It cannot be loaded here.
    """

    def __init__(self, path: Path, interface: Interface) -> None:
        self._interface = interface
        self._problem: Callable[[], bytes | None] | None = None
        try:
            with floating_point.preserved():
                self._library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            raise _not_loaded(path, error) from error

    def function(self, name: str, constants: Mapping[str, Any]) -> Callable[..., Any]:
        """Return a function of the library.

        Raises:
            ProgramError: The library has none of that name.
        """
        signature = self._interface.function(name)
        if signature is None:
            raise ProgramError(f"the library has no function {name}")
        try:
            found = self._library[name]
        except AttributeError as error:
            raise ProgramError(
                f"the library does not export function {name}, though it defines it",
                where=signature.where,
                hint="remove static, inline or a hidden visibility from it",
            ) from error
        return NativeFunction(signature, found, constants, self._problem)

    def symbol(self, name: str) -> Any:
        """Return a function that is not part of the interface, as ctypes has it; None for none."""
        try:
            return self._library[name]
        except AttributeError:
            return None

    def ask_after_calls(self, problem: Callable[[], bytes | None]) -> None:
        """Have a function asked after each call of the library what went wrong, if anything did."""
        self._problem = problem

    def close(self) -> None:
        """Unload it; its functions must not be called afterwards."""
        _ctypes.dlclose(self._library._handle)  # noqa: SLF001 - ctypes has no public name for it


def machine_of(path: Path) -> str:
    """Return the architecture that a library is for, or an empty text when it does not say.

    Example:
        >>> import sys
        >>> machine_of(Path("/proc/self/exe")) == platform.machine()
        True
    """
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return ""
    if len(header) < 20 or header[:4] != b"\x7fELF":
        return ""
    (number,) = struct.unpack_from("<H" if header[5] == 1 else ">H", header, 18)
    return _ELF_MACHINES.get(number, f"machine {number}")


def _not_loaded(path: Path, error: OSError) -> ProgramError:
    machine, here = machine_of(path), platform.machine()
    if machine and machine != here:
        return ProgramError(
            f"the built library is for {machine}, this machine is {here}",
            where=str(path),
            hint=f"build it for {here}",
        )
    if not machine and path.is_file():
        return ProgramError(
            "the built library is no ELF file",
            where=str(path),
            hint="remove the build cache and run again",
        )
    return ProgramError(
        f"the built library cannot be loaded: {error}",
        where=str(path),
        hint="it needs a library that this machine has not, or was built for another one",
    )
