"""The client's event loop: a reactor that other threads may give functions to."""

import contextlib
import os
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from sapwood.comm.reactor import OnError, Reactor
from sapwood.core.errors import ClosedError

FEWEST_FRAMES = 200
"""Lowest recursion limit at which the loop works. All threads of a process have the same limit, so
the loop raises one that the user's code has set below this."""


class SharedReactor(Reactor):
    """A reactor with a second entrance, for all other threads.

    Lost-wake-up protocol: the loop sets ``_asleep`` before it checks the queue, and a producer
    appends to the queue before it reads ``_asleep``, and writes the eventfd only if it is set.

    Args:
        on_error: As for :class:`~sapwood.comm.reactor.Reactor`.

    Example:
        >>> reactor = SharedReactor()
        >>> reactor.call_soon_threadsafe(reactor.stop)
        >>> reactor.run()
        >>> reactor.close()
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        super().__init__(on_error)
        self._given: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._asleep = False
        self._refuses = self._closed = False
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.add_reader(self._bell, self._heard)

    @property
    def bell(self) -> int:
        """Descriptor of the eventfd that wakes the loop."""
        return self._bell

    @property
    def has_to_do(self) -> bool:
        """Whether it was given functions, by its own thread or others, that it has not called."""
        return bool(self._given or self._soon)

    def closed(self) -> bool:
        """Return whether functions are no longer called."""
        return self._refuses

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call a function on the loop's thread, in the order in which they are given.

        Raises:
            ClosedError: The loop was closed.
        """
        if self.closed():
            raise ClosedError("the event loop has ended")
        self._given.append((callback, args))
        if self.closed():
            self._call_rest()  # at this moment no other thread does it
        elif self._asleep:
            with contextlib.suppress(OSError):  # closed at this moment
                os.eventfd_write(self._bell, 1)

    def call_in_order(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call a function after what other threads have given so far; on the loop's thread.

        Raises:
            ClosedError: The loop was closed.
        """
        if self.closed():
            raise ClosedError("the event loop has ended")
        (self._given or self._soon).append((callback, args))

    def refuse(self) -> None:
        """Refuse functions from now on; called when the loop does not run.

        Functions that other threads gave it before are called now, because they may wait for
        results.
        """
        self._refuses = True
        self._call_rest()

    def close(self) -> None:
        """Refuse functions, and close what the loop itself holds."""
        if not self._closed:
            self._closed = True
            try:
                self.refuse()
            finally:
                super().close()
                os.close(self._bell)

    def _call_rest(self) -> None:
        while True:
            try:
                callback, args = self._given.popleft()
            except IndexError:  # there is none, or another thread was faster
                return
            try:
                callback(*args)
            except BaseException as error:
                if self._on_error is None:
                    raise
                self._on_error(error)

    def _heard(self) -> None:
        os.eventfd_read(self._bell)

    def _patience(self) -> float:
        patience = super()._patience()
        self._asleep = True
        return 0.0 if self._given else patience

    def _woke(self) -> None:
        self._asleep = False
        if sys.getrecursionlimit() < FEWEST_FRAMES:
            sys.setrecursionlimit(FEWEST_FRAMES)
        given, soon = self._given, self._soon
        while given:
            soon.append(given.popleft())
