"""Exactly once and in order: sequence numbers, acknowledgements, sliding windows. No I/O.

Between two places there is, for each channel and direction, one :class:`SendWindow` at the sender
and one :class:`ReceiveWindow` at the receiver. Links below may lose what was on its way when they
broke, and bring things twice or in another order when the tree changed; a receive window hands out
each item once, in the order in which it was posted.

Numbers belong to an *epoch*: the sender's incarnation, and how often it had to restart
because the receiver's process was replaced. What a receive window does with an arrival is a table::

    epoch     number      what happens
    old       any         DROP      the sender's process, or its hope, is gone
    current   expected    DELIVER
    current   duplicate   REPEAT    the acknowledgement was lost: say it again
    current   early       KEEP      and say what is missing
    current   beyond      DROP      outside of the window: no sender of ours does that
    new       any         the window restarts, then as current
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from sapwood.core.errors import CommunicationError

T = TypeVar("T")

MAX_BACKLOG = 100_000
"""Items of one send window that wait until there is room (back-pressure)."""

MAX_WINDOW = 256
"""Largest window: items on their way between two places on one channel."""

MAX_MISSING = 64
"""Missing numbers that one acknowledgement names."""

EPOCH_SHIFT = 32
"""An epoch is the incarnation of the sender's process, shifted, plus a count of beginnings."""

LONGEST_PATIENCE = 8
"""Factor to which the time-out of an item that is sent again and again grows."""


class SequenceOrder(enum.Enum):
    """How a number relates to what a receive window expects."""

    EXPECTED = "expected"
    DUPLICATE = "duplicate"
    EARLY = "early"
    BEYOND = "beyond"


class Action(enum.Enum):
    """What a receive window does with an arrival."""

    DELIVER = "deliver"
    REPEAT = "repeat"
    KEEP = "keep"
    DROP = "drop"


ARRIVALS: dict[SequenceOrder, Action] = {
    SequenceOrder.EXPECTED: Action.DELIVER,
    SequenceOrder.DUPLICATE: Action.REPEAT,
    SequenceOrder.EARLY: Action.KEEP,
    SequenceOrder.BEYOND: Action.DROP,
}
"""Order within the current epoch → action; an older epoch is dropped, a newer one becomes it."""


class Posted(Generic[T]):
    """An item on its way.

    Attributes:
        number: Its place in the order.
        item: The posted item.
        due: When it is sent again if nothing was heard of it.
        tries: How often it was sent.
    """

    __slots__ = ("due", "item", "number", "tries")

    def __init__(self, number: int, item: T, due: float) -> None:
        self.number = number
        self.item = item
        self.due = due
        self.tries = 1


class SendWindow(Generic[T]):
    """What one place sends another on one channel.

    Args:
        incarnation: Of the sender's process.
        window: Items that may be on their way at a time.
        patience: Seconds until an item is sent again.

    Attributes:
        epoch: Under which the items are numbered now.
        peer: Incarnation of the receiver's process, 0 while nothing was heard of it.

    Example:
        >>> send_window = SendWindow(incarnation=1, window=2, patience=1.0)
        >>> [send_window.post(0.0, message) for message in "abc"]
        [1, 2, 0]
        >>> acknowledged, more = send_window.acknowledge(0.1, send_window.epoch, 1, upto=1)
        >>> [one.item for one in acknowledged], [one.item for one in more]
        (['a'], ['c'])
    """

    __slots__ = ("_backlog", "_next", "_patience", "_sent", "_window", "epoch", "peer")

    def __init__(self, incarnation: int, window: int, patience: float) -> None:
        self.epoch = incarnation << EPOCH_SHIFT
        self.peer = 0
        self._window = min(window, MAX_WINDOW)
        self._patience = patience
        self._next = 1
        self._sent: deque[Posted[T]] = deque()
        self._backlog: deque[T] = deque()

    def __len__(self) -> int:
        return len(self._sent) + len(self._backlog)

    @property
    def room(self) -> int:
        """Items that would be sent at once."""
        return 0 if self._backlog else self._window - len(self._sent)

    @property
    def next(self) -> int:
        """The number of the item that is sent next."""
        return self._next

    def post(self, now: float, item: T) -> int:
        """Take an item in; return its number if it is to be sent now, else 0.

        Raises:
            CommunicationError: Too many wait.
        """
        if not self._backlog and len(self._sent) < self._window:
            return self._send(now, item).number
        if len(self._backlog) >= MAX_BACKLOG:
            raise CommunicationError(
                f"more than {MAX_BACKLOG} messages to one place wait to be sent",
                hint="wait for some of them first",
            )
        self._backlog.append(item)
        return 0

    def acknowledge(
        self, now: float, epoch: int, peer: int, upto: int, missing: tuple[int, ...] = ()
    ) -> tuple[list[Posted[T]], list[Posted[T]]]:
        """Take an acknowledgement in.

        Args:
            now: Time, seconds.
            epoch: Of the items that it is about; others are not looked at.
            peer: Incarnation of the process that wrote it.
            upto: All items up to this number have arrived.
            missing: Numbers above it that have not, though later ones have.

        Returns:
            The items that are acknowledged now, and the items to send.
        """
        if epoch != self.epoch:
            return [], []
        self.peer = peer
        done: list[Posted[T]] = []
        sent = self._sent
        while sent and sent[0].number <= upto:
            done.append(sent.popleft())
        again = [one for one in sent if one.number in missing]
        for one in again:
            self._again(now, one)
        while self._backlog and len(sent) < self._window:
            again.append(self._send(now, self._backlog.popleft()))
        return done, again

    def overdue(self, now: float) -> list[Posted[T]]:
        """Return what was not acknowledged in time; it is to be sent again."""
        late = [one for one in self._sent if one.due <= now]
        for one in late:
            self._again(now, one)
        return late

    def cancel(self, item: T) -> bool:
        """Take an item back; return whether it had not been sent yet."""
        try:
            self._backlog.remove(item)
        except ValueError:
            return False
        return True

    def begin_anew(self) -> list[T]:
        """The receiver's process is gone: return what it did not acknowledge, number from 1."""
        left = [one.item for one in self._sent] + list(self._backlog)
        self._sent.clear()
        self._backlog.clear()
        self._next = 1
        self.epoch += 1
        self.peer = 0
        return left

    def _send(self, now: float, item: T) -> Posted[T]:
        posted = Posted(self._next, item, now + self._patience)
        self._next += 1
        self._sent.append(posted)
        return posted

    def _again(self, now: float, one: Posted[T]) -> None:
        one.due = now + self._patience * min(1 << one.tries, LONGEST_PATIENCE)
        one.tries += 1


class ReceiveWindow(Generic[T]):
    """What one place gets from another on one channel.

    Items wait in the window until whoever reads takes them; only what was taken is acknowledged,
    so a reader that does not keep up stops the sender (flow control).

    Args:
        first_epoch: Oldest epoch that is listened to.

    Attributes:
        epoch: Of the sender, as far as it is known.
        owed: Items that were taken and not acknowledged yet.

    Example:
        >>> window = ReceiveWindow()
        >>> epoch = 1 << EPOCH_SHIFT
        >>> window.arrive(epoch, 2, "b"), window.arrive(epoch, 1, "a"), list(window.take_all())
        (<Action.KEEP: 'keep'>, <Action.DELIVER: 'deliver'>, ['a', 'b'])
    """

    __slots__ = ("_early", "_expected", "_highest", "_named", "epoch", "owed")

    def __init__(self, first_epoch: int = 0) -> None:
        self.epoch = first_epoch
        self.owed = 0
        self._expected = 1
        self._highest = 0
        self._named = 0
        self._early: dict[int, T] = {}

    @property
    def upto(self) -> int:
        """Everything up to this number was taken."""
        return self._expected - 1

    @property
    def waiting(self) -> bool:
        """Whether the next item is here."""
        return self._expected in self._early

    @property
    def early(self) -> bool:
        """Whether anything is here that was not taken."""
        return bool(self._early)

    def is_next(self, epoch: int, number: int) -> bool:
        """Whether an item is the one that is expected, and nothing waits."""
        return number == self._expected and epoch == self.epoch and not self._early

    def passed(self) -> int:
        """The expected item went by without waiting here; return how many to acknowledge."""
        self._expected += 1
        self.owed += 1
        return self.owed

    def arrive(self, epoch: int, number: int, item: T) -> Action:
        """Receive an item and return what to do with it."""
        if epoch != self.epoch:
            if epoch < self.epoch:
                return Action.DROP
            self.forget(epoch)
        action = ARRIVALS[self._order(number)]
        if action is Action.DELIVER or action is Action.KEEP:
            self._early[number] = item
            self._highest = max(self._highest, number)
        return action

    def next(self) -> T:
        """Return the next item, which must be here, and leave it."""
        return self._early[self._expected]

    def take(self) -> T:
        """Take the next item, which must be here."""
        item = self._early.pop(self._expected)
        self._expected += 1
        self.owed += 1
        return item

    def take_all(self) -> Iterator[T]:
        """Take what is here in order."""
        while self.waiting:
            yield self.take()

    def missing(self, *, again: bool = False) -> tuple[int, ...]:
        """Return numbers that are missing though later ones are here.

        Args:
            again: Name those as well that were named before.
        """
        start = self._expected if again else max(self._expected, self._named + 1)
        found: list[int] = []
        for number in range(start, self._highest):
            if number not in self._early:
                found.append(number)
                if len(found) == MAX_MISSING:
                    break
        if found:
            self._named = found[-1]
        return tuple(found)

    def acknowledged(self) -> int:
        """Note that an acknowledgement goes out now; return up to where."""
        self.owed = 0
        return self._expected - 1

    def forget(self, epoch: int) -> None:
        """Begin anew with an epoch."""
        self.epoch = epoch
        self.owed = 0
        self._expected = 1
        self._highest = 0
        self._named = 0
        self._early.clear()

    def _order(self, number: int) -> SequenceOrder:
        if number == self._expected:
            return SequenceOrder.DUPLICATE if number in self._early else SequenceOrder.EXPECTED
        if number < self._expected or number in self._early:
            return SequenceOrder.DUPLICATE
        return SequenceOrder.EARLY if number < self._expected + MAX_WINDOW else SequenceOrder.BEYOND
