"""Messages in the order in which they were meant to leave, though filters take their time."""

from __future__ import annotations

from sapwood.comm import events as ev

Effects = list[ev.Effect]


class Outbox:
    """Effects of one stream; those of a filter come later, and what follows waits for them.

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
