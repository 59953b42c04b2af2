"""The thread that runs a client's event loop, so that the user's threads stay their own."""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from sapwood.core.errors import ClosedError, SapwoodError
from sapwood.core.failures import as_error, fail, log_failure
from sapwood.core.futures import be_loop_thread
from sapwood.session.shared_reactor import FEWEST_FRAMES, SharedReactor

T = TypeVar("T")

_forks = 0


def _note_fork() -> None:
    global _forks  # noqa: PLW0603 - told apart from its parent without a system call
    _forks += 1


os.register_at_fork(after_in_child=_note_fork)


class LoopThread:
    """An event loop in a daemon thread.

    An exception of a function on the loop's thread is logged, and the loop continues. Functions
    for which a caller waits are given by :meth:`post_for` or :meth:`call`.

    Args:
        name: What the thread is called.
        failed: Called on the thread when the loop itself fails: it fails what callers wait for.

    Attributes:
        loop: The loop; touch it only from functions passed to :meth:`post` or :meth:`call`.
    """

    def __init__(self, name: str, failed: Callable[[SapwoodError], Any] | None = None) -> None:
        self._name = name
        self._loop_failed = failed
        self.loop = SharedReactor(self._failed)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._ident: int | None = None
        self._pid = os.getpid()
        self._forks = _forks

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def started(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is this thread."""
        return threading.get_ident() == self._ident

    @property
    def in_forked_child(self) -> bool:
        """Whether this process was forked from the one that has the thread."""
        return self._forks != _forks

    def refuse_forked_child(self) -> None:
        """Raise ClosedError in a process that was forked from the one that has the thread.

        A forked process has no such thread, and locks that no thread releases: code that may
        wait for one checks this first.
        """
        if self._forks != _forks:
            raise ClosedError(
                f"the cluster belongs to process {self._pid}, from which this one was forked",
                hint="make one here with sapwood.local()",
            )

    def post(self, function: Callable[..., Any], *args: Any) -> None:
        """Have a function called on the loop's thread; do not wait.

        Functions are called in the order in which they are posted, from whatever threads.

        Raises:
            ClosedError: The loop has ended, or is another process's.
        """
        self.refuse_forked_child()
        try:
            if self.is_current:
                self.loop.call_in_order(function, *args)
                return
            self.loop.call_soon_threadsafe(function, *args)
        except ClosedError as error:
            raise ClosedError("the cluster is closed") from error

    def post_for(
        self, failed: Callable[[SapwoodError], Any], function: Callable[..., Any], *args: Any
    ) -> None:
        """As :meth:`post`; an unexpected exception of the function is given to ``failed``.

        Raises:
            ClosedError: The loop has ended, or is another process's.
        """
        self.post(self._run_for, failed, function, args)

    def _run_for(
        self,
        failed: Callable[[SapwoodError], Any],
        function: Callable[..., Any],
        args: tuple[Any, ...],
    ) -> None:
        try:
            function(*args)
        except BaseException as exception:  # noqa: BLE001 - it fails what it is for, no more
            self._failed(exception)
            fail(f"a callback of '{self._name}'", failed, as_error(exception))

    def refuse_own_thread(self) -> None:
        """Raise SapwoodError on the loop's thread, which cannot wait for itself."""
        if self.is_current:
            raise SapwoodError(
                "the cluster's own thread cannot wait for the cluster",
                hint="do this outside of callbacks of futures and runs",
            )

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Have a function called on the loop's thread and return its result.

        Raises:
            SapwoodError: This is the loop's thread, which cannot wait for itself.
        """
        self.refuse_own_thread()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function(*args))
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                future.set_exception(error)

        self.post(run)
        return future.result()

    def stop(self) -> None:
        """End the loop and the thread."""
        if self._thread.is_alive():
            with contextlib.suppress(ClosedError):  # it ends because of a failure
                self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        self._ident = threading.get_ident()
        be_loop_thread()
        try:
            while True:
                try:
                    self.loop.run()
                    break
                except RecursionError:
                    if sys.getrecursionlimit() >= FEWEST_FRAMES:
                        raise
                    sys.setrecursionlimit(FEWEST_FRAMES)  # it was too low even to raise it there
        except BaseException as exception:  # noqa: BLE001 - the loop itself cannot continue
            doing = f"the event loop of '{self._name}'"
            log_failure(doing, exception)
            self.loop.refuse()  # calls what waits
            if self._loop_failed is not None:
                fail(doing, self._loop_failed, as_error(exception, doing))
            self.loop.close()
        finally:
            self._ident = None  # the next thread may get the same one

    def _failed(self, exception: BaseException) -> None:
        log_failure(f"a callback of '{self._name}'", exception)
