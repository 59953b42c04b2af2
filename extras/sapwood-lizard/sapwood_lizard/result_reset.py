"""Setting a result in C memory to zero before each iteration.

A kernel that only adds would otherwise continue from the iteration before. Programs differ in how
they can reset: some reset a structure that they are given, others only make a new one. A program
is observed until it has reset a result that was not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, Protocol

from sapwood.errors import ProgramError
from sapwood_lizard.packing import open_text
from sapwood_lizard.structures import DYNAMIC

FLOAT_PRECISION = 1e-6
"""Relative difference of numbers that went through a C float."""


class Encoder(Protocol):
    """What of a program a reset needs."""

    module: ModuleType
    params: Any

    def fresh_result(self) -> Any:
        """Return an empty aggregation result."""

    def encode(self, structure: Any) -> str:
        """Return a structure as text."""


class ResultReset:
    """Resets the aggregation result of a worker.

    Args:
        program: The program.
        result: The result, just set up in C memory.
    """

    def __init__(self, program: Encoder, result: Any) -> None:
        self._program = program
        self._result = result
        self._text = program.encode(program.fresh_result())
        self._zero = open_text(self._text)
        self._set_up = self._now()
        self._ways: list[Callable[[], None]] = [self._by_program, self._by_decoding]
        self._proven = False

    def apply(self) -> None:
        """Reset the result.

        Raises:
            ProgramError: No way of the program resets it.
        """
        if self._proven:
            self._ways[0]()
            return
        dirty = not self._is_zero(self._now())
        problem: Exception | None = None
        while self._ways:
            try:
                self._ways[0]()
                if self._is_zero(self._now()):
                    self._proven = dirty
                    return
            except Exception as error:  # noqa: BLE001 - user code; the other way may work
                problem = problem or error
            del self._ways[0]
        raise ProgramError(
            "init_aggregation_result does not reset a result that is set up in C memory",
            hint="let it write zeros into the aggregation_result that it is given: "
            "values = aggregation_result.get_ref(...); for i in ...: values[i] = 0",
        ) from problem

    def _by_program(self) -> None:
        module, params = self._program.module, self._program.params
        module.init_aggregation_result(params, aggregation_result=self._result)

    def _by_decoding(self) -> None:
        self._result.decode(self._text, self._program.params)

    def _now(self) -> Any:
        return open_text(self._program.encode(self._result))

    def _is_zero(self, now: Any) -> bool:
        """Say whether a result is that of no points.

        What lies behind pointers must be; other fields may also be as they were set up.
        """
        if not isinstance(now, dict) or not isinstance(self._zero, dict):
            return alike(now, self._zero)
        return now.keys() == self._zero.keys() and all(
            alike(value, self._zero[key])
            or (key != DYNAMIC and alike(value, self._set_up.get(key)))
            for key, value in now.items()
        )


def alike(a: Any, b: Any) -> bool:
    """Say whether two values are the same, but for what C types make of numbers.

    Example:
        >>> alike([0, 0.1, -1], [0.0, 0.10000000149011612, 4294967295]), alike([0], [1])
        (True, False)
    """
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return _same_number(a, b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    return bool(a == b)


def _same_number(a: float, b: float) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return (a - b) % 2**32 == 0  # of another signedness
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        largest = 3.4e38
        return (a > largest and b > largest) or (a < -largest and b < -largest)
    return math.isclose(a, b, rel_tol=FLOAT_PRECISION)
