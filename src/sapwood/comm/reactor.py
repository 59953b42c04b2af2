"""The event loop of agents and junctions: descriptors, timers, and nothing else.

A process that is forked by the hundred pays for every page that its event loop touches, and for
the import of that loop before the first of them is there. This one does what a place in a tree
needs (:class:`sapwood.comm.loop.Loop`) on ``epoll``; ``docs/decisions/`` has the figures.
"""

import contextlib
import heapq
import select
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_ENDED = select.EPOLLHUP | select.EPOLLERR


MANY_CANCELLED = 256
"""Cancelled timers that the heap may hold before they are removed, if they are half of it."""

LONGEST_WAIT = 86400.0
"""Seconds that the loop waits at most; ``epoll`` refuses more than 24 days."""

OnError = Callable[[BaseException], Any]


class ReactorTimer:
    """A function that is due at a time."""

    __slots__ = ("_on_cancel", "args", "callback")

    def __init__(
        self,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        on_cancel: Callable[[], None] | None = None,
    ) -> None:
        self._on_cancel = on_cancel
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Let it not happen; the reactor's thread only."""
        if self.callback is not None:
            self.callback = None
            self.args = ()
            if self._on_cancel is not None:
                self._on_cancel()


class Reactor:
    """An event loop for one thread.

    It opens its descriptor when it runs: before that a process that has one may still be forked.

    Args:
        on_error: Receives what a callback raises; then the loop continues with the next callback.
            Without it, :meth:`run` raises it. If ``on_error`` raises, so does :meth:`run`.

    Attributes:
        idle_hook: Replaces :meth:`wait`, with the same arguments and result, for work that may
            be done while the loop is idle; None for none.
        replayed: The time that the clock shows during a replay; None otherwise.

    Example:
        >>> reactor = Reactor()
        >>> _ = reactor.call_later(0.001, reactor.stop)
        >>> reactor.run()
    """

    def __init__(self, on_error: OnError | None = None) -> None:
        self._on_error = on_error
        self.idle_hook: Callable[[float], list[tuple[int, int]]] | None = None
        self.replayed: float | None = None
        self._epoll: select.epoll | None = None
        self._readers: dict[int, Callable[[], Any]] = {}
        self._writers: dict[int, Callable[[], Any]] = {}
        self._timers: list[tuple[float, int, ReactorTimer]] = []
        self._count = 0
        self._cancelled = 0
        self._soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._stopped = False
        self._ready: Iterator[tuple[int, int]] | None = None  # what this turn has still to call

    # --- descriptors -----------------------------------------------------------------------------

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> None:
        """Call a function whenever a descriptor can be read, or has ended."""
        known = fd in self._readers
        self._readers[fd] = callback
        if not known:
            self._watch(fd, known=fd in self._writers)

    def remove_reader(self, fd: int) -> bool:
        """Stop that; return whether there was something to stop."""
        if self._readers.pop(fd, None) is None:
            return False
        self._watch(fd, known=True)
        return True

    def add_writer(self, fd: int, callback: Callable[[], Any]) -> None:
        """Call a function whenever a descriptor can be written."""
        known = fd in self._writers
        self._writers[fd] = callback
        if not known:
            self._watch(fd, known=fd in self._readers)

    def remove_writer(self, fd: int) -> bool:
        """Stop that; return whether there was something to stop."""
        if self._writers.pop(fd, None) is None:
            return False
        self._watch(fd, known=True)
        return True

    def _watch(self, fd: int, *, known: bool) -> None:
        if self._epoll is None:
            return
        events = (_READ if fd in self._readers else 0) | (_WRITE if fd in self._writers else 0)
        if not events:
            self._epoll.unregister(fd)
        elif known:
            self._epoll.modify(fd, events)
        else:
            self._epoll.register(fd, events)

    # --- time ------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time, seconds."""
        return monotonic() if self.replayed is None else self.replayed

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call a function after what is being done now."""
        self._soon.append((callback, args))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> ReactorTimer:
        """Call a function after a time, seconds."""
        timer = ReactorTimer(callback, args, self._timer_cancelled)
        self._count += 1  # so that timers of one time are never compared
        heapq.heappush(self._timers, (monotonic() + delay, self._count, timer))
        return timer

    @property
    def timers(self) -> int:
        """Timers in the heap, with those that are cancelled and not removed yet."""
        return len(self._timers)

    def _timer_cancelled(self) -> None:
        """Remove cancelled timers once they are half of the heap."""
        self._cancelled += 1
        if self._cancelled >= MANY_CANCELLED and 2 * self._cancelled >= len(self._timers):
            # In place: _run_due() may be going through it.
            self._timers[:] = [entry for entry in self._timers if entry[2].callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    # --- the loop --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let :meth:`run` return after what is being done now."""
        self._stopped = True

    def run(self) -> None:
        """Wait for descriptors and times until :meth:`stop`; it may be called again."""
        self._open()
        while self._ready is not None or not self._stopped:
            try:
                self._turn()
            except BaseException as error:
                if self._on_error is None:
                    self._ready = None
                    raise
                self._handle(error, self._on_error)
        self._stopped = False

    def _turn(self) -> None:
        """Wait and call back until :meth:`stop`; an exception leaves the rest of a turn."""
        wait = self._open().poll
        soon = self._soon
        while self._ready is not None or not self._stopped:
            if self._ready is None:
                self._ready = iter((self.idle_hook or wait)(self._patience()))
                self._woke()
            self._call_ready(self._ready)
            if self._timers:
                self._run_due()
            while soon:
                function, args = soon.popleft()
                function(*args)
                del function, args  # what they hold is free while the loop waits
            self._ready = None

    def _call_ready(self, ready: Iterator[tuple[int, int]]) -> None:
        readers, writers = self._readers, self._writers
        for fd, events in ready:
            if events & ~_WRITE:
                callback = readers.get(fd)
                if callback is not None:
                    callback()
                elif events & _ENDED and fd not in writers:
                    with contextlib.suppress(OSError):  # closed by a callback before this one
                        self._open().unregister(fd)
            if events & ~_READ:
                callback = writers.get(fd)
                if callback is not None:
                    callback()

    def _handle(self, error: BaseException, on_error: OnError) -> None:
        """Report an error of a callback; an error of the wait itself cannot be overcome."""
        if self._ready is None:
            if self.idle_hook is None:
                raise error
            self.idle_hook = None  # a shortcut: the loop works without it
        on_error(error)

    def wait(self, seconds: float) -> list[tuple[int, int]]:
        """Return the descriptors that are ready, with what for.

        Args:
            seconds: How long to wait at most; below 0: until there is one.
        """
        return self._open().poll(seconds)

    def fileno(self) -> int:
        """Return the descriptor that the loop waits on."""
        return self._open().fileno()

    def close(self) -> None:
        """Close what the loop itself holds, and forget what was to be called."""
        for waiting in (self._readers, self._writers, self._timers, self._soon):
            waiting.clear()
        if self._epoll is not None:
            self._epoll.close()

    def _open(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
            for fd in self._readers.keys() | self._writers.keys():
                self._watch(fd, known=False)
        return self._epoll

    def _woke(self) -> None:
        """Called after each wait."""

    def _patience(self) -> float:
        """Seconds until the next timer; negative without one."""
        if self._soon:
            return 0.0
        timers = self._timers
        while timers and timers[0][2].callback is None:
            heapq.heappop(timers)
            self._cancelled -= 1
        return min(max(0.0, timers[0][0] - monotonic()), LONGEST_WAIT) if timers else -1.0

    def _run_due(self) -> None:
        timers, now = self._timers, monotonic()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            callback, timer.callback = timer.callback, None
            if callback is None:
                self._cancelled -= 1
            else:
                callback(*timer.args)
