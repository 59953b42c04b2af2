"""Back-pressure (flow control) for the user's threads: a fast writer waits for slow readers."""

import threading
from collections import deque

from sapwood.core.errors import DataValueError, SapwoodError
from sapwood.session.loop_thread import LoopThread

LARGEST = 2**63 - 1
"""Bytes of one value, where nothing else bounds them."""

DEFAULT_BACKLOG = 256 * 2**20
"""Bytes of one stream's open waves, unless ``comm.backlog`` says otherwise."""

ENTRY_COST = 1024
"""Bytes that anything under way costs beyond its own: its future and what belongs to it."""


def check_size(nbytes: int, largest: int) -> None:
    """Refuse what is too large to be sent at once.

    Args:
        nbytes: Its size.
        largest: The largest size that may be sent.

    Raises:
        DataValueError: It is too large.
    """
    if nbytes > largest:
        raise DataValueError(
            f"{nbytes} bytes are too many to be sent to the root of this session at once",
            where=f"comm.max_payload is {largest} there",
            hint="send several smaller arrays, or put the data where the agents read them",
        )


class ByteLimiter:
    """Bounds the bytes that are under way; a thread that would exceed the limit blocks.

    When nothing is inside, the limiter lets a value of any size in. The loop's own thread never
    waits: it is the one that lets others out.

    Args:
        limit: Bytes that may be inside.
        thread: The loop's thread.

    Attributes:
        largest: Bytes of the largest value that may go in.

    Example:
        >>> thread = LoopThread("none")
        >>> limiter = ByteLimiter(3000, thread)
        >>> limiter.enter(1000)
        >>> limiter.inside
        2024
        >>> limiter.leave(1000)
        >>> thread.stop()
    """

    def __init__(self, limit: int, thread: LoopThread) -> None:
        self.largest = LARGEST
        self._limit = limit
        self._thread = thread
        self._inside = 0
        self._queue: deque[object] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._closed: SapwoodError | None = None

    @property
    def inside(self) -> int:
        """Bytes that are inside."""
        return self._inside

    @property
    def waiting(self) -> int:
        """Threads that wait to be let in."""
        return len(self._queue)

    def enter(self, nbytes: int) -> None:
        """Go in; wait for room, in the order of arrival: a large value is not overtaken for ever.

        Raises:
            DataValueError: It is too large for this session.
            SapwoodError: The limiter was closed meanwhile.
        """
        check_size(nbytes, self.largest)
        cost = nbytes + ENTRY_COST
        with self._changed:
            if (self._queue or not self._has_room(cost)) and not self._thread.is_current:
                self._wait(cost)
            self._inside += cost

    def _has_room(self, cost: int) -> bool:
        return not self._inside or self._inside + cost <= self._limit

    def _wait(self, cost: int) -> None:
        """Wait for the turn and for room; with the lock held."""
        turn = object()
        self._queue.append(turn)
        try:
            self._changed.wait_for(
                lambda: (
                    self._closed is not None or (self._queue[0] is turn and self._has_room(cost))
                )
            )
        finally:
            self._queue.remove(turn)
            self._changed.notify_all()  # there may be room for the next one, too
        if self._closed is not None:
            raise self._closed

    def leave(self, nbytes: int) -> None:
        """Leave without waiting."""
        with self._changed:
            self._inside -= nbytes + ENTRY_COST
            if self._queue:
                self._changed.notify_all()

    def close(self, reason: SapwoodError) -> None:
        """Fail all waiting callers."""
        with self._changed:
            self._closed = reason
            self._changed.notify_all()
