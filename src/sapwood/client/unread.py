"""Results of a stream that wait to be read.

Pushed values wait here, and their agent is notified only when they were read: an agent that has
sent a window of values sends no more until then. So nothing is dropped, and a slow reader slows
its writers down (back-pressure). A caller that waits for the end of a wave cannot read meanwhile,
so agents need not wait while such a caller does.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sapwood.core.errors import ResourceError, SapwoodError
from sapwood.core.futures import CallerFuture, when_done
from sapwood.session.interface import WaveResult

UNREAD = 256
"""Results of waves that are kept to be read once more, also where their future has told them."""

MAX_ANSWERS = 10_000
"""Answers to waves of a stream that does not wait which may be unread when a wave begins."""

READ_AT_ONCE = 16
"""Values of one agent that are read before it is notified: a part of its window."""

Results = Future[WaveResult]
Told = Callable[[dict[int, int]], None]


class Unread:
    """The results of one stream that were not read.

    Args:
        told: Given how many values of which agents were read.
        latest: Whether the oldest are dropped when there are too many, without a word.

    Attributes:
        changed: Held and notified when something changes.
        dropped: Results that were dropped so far.
    """

    def __init__(self, told: Told, *, latest: bool) -> None:
        self.changed = threading.Condition()
        self.dropped = 0
        self._told = told
        self._latest = latest
        self._results: deque[tuple[Results, int]] = deque()
        self._lost = 0
        self._answers = 0
        self._awaited = 0
        self._read: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._results)

    def add_wave(self, future: Results) -> None:
        """Keep the result of a wave, of which its future tells as well."""
        with self.changed:
            self._results.append((future, 0))
            while len(self._results) > UNREAD and self._results[0][0].done():
                oldest, _ = self._results.popleft()
                if not (isinstance(oldest, WaveFuture) and oldest.told):
                    self._drop()
            self.changed.notify_all()

    def add(self, result: WaveResult | SapwoodError) -> None:
        """Keep a pushed value, an answer, or an error."""
        future: Results = CallerFuture()
        source = 0
        if isinstance(result, SapwoodError):
            future.set_exception(result)
        else:
            future.set_result(result)
            source = 0 if result.wave else result.ranks[0][0]
        with self.changed:
            if source and self._awaited and not self._latest:
                self._told({source: 1})
                source = 0
            self._results.append((future, source))
            self._answers += not source
            while self._latest and len(self._results) > UNREAD:
                self._results.popleft()
                self._drop()
            self.changed.notify_all()

    def _drop(self) -> None:
        self.dropped += 1
        self._lost += not self._latest

    def check_room(self) -> None:
        """Refuse a wave whose answers would be too many.

        Raises:
            ResourceError: Too many wait to be read.
        """
        if not self._latest and self._answers >= MAX_ANSWERS:
            raise ResourceError(
                f"{self._answers} results of the stream wait to be read",
                hint='read them with stream.waves(), or open the stream with keep="latest"',
            )

    def first(self) -> Results | None:
        """Return the oldest result; None if there is none. To be called with :attr:`changed`.

        Raises:
            ResourceError: Some were dropped before; once.
        """
        if self._lost:
            lost, self._lost = self._lost, 0
            raise ResourceError(
                f"{lost} results of the stream were dropped because they were not read in time",
                hint='read stream.waves() or the futures, or open the stream with keep="latest"',
            )
        return self._results[0][0] if self._results else None

    def read(self, future: Results) -> None:
        """Note that the oldest result was read."""
        with self.changed:
            if not self._results or self._results[0][0] is not future:
                return
            _, source = self._results.popleft()
            self._answers -= not source
            if source:
                self._read[source] += 1
            if self._read[source] >= READ_AT_ONCE:
                self._tell()

    def _tell(self) -> None:
        read, self._read = dict(self._read), Counter()
        read.pop(0, None)
        if read and not self._latest:
            self._told(read)

    def await_end(self, future: Results) -> None:
        """Let agents push without limit until a wave is over, because a caller waits for it."""
        with self.changed:
            self._awaited += 1
            results, self._results = self._results, deque()
            for result, source in results:
                if source:
                    self._read[source] += 1
                    self._answers += 1
                self._results.append((result, 0))
            self._tell()
        when_done(future, self._ended)

    def _ended(self, _future: Results) -> None:
        with self.changed:
            self._awaited -= 1


class WaveFuture(CallerFuture[WaveResult]):
    """The result of a wave; knows whether it was looked at."""

    told = False

    def result(self, timeout: float | None = None) -> WaveResult:
        """Return the result, as any future does."""
        result = super().result(timeout)
        self.told = True
        return result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, as any future does."""
        error = super().exception(timeout)
        self.told = True
        return error


class EndFuture(CallerFuture[WaveResult]):
    """The end of a wave of an unsynchronised stream, with a notice when a caller waits for it.

    Args:
        unread: Where values come meanwhile.
    """

    def __init__(self, unread: Unread) -> None:
        super().__init__()
        self._unread = unread
        self._is_awaited = False
        self._waiters = _Waiters(self._await)

    def _await(self) -> None:
        if not self._is_awaited and not Future.done(self):
            self._is_awaited = True
            self._unread.await_end(self)

    def result(self, timeout: float | None = None) -> WaveResult:
        """Return the result, as any future does."""
        self._await()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, as any future does."""
        self._await()
        return super().exception(timeout)

    def done(self) -> bool:
        """Return whether it is done."""
        self._await()
        return super().done()

    def add_done_callback(self, fn: Callable[[Results], object]) -> None:
        """Have a function called, as any future does."""
        self._await()
        super().add_done_callback(fn)


class _Waiters(list[Any]):
    """Where ``concurrent.futures.wait`` and ``as_completed`` enter who waits for a future."""

    def __init__(self, entered: Callable[[], None]) -> None:
        super().__init__()
        self._entered = entered

    def append(self, waiter: Any) -> None:
        super().append(waiter)
        self._entered()
