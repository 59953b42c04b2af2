"""Calls of a program's methods in the process of the run; their errors say which method it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sapwood.code.program import Program
from sapwood.code.user_error import user_error
from sapwood.core.arguments import whole
from sapwood.core.errors import ProgramError, SapwoodError
from sapwood.data.dataset import Dataset

T = TypeVar("T")


class ProgramCalls:
    """Calls the methods of a program.

    Args:
        program: The program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program

    def init(self, data: Dataset) -> dict[str, Any]:
        """Return the first state."""
        return checked_state(self._program, "init", self._call("init", self._program.init, data))

    def result(self, state: dict[str, Any]) -> Any:
        """Return the result of the run."""
        return self._call("result", self._program.result, state)

    def iterations(self) -> int | None:
        """Return how many iterations the program plans; None where only the data decide."""
        planned: object = self._call("iterations", self._program.iterations)
        if planned is None:
            return None
        return max(0, whole(planned, f"{self._program.name}.iterations()", ProgramError))

    def metrics(self, state: dict[str, Any]) -> dict[str, float]:
        """Return what the program says of a state."""
        found = self._call("metrics", self._program.metrics, state)
        if found is None:
            raise nothing_returned(self._program, "metrics", "a dictionary of numbers")
        try:
            return {str(name): float(value) for name, value in found.items()}
        except (AttributeError, TypeError, ValueError, OverflowError) as error:
            raise ProgramError(
                f"metrics must be a dictionary of numbers: {error}",
                where=f"{self._program.name}.metrics",
                hint="return for example {'error': 0.5}",
            ) from error

    def _call(self, what: str, function: Callable[..., T], *args: Any) -> T:
        try:
            return function(*args)
        except SapwoodError:
            raise
        except (Exception, SystemExit) as error:  # an exit would end who waits for the run
            raise self.error_of(what, error) from error

    def error_of(self, what: str, error: BaseException) -> SapwoodError:
        """Return an error of the user's code in a method."""
        made = user_error(error, of_agent=False)
        made.where = f"{self._program.name}.{what}"
        return made


def wanted_fields(program: Program, data: Dataset) -> list[str] | None:
    """Return the fields that the agents need; None for a range, which has none."""
    if not data.fields:
        return None
    missing = [name for name in program.inputs if name not in data]
    if missing:
        raise ProgramError(
            f"the program wants the fields {', '.join(program.inputs)}, "
            f"the data have {', '.join(data.fields)}",
            where=program.name,
            hint="pass a dictionary of arrays with those names",
        )
    return list(program.inputs)


def checked_state(program: Program, method: str, state: Any) -> dict[str, Any]:
    """Return what a method gave as the state.

    Raises:
        ProgramError: It is not a dictionary.
    """
    if state is None:
        raise nothing_returned(program, method, "the state, a dictionary")
    if not isinstance(state, dict):
        raise ProgramError(
            f"{method} returned a value of type {type(state).__name__}, and a state must be a "
            "dictionary",
            where=f"{program.name}.{method}",
            hint='return a dictionary of arrays and numbers, as in {"centres": centres}',
        )
    return state


def nothing_returned(program: Program, method: str, wanted: str) -> ProgramError:
    """Return the error of a method without a return statement."""
    return ProgramError(
        f"{method} returned nothing",
        where=f"{program.name}.{method}",
        hint=f"end the method with a return statement: it must return {wanted}",
    )
