"""The event loop of agents and junctions: descriptors, timers, and nothing else.

A process that is forked by the hundred pays for every page that its event loop touches, and for
the import of that loop before the first of them is there. This one does what a place in a tree
needs (:class:`sapwood.comm.loop.Loop`) on ``epoll``; ``docs/decisions/`` has the figures.
"""

import contextlib
import heapq
import select
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

_READ = select.EPOLLIN
_WRITE = select.EPOLLOUT
_ENDED = select.EPOLLHUP | select.EPOLLERR


class ReactorTimer:
    """A function that is due at a time."""

    __slots__ = ("args", "callback")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.callback: Callable[..., Any] | None = callback
        self.args = args

    def cancel(self) -> None:
        """Let it not happen."""
        self.callback = None
        self.args = ()


class Reactor:
    """An event loop for one thread.

    What a callback raises ends :meth:`run`: whoever runs it decides. It opens its descriptor when
    it runs: before that a process that has one may still be forked.

    Attributes:
        idle_hook: Waits in place of :meth:`wait`, with the same arguments and result: what may
            happen while the loop has nothing to do. None: nothing.
        replayed: The time that is to be told during a replay; None otherwise.

    Example:
        >>> reactor = Reactor()
        >>> _ = reactor.call_later(0.001, reactor.stop)
        >>> reactor.run()
    """

    def __init__(self) -> None:
        self.idle_hook: Callable[[float], list[tuple[int, int]]] | None = None
        self.replayed: float | None = None
        self._epoll: select.epoll | None = None
        self._readers: dict[int, Callable[[], Any]] = {}
        self._writers: dict[int, Callable[[], Any]] = {}
        self._timers: list[tuple[float, int, ReactorTimer]] = []
        self._count = 0
        self._soon: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()
        self._stopped = False

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
        timer = ReactorTimer(callback, args)
        self._count += 1  # so that timers of one time are never compared
        heapq.heappush(self._timers, (monotonic() + delay, self._count, timer))
        return timer

    # --- the loop --------------------------------------------------------------------------------

    def stop(self) -> None:
        """Let :meth:`run` return after what is being done now."""
        self._stopped = True

    def run(self) -> None:
        """Wait for descriptors and times until :meth:`stop`; it may be called again."""
        epoll = self._open()
        readers, writers, soon = self._readers, self._writers, self._soon
        while not self._stopped:
            ready = (self.idle_hook or epoll.poll)(self._patience())
            self._woke()
            for fd, events in ready:
                if events & ~_WRITE:
                    callback = readers.get(fd)
                    if callback is not None:
                        callback()
                    elif events & _ENDED and fd not in writers:
                        with contextlib.suppress(OSError):  # closed by a callback before this one
                            epoll.unregister(fd)
                if events & ~_READ:
                    callback = writers.get(fd)
                    if callback is not None:
                        callback()
            if self._timers:
                self._run_due()
            while soon:
                function, args = soon.popleft()
                function(*args)
        self._stopped = False

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
        return max(0.0, timers[0][0] - monotonic()) if timers else -1.0

    def _run_due(self) -> None:
        timers, now = self._timers, monotonic()
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if timer.callback is not None:
                timer.callback(*timer.args)
