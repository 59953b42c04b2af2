"""Futures that callers get: they can be cancelled at any moment, and callbacks may do anything.

A future of the standard library raises ``InvalidStateError`` where it is completed after it was
cancelled, and calls its callbacks on the thread that completes it. Here that is an event loop,
which must neither end nor wait. So an event loop has callbacks of callers called on a separate
thread, the *dispatcher*.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from typing import Any, TypeVar

from sapwood.core.arguments import function, wait_time
from sapwood.core.errors import SapwoodError
from sapwood.core.failures import log_failure, new_thread

S = TypeVar("S")
T = TypeVar("T")

IDLE = 0.05
"""Seconds without a callback after which the dispatcher's thread ends."""

BLOCKED = 1.0
"""Seconds after which other callbacks do not wait any longer for one that has not returned."""

MAX_BLOCKED = 64
"""Callbacks that may be running at a time because they have not returned; then others wait."""

_here = threading.local()


def be_loop_thread() -> None:
    """Note that this thread runs an event loop: no code of callers runs on it from now on."""
    _here.runs_loop = True


def on_loop_thread() -> bool:
    """Return whether this thread runs an event loop."""
    return getattr(_here, "runs_loop", False)


class CallerFuture(Future[T]):
    """A future for callers; see the module.

    Example:
        >>> future = CallerFuture()
        >>> future.cancel()
        True
        >>> future.set_result(7)  # too late, and no error
        >>> future.cancelled()
        True
    """

    def set_result(self, result: T) -> None:
        """Complete the future, unless it was cancelled; never raises."""
        self._complete(super().set_result, result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Fail the future, unless it was cancelled; never raises."""
        self._complete(super().set_exception, exception)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Have a function called with this future when it is done; never on an event loop."""
        function(fn, "fn")
        if getattr(fn, "__module__", "") == "asyncio.futures":  # it only wakes another loop
            super().add_done_callback(fn)
            return
        super().add_done_callback(lambda done: dispatch(fn, done))

    def result(self, timeout: float | None = None) -> T:
        """Wait for the result and return it.

        Raises:
            ConfigurationError: ``timeout`` is not a number.
            SapwoodError: This is the thread of an event loop, which cannot wait.
        """
        timeout = wait_time(timeout)
        self._must_not_wait(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end and return the error, or None.

        Raises:
            ConfigurationError: ``timeout`` is not a number.
            SapwoodError: This is the thread of an event loop, which cannot wait.
        """
        timeout = wait_time(timeout)
        self._must_not_wait(timeout)
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, T]:
        """Wait in a coroutine, without blocking its loop; cancelling the wait cancels the future.

        Example:
            ::

                total = await cluster.submit(sum, [1, 2, 3])
        """
        import asyncio  # noqa: PLC0415 - agents have no such loop

        return asyncio.wrap_future(self).__await__()

    def _must_not_wait(self, timeout: float | None) -> None:
        if timeout != 0 and on_loop_thread() and not Future.done(self):
            raise SapwoodError(
                "the cluster's own thread cannot wait for the cluster",
                hint="do this outside of callbacks of the cluster",
            )

    def _notify_cancelled(self) -> None:
        """Notify waiters that the future was cancelled, unless another thread has done so."""
        with self._condition:
            if self._state == "CANCELLED":
                self.set_running_or_notify_cancel()

    def _complete(self, method: Callable[[Any], None], value: Any) -> None:
        try:
            method(value)
        except InvalidStateError:
            self._notify_cancelled()
        except BaseException as exception:  # noqa: BLE001 - a callback ends no thread of ours
            log_failure("a callback of a future", exception)


def when_done(future: Future[T], function: Callable[[Future[T]], object]) -> None:
    """Have a function of Sapwood's called when a future is done, on the thread that completes it.

    Args:
        future: The future.
        function: It must return at once.
    """
    Future.add_done_callback(future, function)


def then(future: Future[S], function: Callable[[S], T]) -> Future[T]:
    """Return a future of what a function makes of the result of another one.

    Args:
        future: The other one.
        function: It must return at once; what it raises is the error of the returned future.

    Example:
        >>> word = CallerFuture()
        >>> length = then(word, len)
        >>> word.set_result("junction")
        >>> length.result()
        8
    """
    made: Future[T] = CallerFuture()
    made.set_running_or_notify_cancel()

    def done(found: Future[S]) -> None:
        try:
            made.set_result(function(found.result()))
        except CancelledError as error:
            made.set_exception(error)
        except Exception as error:  # noqa: BLE001 - it is the error of the returned future
            made.set_exception(error)

    when_done(future, done)
    return made


def wait_for_peer(future: Future[T], timeout: float | None) -> T:
    """Wait for what another process answers, also on an event loop that must not continue before.

    Args:
        future: Completed by another thread than this one.
        timeout: Seconds.

    Raises:
        TimeoutError: It was not completed in time.
    """
    wait([future], timeout)
    return future.result(0)


def dispatch(function: Callable[..., object], *args: Any) -> None:
    """Call a function of a caller: here, or on the dispatcher if this thread runs an event loop."""
    if on_loop_thread():
        _dispatcher.call(function, *args)
    else:
        _call(function, args)


def _call(function: Callable[..., object], args: tuple[Any, ...]) -> None:
    try:
        function(*args)
    except BaseException as exception:  # noqa: BLE001 - it ends the callback and no more
        log_failure("a callback", exception)


class Dispatcher:
    """Calls functions of callers one after the other, on a separate thread.

    A function may wait for what a later one does. So when a function has not returned after
    :data:`BLOCKED` seconds and others wait, a second thread takes over, and the first one ends when
    its function returns.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._stopped = threading.Condition(lock)
        self._waiting: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._thread: threading.Thread | None = None
        self._standby: threading.Thread | None = None
        self._calls = 0
        self._calling = False
        self._blocked = 0

    def call(self, function: Callable[..., object], *args: Any) -> None:
        """Have a function called, soon and in order; never waits."""
        with self._changed:
            self._waiting.append((function, args))
            if self._thread is None:
                self._thread = new_thread("sapwood-callbacks", self._run)
                self._thread.start()
            self._watch()
            self._changed.notify()

    def _watch(self) -> None:
        """Start a thread that can take over, if a function runs and others wait for it."""
        wanted = self._calling and self._waiting and self._blocked < MAX_BLOCKED
        if wanted and self._standby is None:
            self._standby = new_thread("sapwood-callbacks", self._stand_by)
            self._standby.start()

    def _run(self) -> None:
        me = threading.current_thread()
        while True:
            with self._changed:
                self._calling = False
                if not self._changed.wait_for(lambda: self._waiting, IDLE):
                    self._thread = None  # the next callback starts another one
                    self._stopped.notify()
                    return
                function, args = self._waiting.popleft()
                self._calls += 1
                self._calling = True
                self._watch()
            _call(function, args)
            del function, args  # what they hold is free although no other callback comes
            with self._changed:
                if self._thread is not me:  # another thread has taken over
                    self._blocked -= 1
                    self._watch()
                    return

    def _stand_by(self) -> None:
        """Take over from a thread whose function does not return while others wait."""
        with self._changed:
            calls = self._calls
            while not self._stopped.wait_for(lambda: self._thread is None, BLOCKED):
                if self._calling and self._waiting and self._calls == calls:
                    break
                calls = self._calls
            self._standby = None
            if self._thread is None:
                return
            self._blocked += 1
            self._thread = threading.current_thread()
        self._run()


_dispatcher = Dispatcher()
