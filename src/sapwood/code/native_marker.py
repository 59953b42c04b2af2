"""Naming a native function in the body of a program class."""

from __future__ import annotations

from typing import Any

from sapwood.core.errors import ProgramError


class Native:
    """A class attribute that stands for a function of the program's native sources.

    As ``map`` it is called with the parameters that its C signature names. Under any other
    name it can be called from the program's Python methods where the library is loaded: in
    the map, on the agents.
    """

    def __init__(self, function: str) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        loaded = instance.loaded_functions
        if loaded is None:
            raise ProgramError(
                f"native function {self.function} is not loaded in this process",
                where=type(instance).__name__,
                hint="call it in the map, or submit program"
                f'["{self.function}"] to a cluster; init and update run where no library is loaded',
            )
        return loaded(self.function)

    def __repr__(self) -> str:
        return f'native("{self.function}")'


def native(function: str) -> Any:
    """Name a function of the program's C or C++ sources in the body of a program class.

    Args:
        function: Its name in the source; in C++ it must be ``extern "C"``.

    Example:
        >>> from sapwood.code.program import Program
        >>> class KMeans(Program):
        ...     sources = ["assign.c"]
        ...     reduce = {"sums": "sum", "counts": "sum"}
        ...     map = native("assign")
    """
    return Native(function)
