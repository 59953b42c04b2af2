"""What a stream with user-defined filters needs: its outbox, and contributions kept as they came.

The core calls no user code. The wave engine asks for it with an event, whoever drives the core
runs the filter in another process, and the answer comes back as an event. What the stream sends
meanwhile waits in its :class:`Outbox`, so that messages keep their order.
"""

from __future__ import annotations

from sapwood.comm import events as ev
from sapwood.comm.payload import Payload
from sapwood.core.errors import InternalError, SapwoodError

Effects = list[ev.Effect]

ALL = -1
"""Child of a value that is the same for all of them."""


class Outbox:
    """Effects of one stream; effects of a filter come later, and the following ones wait for them.

    Example:
        >>> outbox = Outbox()
        >>> outbox.put([ev.ParentUp()])
        [ParentUp()]
        >>> ticket = outbox.reserve()
        >>> outbox.put([ev.ParentUp()])
        []
        >>> outbox.fill(ticket, [ev.Disconnect(1, "")])
        [Disconnect(link=1, reason=''), ParentUp()]
    """

    __slots__ = ("_next", "_slots")

    def __init__(self) -> None:
        self._slots: dict[int, Effects | None] = {}
        self._next = 1

    def reserve(self) -> int:
        """Keep the next place in the row; return its number for :meth:`fill`."""
        number = self._next
        self._next += 1
        self._slots[number] = None
        return number

    def put(self, effects: Effects) -> Effects:
        """Return these effects, or keep them behind what is still missing."""
        if not self._slots:
            return effects
        self._slots[self.reserve()] = effects
        return []

    def fill(self, ticket: int, effects: Effects) -> Effects:
        """Put the missing effects in; return all that can leave now."""
        if ticket not in self._slots:
            return []
        self._slots[ticket] = effects
        leaving: Effects = []
        while self._slots:
            first = next(iter(self._slots))
            ready = self._slots[first]
            if ready is None:
                break
            del self._slots[first]
            leaving += ready
        return leaving

    def __len__(self) -> int:
        return len(self._slots)


class NoOutbox:
    """The outbox of a stream without filters: nothing ever waits in it."""

    __slots__ = ()

    def reserve(self) -> int:
        """Refuse: there is nothing to wait for.

        Raises:
            InternalError: Always.
        """
        raise InternalError("a stream without filters has no outbox")

    def put(self, effects: Effects) -> Effects:
        """Return these effects."""
        return effects

    def fill(self, _ticket: int, effects: Effects) -> Effects:
        """Return these effects."""
        return effects

    def __len__(self) -> int:
        return 0


NO_OUTBOX = NoOutbox()


class Parts:
    """Contributions as they came, for a user-defined filter.

    Args:
        first: Offset that is added to ranks.
    """

    __slots__ = ("_first", "parts")

    def __init__(self, first: int = 0) -> None:
        self._first = first
        self.parts: list[ev.PartialContribution] = []

    def add(self, body: bytes, payload: Payload | None, rank: int, weight: float) -> None:
        """Take one more contribution."""
        self.parts.append(ev.PartialContribution(rank + self._first, weight, body, payload))

    def partial(self) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def placed(self, _value: object) -> tuple[bytes, Payload | None]:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def total(self) -> object:
        """Refuse: the filter does this."""
        raise SapwoodError("a user-defined filter puts these contributions together")

    def chunked(self, _offers: object) -> None:
        """Say that they cannot be put together piece by piece."""
