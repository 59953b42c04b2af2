"""Calls of a program's own functions in this process, and what ends those that take too long.

Servers and clients call them: modules are imported, parameters and data decoded, states updated. A
function that never returns would keep the one worker from all that waits behind it.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import Final, TypeVar

from sapwood.errors import TimeLimitError
from sapwood.plugins.tools import CallerFuture, logger, start_thread

T = TypeVar("T")

CALL_LIMIT: Final = 600.0
"""Seconds that one call may take; lizard-slayer's own scripts wait no longer for a whole run."""

LOOK: Final = 0.25
"""Seconds between two checks of running calls."""

GIVEN_UP_AFTER: Final = 5.0
"""Seconds that a call gets to end when it was interrupted; C code does not notice."""

_log = logger("lizard")


class _TookTooLong(BaseException):  # no Exception: programs catch those
    """Raised where a call takes too long."""


class _GoingOn:
    """A running call.

    Args:
        name: Of the function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.since = time.monotonic()
        self.interrupted = 0.0


_calls: dict[threading.Thread, _GoingOn] = {}
_given_up: set[threading.Thread] = set()


@contextlib.contextmanager
def noted(name: str) -> Iterator[None]:
    """Note that a function of a program is called, until the block ends."""
    thread = threading.current_thread()
    if thread in _calls:  # it was called by another one, whose time counts
        yield
        return
    _calls[thread] = _GoingOn(name)
    try:
        yield
    finally:
        del _calls[thread]


def overseen(function: Callable[[], T], limit: Callable[[], float] = lambda: CALL_LIMIT) -> T:
    """Do something that calls functions of a program, on a separate thread; return its result.

    Args:
        function: It; what it calls may be in other threads, too.
        limit: Returns the seconds that each call may take; asked again and again.

    Raises:
        TimeLimitError: A call took longer. It was interrupted; if it did not notice, its thread is
            left alone.
    """
    answer: Future[T] = CallerFuture()

    def work() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - whoever waits gets it
            answer.set_exception(error)

    start_thread("sapwood-overseen", work)
    late = ""
    while not wait([answer], LOOK).done:
        for thread, call in tuple(_calls.items()):
            allowed = limit()
            if thread in _given_up or time.monotonic() - call.since < allowed:
                continue
            late = f"{call.name} did not return within {allowed:g} s"
            if not call.interrupted:
                call.interrupted = time.monotonic()
                _interrupt(thread)
            elif time.monotonic() - call.interrupted > GIVEN_UP_AFTER:
                _given_up.add(thread)
                _log.warning("a call exceeds its time limit and is abandoned", function=call.name)
                raise _too_late(late)
    try:
        return answer.result()
    except _TookTooLong as error:
        raise _too_late(late) from error


def left_alone() -> bool:
    """Return whether a call is running that only the end of this process ends."""
    return any(thread.is_alive() for thread in _given_up)


def _too_late(what: str) -> TimeLimitError:
    return TimeLimitError(what, hint="the program's function must return; see its loops and waits")


def _interrupt(thread: threading.Thread) -> None:
    """Raise an exception in a thread that runs Python."""
    number = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(number, ctypes.py_object(_TookTooLong))
