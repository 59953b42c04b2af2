"""Whose chunk is sent next, so that a slow puller delays itself only: decisions without I/O."""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from sapwood.content.refs import CHUNK
from sapwood.core.errors import ResourceError, invariant

MAX_IN_FLIGHT: Final = 32 * CHUNK
"""Bytes of chunks that were sent and not taken yet, to all pullers together. Beyond it, each puller
gets one chunk at a time."""

MAX_OF_ONE: Final = 4 * CHUNK
"""Bytes of chunks that were sent to one puller and not taken yet."""

MAX_WAITING: Final = 1024
"""Chunks that one puller waits for."""

T = TypeVar("T")


class _Puller(Generic[T]):
    """The chunks of one puller."""

    __slots__ = ("in_flight", "waiting")

    def __init__(self) -> None:
        self.in_flight = 0
        self.waiting: deque[tuple[T, int]] = deque()


class SendQueue(Generic[T]):
    """Chunks that were requested, are on their way, or wait for their turn.

    Pullers take turns. A puller to which nothing is on its way always gets its next chunk, however
    much others have not taken; so at most :data:`MAX_IN_FLIGHT` bytes and one chunk for each puller
    are on their way.

    Attributes:
        in_flight: Bytes that were sent and not taken yet.

    Example:
        >>> queue = SendQueue()
        >>> queue.add(7, "chunk", 100)
        >>> queue.next()
        (7, 'chunk', 100)
        >>> queue.taken(7, 100)
        >>> len(queue)
        0
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self._pullers: dict[int, _Puller[T]] = {}

    def __len__(self) -> int:
        """Return for how many pullers there is something."""
        return len(self._pullers)

    def add(self, puller: int, item: T, nbytes: int) -> None:
        """Queue a chunk.

        Raises:
            ResourceError: The puller waits for too many.
        """
        one = self._pullers.setdefault(puller, _Puller())
        if len(one.waiting) >= MAX_WAITING:
            raise ResourceError(f"more than {MAX_WAITING} requests for content of one place wait")
        one.waiting.append((item, nbytes))

    def next(self) -> tuple[int, T, int] | None:
        """Return puller, chunk and size of what is to be sent now; it is in flight from now on."""
        for number, puller in self._pullers.items():
            if puller.waiting and self._may_get(puller, puller.waiting[0][1]):
                item, nbytes = puller.waiting.popleft()
                puller.in_flight += nbytes
                self.in_flight += nbytes
                self._pullers[number] = self._pullers.pop(number)  # the others come first now
                self._check(puller)
                return number, item, nbytes
        return None

    def taken(self, puller: int, nbytes: int) -> None:
        """A chunk was taken, or never will be."""
        one = self._pullers[puller]
        one.in_flight -= nbytes
        self.in_flight -= nbytes
        self._check(one)
        if not (one.in_flight or one.waiting):
            del self._pullers[puller]

    def clear(self) -> list[T]:
        """Return all chunks that wait, which are not to be sent."""
        found = [item for one in self._pullers.values() for item, _ in one.waiting]
        for number, one in list(self._pullers.items()):
            one.waiting.clear()
            if not one.in_flight:
                del self._pullers[number]
        return found

    def _may_get(self, puller: _Puller[T], nbytes: int) -> bool:
        if not puller.in_flight:
            return True
        fits = puller.in_flight + nbytes <= MAX_OF_ONE
        return fits and self.in_flight + nbytes <= MAX_IN_FLIGHT

    def _check(self, puller: _Puller[T]) -> None:
        invariant(0 <= puller.in_flight <= MAX_OF_ONE, "each puller has its bound")
        invariant(
            puller.in_flight <= self.in_flight <= MAX_IN_FLIGHT + CHUNK * len(self._pullers),
            "all pullers together have a bound",
        )
