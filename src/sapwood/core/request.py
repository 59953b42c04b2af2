"""Handles of operations that are under way: futures that can be tested and waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures import CancelledError as FutureCancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, NamedTuple

from sapwood.core import arguments
from sapwood.core.arguments import wait_time
from sapwood.core.futures import CallerFuture, dispatch


class Message(NamedTuple):
    """A message that was received.

    Attributes:
        value: The sent value.
        source: Rank of the place that sent it; 0 is the client.
        tag: Its tag.
    """

    value: Any
    source: int
    tag: int


class Request(CallerFuture[Any]):
    """An operation that is under way: a ``concurrent.futures.Future`` with more words.

    It can be waited for (:meth:`wait`, ``result``), asked (:meth:`test`, ``done``), taken back
    (``cancel``), and awaited (``asyncio.wrap_future``).

    Args:
        on_cancel: Takes the operation back; returns whether that was still possible.

    Example:
        >>> request = Request()
        >>> request.test()
        False
        >>> request.set_result(7)
        >>> request.wait(1.0), request.result()
        (True, 7)
    """

    def __init__(self, on_cancel: Callable[[Request], bool] | None = None) -> None:
        super().__init__()
        self._on_cancel = on_cancel
        self._moved = (0, 0)
        self._on_progress: list[Callable[[int, int], None]] = []

    def test(self) -> bool:
        """Return whether it is done, without waiting."""
        return self._progress(0.0)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is done or ``timeout`` seconds have passed; return whether it is done."""
        return self._progress(wait_time(timeout))

    def result(self, timeout: float | None = None) -> Any:
        """Wait and return the result.

        Raises:
            TimeoutError: It took longer than ``timeout`` seconds; the operation continues.
        """
        return super().result(self._left(wait_time(timeout)))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait and return the error, or None."""
        return super().exception(self._left(wait_time(timeout)))

    def cancel(self) -> bool:
        """Take the operation back; return whether that was still possible.

        A message that is being sent is taken back where it has not arrived, which takes a moment:
        this returns False, and the result is a ``CancelledError`` if it was in time.
        """
        if self._on_cancel is not None and not self.done() and not self._on_cancel(self):
            return False
        return super().cancel()

    def progress(self) -> tuple[int, int]:
        """Return how much of a large message has arrived, and its size, in bytes.

        Both are 0 as long as nothing is known, and for what travels in one piece.
        """
        return self._moved

    def on_progress(self, function: Callable[[int, int], None]) -> None:
        """Have ``function(arrived, total)`` called while a large message moves, in bytes.

        It may do anything: an exception that it raises is logged, and the message moves on.
        """
        self._on_progress.append(arguments.function(function, "function"))

    def set_result(self, result: Any) -> None:
        """Note the result; what moved in pieces is there now."""
        arrived, total = self._moved
        if arrived < total:
            self.moved(total, total)
        super().set_result(result)

    def moved(self, arrived: int, total: int) -> None:
        """Note how much of a large message has arrived; for those who move it."""
        self._moved = (arrived, total)
        for function in self._on_progress:
            dispatch(function, arrived, total)

    def _progress(self, timeout: float | None) -> bool:
        """Wait for the end of the operation; those in a runner see to it themselves."""
        try:
            super().exception(timeout)
        except FutureTimeoutError:
            return self.done()
        except FutureCancelledError:
            return True
        return True

    def _until_any(self, requests: list[Request], timeout: float | None) -> None:
        """Wait until one of several requests may be done."""
        del self  # any of them knows how
        wait(requests, timeout, FIRST_COMPLETED)

    def _left(self, timeout: float | None) -> float | None:
        """Make progress; return the time that is left then."""
        del self  # progress of these is made by others
        return timeout


def wait_all(requests: Iterable[Request], timeout: float | None = None) -> bool:
    """Wait until all requests are done, or ``timeout`` seconds have passed.

    Returns:
        Whether all are done.

    Example:
        >>> first, second = Request(), Request()
        >>> first.set_result(1)
        >>> wait_all([first, second], timeout=0)
        False
    """
    timeout = wait_time(timeout)
    end = None if timeout is None else time.monotonic() + timeout
    ended = [
        one.wait(None if end is None else max(0.0, end - time.monotonic())) for one in requests
    ]
    return all(ended)


def wait_any(requests: Iterable[Request], timeout: float | None = None) -> Request | None:
    """Wait until one of several requests is done, or ``timeout`` seconds have passed.

    Returns:
        The first in order that is done, or None.

    Example:
        >>> first, second = Request(), Request()
        >>> second.set_result(2)
        >>> wait_any([first, second]) is second
        True
    """
    waiting = list(requests)
    timeout = wait_time(timeout)
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        for one in waiting:
            if one.test():
                return one
        left = None if end is None else end - time.monotonic()
        if not waiting or (left is not None and left <= 0):
            return None
        waiting[0]._until_any(waiting, left)  # noqa: SLF001 - of one family


def take_message(request: Request, timeout: float | None) -> Message:
    """Wait for the message of a receive; without one in time, take the receive back.

    Raises:
        TimeoutError: There was none in time.
    """
    if not request.wait(timeout) and request.cancel():
        raise TimeoutError(f"no message came in {timeout:g} s")
    message: Message = request.result()
    return message
