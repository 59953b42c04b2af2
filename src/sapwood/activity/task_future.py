"""The future of a task: opens what came pickled, and ends the call when it is cancelled."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NoReturn

from sapwood.code.pickling import open_exception, open_pickled
from sapwood.comm.values import Pickled
from sapwood.core.errors import (
    CancelledError,
    DataValueError,
    SapwoodError,
    UserCodeError,
    with_exception,
)
from sapwood.session.interface import RequestFuture


class TaskFuture(RequestFuture):
    """The future of a task. Unlike a plain ``Future``, its ``cancel`` also stops a running call.

    A result or exception that came pickled is opened on the thread that first asks for it.

    Args:
        function: Name of the called function, for messages.
        opens: Whether pickles may be opened.

    Attributes:
        begun: Whether an agent has, or had, the task.
        on_cancel: Called when the task is cancelled, after that is noted.
        was_cancelled: Whether that is noted.
    """

    def __init__(self, function: str, *, opens: bool) -> None:
        super().__init__()
        self.on_cancel: Callable[[], None] = _nothing
        self.begun = False
        self._function = function
        self._opens = opens
        self._is_trusted = True
        self._lock = threading.RLock()
        self.was_cancelled: bool = False
        self._is_opened = False
        self._value: Any = None
        self._error: BaseException | None = None

    def cancel(self) -> bool:
        """Take the task back; a call that runs is ended, and with it the agent's runner.

        Returns:
            True if that was in time; False only if the task was done.
        """
        if not super().cancel():
            return False
        with self._lock:
            first, self.was_cancelled = not self.was_cancelled, True
        if first:
            self._notify_cancelled()
            self.on_cancel()
        return True

    def running(self) -> bool:
        """Whether an agent has the task."""
        return self.begun and not self.done()

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the result and return it.

        Raises:
            TimeoutError: It has not arrived after ``timeout`` seconds; the call continues.
            CancelledError: The task was cancelled.
            UserCodeError: The function raised an exception; the error is one of that class, too.
            SapwoodError: The call did not finish.
        """
        error = self.exception(timeout)
        if error is None:
            return self._value
        try:
            raise error
        finally:
            del error, self  # as in the standard library: no cycle through the traceback

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the task and return its error, or None.

        Raises:
            TimeoutError: It has not ended after ``timeout`` seconds; the call continues.
            CancelledError: The task was cancelled.
        """
        if self._is_opened:
            return self._error
        try:
            error = super().exception(timeout)
        except Exception:
            if self.cancelled():
                raise self._cancelled() from None
            raise
        with self._lock:
            if not self._is_opened:
                self._open(error)
                self._is_opened = True
        return self._error

    def distrust(self) -> None:
        """Open no pickle: the agent that answers has joined by an invitation."""
        self._is_trusted = False

    def settle(self, value: Any, error: BaseException | None) -> None:
        """Set the outcome of the task, unless it was cancelled."""
        self.on_cancel = _nothing
        with contextlib.suppress(InvalidStateError):
            if error is not None:
                self.set_exception(error)
            else:
                self.set_result(value)

    def _open(self, error: BaseException | None) -> None:
        opens = self._opens and self._is_trusted
        if error is not None:
            self._error = error
            if isinstance(error, UserCodeError) and error.exception and opens:
                exception = open_exception(error.exception)
                if exception is not None:
                    self._error = with_exception(error, exception)
            return
        value = Future.result(self)  # it is here
        if type(value) is not Pickled:
            self._value = value
        elif not opens:
            whose, hint = "", "set tasks.pickle = true, if results of the agents may be opened"
            if not self._is_trusted:
                whose = " from an agent that has joined by an invitation"
                hint = "return numbers, texts, arrays, or lists and dictionaries of them"
            self._error = DataValueError(
                f"the result came pickled{whose}, which is not allowed here",
                where=self._function,
                hint=hint,
            )
        else:
            try:
                self._value = open_pickled(value)
            except SapwoodError as known:  # it says what to do
                self._error = known.located(self._function)
            except Exception as problem:  # noqa: BLE001 - whatever the user's classes raise
                self._error = DataValueError(
                    f"the result cannot be opened: {type(problem).__qualname__}: {problem}",
                    where=self._function,
                    hint="its classes must be found here as on the agent",
                )
                self._error.__cause__ = problem
            value.data, value.buffers = b"", ()  # the pickle is not wanted any more

    def _cancelled(self) -> CancelledError:
        return CancelledError("the task was cancelled", where=self._function)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise DataValueError(
            f"the future of {self._function} cannot be sent to an agent",
            hint="pass it as an argument of cluster.submit(), which sends its result instead, "
            "or pass future.result()",
        )

    def __repr__(self) -> str:
        if self.cancelled():
            state = "cancelled"
        elif not self.done():
            state = "running" if self.begun else "waiting"
        else:
            error = super().exception()
            state = "done" if error is None else f"failed: {type(error).__name__}"
        return f"<Future of {self._function}: {state}>"


def follow(future: TaskFuture, other: TaskFuture) -> None:
    """Settle a future as another one was settled; pickles stay closed until a caller asks."""
    if not other._is_trusted:  # noqa: SLF001 - of this module
        future.distrust()
    error = Future.exception(other, 0)
    future.settle(None if error else Future.result(other, 0), error)


def _nothing() -> None:
    """Do nothing: no agent has the task."""


def futures_in(value: Any) -> "list[Future[Any]]":
    """Return the futures in a value: itself, or in lists, tuples, sets and dictionaries."""
    found: dict[int, Future[Any]] = {}
    _walk(value, lambda future: found.setdefault(id(future), future))
    return list(found.values())


def with_results(value: Any) -> Any:
    """Return a value with the result of each future in the future's place; all are done.

    Example:
        >>> future = Future()
        >>> future.set_result(2)
        >>> with_results({"a": [1, future]})
        {'a': [1, 2]}

    Raises:
        Exception: What the task of a future raised.
    """
    return _walk(value, lambda future: future.result())


def _walk(value: Any, visit: "Callable[[Future[Any]], Any]", depth: int = 0) -> Any:
    if isinstance(value, Future):
        return visit(value)
    kind = type(value)
    if depth > _DEPTH:
        return value
    if kind in {list, tuple, set}:
        return kind([_walk(item, visit, depth + 1) for item in value])
    if kind is dict:
        return {key: _walk(item, visit, depth + 1) for key, item in value.items()}
    return value


_DEPTH = 16
"""Nesting of lists and dictionaries in which futures are looked for."""
