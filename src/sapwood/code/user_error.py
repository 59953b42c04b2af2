"""From an exception of user code to the error that its caller gets."""

from __future__ import annotations

import os
import traceback
from typing import Final

from sapwood.core.errors import (
    EXCEPTION_TYPE,
    MemoryLimitError,
    SapwoodError,
    UserCodeError,
    nearest_builtin,
)
from sapwood.core.shown import shown

_OWN: Final = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120 - text is compared
"""Where frames are from that call user code."""

_ENVIRONMENT: Final = type(os.environ).__getitem__.__code__

_NO_VARIABLE: Final = (
    "agents have the environment variables of their machines, not those of your shell: give it by "
    "--env NAME, or environment={name: value} in Python"
)

_READ_ONLY: Final = (
    "arrays that arrive as arguments are read-only, because other calls share their memory: change "
    "a copy, x = x.copy()"
)


class ProcessExit(SystemExit):
    """User code called ``os._exit`` in the process of a command, which continues instead."""


def user_error(
    problem: BaseException, *, pickles: bool = False, of_agent: bool = True
) -> SapwoodError:
    """Return the error for an exception of user code, with the user's part of the traceback.

    It never raises, whatever the exception does when it is printed.

    Args:
        problem: The exception.
        pickles: Whether the error carries the exception, pickled.
        of_agent: Whether an agent raised it; otherwise the process that holds the run did.

    Example:
        >>> try:
        ...     {}["rank"]
        ... except KeyError as problem:
        ...     user_error(problem).what
        "KeyError: 'rank'"
    """
    try:
        return _error_of(problem, pickles=pickles, of_agent=of_agent)
    except BaseException:  # noqa: BLE001 - exceptions of users may do anything when looked at
        name = type(problem).__qualname__
        return UserCodeError(
            name,
            hint="the exception could not be looked at: its own methods raise",
            details={EXCEPTION_TYPE: nearest_builtin(type(problem)).__name__},
        )


def _error_of(problem: BaseException, *, pickles: bool, of_agent: bool) -> SapwoodError:
    if isinstance(problem, SystemExit):
        name = "os._exit" if isinstance(problem, ProcessExit) else "sys.exit"
        return UserCodeError(
            f"user code called {name}({shown(problem.code)})",
            hint="return from the function instead of ending the process",
        )
    if isinstance(problem, SapwoodError):
        cause = problem.__cause__
        return _out_of_memory(cause) if isinstance(cause, MemoryError) else problem
    if isinstance(problem, MemoryError):
        return _out_of_memory(problem)
    error = UserCodeError(
        _one_line(problem),
        hint=_hint(problem, of_agent=of_agent),
        details={
            EXCEPTION_TYPE: nearest_builtin(type(problem)).__name__,
            "traceback": _traceback(problem),
        },
    )
    if pickles and isinstance(problem, Exception):
        from sapwood.code import pickling  # noqa: PLC0415 - few runners need it

        error.exception = pickling.dump_exception(problem)
    return error


def _hint(problem: BaseException, *, of_agent: bool) -> str:
    if of_agent and _misses_variable(problem):
        return _NO_VARIABLE
    # The words of numpy, and of what Cython has compiled.
    is_read_only = isinstance(problem, ValueError) and "read-only" in _one_line(problem)
    return _READ_ONLY if is_read_only else ""


def _out_of_memory(problem: MemoryError) -> MemoryLimitError:
    return MemoryLimitError(
        f"user code ran out of memory: {problem}".rstrip(": "),
        hint="use more agents or smaller chunks, or raise limits.memory",
        details={"traceback": _traceback(problem)},
    )


def _one_line(problem: BaseException) -> str:
    name = type(problem).__qualname__
    try:
        text = str(problem)
    except BaseException:  # noqa: BLE001 - user code; that it failed is reported all the same
        return name
    return f"{name}: {text}" if text else name


def _traceback(problem: BaseException) -> str:
    """Return the traceback from the user's code on."""
    frame = problem.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OWN):
        frame = frame.tb_next
    try:
        return "".join(traceback.format_exception(type(problem), problem, frame))
    except BaseException:  # noqa: BLE001 - what it looks at may be code of the user's
        lines = traceback.format_tb(frame)
        return "".join(["Traceback (most recent call last):\n", *lines, _one_line(problem), "\n"])


def _misses_variable(problem: BaseException) -> bool:
    """Whether an environment variable was read that is not set."""
    frame = problem.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    return frame is not None and frame.tb_frame.f_code is _ENVIRONMENT
