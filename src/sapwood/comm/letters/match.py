"""Which message goes to which receive: by source and tag, in order. No I/O."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from sapwood.core.errors import CommunicationError, ConfigurationError

T = TypeVar("T")

ANY = -1
"""Any source, or any tag."""

MAX_UNEXPECTED = 1024
"""Messages of one place that nobody has asked for yet; their senders wait from then on."""

MAX_UNEXPECTED_BYTES = 16 * 2**20
"""Bytes of such messages; large ones lie where they came from and do not count."""

MAX_RECEIVES = 100_000
"""Receives of one place that wait for a message."""

MAX_TAG = 2**63 - 1
"""Largest tag; the smallest is 0."""


def check_tag(tag: Any) -> int:
    """Return a tag if it is one.

    Raises:
        ConfigurationError: It is not an integer from 0.
    """
    if isinstance(tag, bool) or not isinstance(tag, int) or not 0 <= tag <= MAX_TAG:
        raise ConfigurationError(f"{tag!r} is no tag", hint="use an integer from 0 to 2**63 - 1")
    return tag


def check_places(ranks: Iterable[Any], agents: int) -> None:
    """Raise ConfigurationError if one of the ranks is neither the front end nor an agent."""
    for rank in ranks:
        if rank not in range(agents + 1):
            raise ConfigurationError(
                f"there is no agent {rank!r}", hint=f"the agents are 1 to {agents}"
            )


def to_ranks(destination: int | Iterable[int]) -> tuple[int, ...]:
    """Return where a message goes: one place or several, each once.

    Raises:
        ConfigurationError: Nowhere, or something that is no rank.
    """
    ranks = (destination,) if isinstance(destination, int) else tuple(dict.fromkeys(destination))
    if not ranks or not all(isinstance(rank, int) for rank in ranks):
        raise ConfigurationError(
            f"a message cannot be sent to {destination!r}", hint="use a rank, or a list of ranks"
        )
    return ranks


class Receive(NamedTuple):
    """A receive that waits: its number, and what it wants."""

    number: int
    source: int
    tag: int

    def wants(self, source: int, tag: int) -> bool:
        """Whether a message is for it."""
        return self.source in {ANY, source} and self.tag in {ANY, tag}


class Unexpected(NamedTuple, Generic[T]):
    """A message that nobody has asked for yet; ``nbytes`` is what it takes up here."""

    source: int
    tag: int
    nbytes: int
    item: T


class Matching(Generic[T]):
    """The receives and the unexpected messages of one place.

    A message goes to the receive that was posted first among those that want it; a receive gets
    the message that came first among those it wants.

    Example:
        >>> matching = Matching()
        >>> matching.arrived(3, 7, 1, "early") is None
        True
        >>> matching.posted(Receive(1, ANY, 7))
        Unexpected(source=3, tag=7, nbytes=1, item='early')
        >>> matching.posted(Receive(2, 3, ANY)) is None, matching.arrived(3, 9, 1, "late")
        (True, Receive(number=2, source=3, tag=-1))
    """

    def __init__(self) -> None:
        self._receives: dict[int, Receive] = {}
        self._messages: dict[int, Unexpected[T]] = {}
        self._nbytes = 0
        self._next = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def nbytes(self) -> int:
        """What the unexpected messages take up."""
        return self._nbytes

    def find(self, source: int, tag: int) -> Receive | None:
        """Return the receive that a message would go to."""
        for receive in self._receives.values():
            if receive.wants(source, tag):
                return receive
        return None

    def has_room(self, nbytes: int) -> bool:
        """Whether one more message may wait."""
        if not self._messages:
            return True
        return (
            len(self._messages) < MAX_UNEXPECTED and self._nbytes + nbytes <= MAX_UNEXPECTED_BYTES
        )

    def arrived(self, source: int, tag: int, nbytes: int, item: T) -> Receive | None:
        """Give a message to its receive and return that, or let it wait."""
        receive = self.find(source, tag)
        if receive is not None:
            return self._receives.pop(receive.number)
        self._messages[self._next] = Unexpected(source, tag, nbytes, item)
        self._next += 1
        self._nbytes += nbytes
        return None

    def posted(self, receive: Receive) -> Unexpected[T] | None:
        """Give a receive its message and return that, or let it wait.

        Raises:
            CommunicationError: Too many wait.
        """
        for key, message in self._messages.items():
            if receive.wants(message.source, message.tag):
                return self._leave(key)
        if len(self._receives) >= MAX_RECEIVES:
            raise CommunicationError(f"more than {MAX_RECEIVES} receives wait for a message")
        self._receives[receive.number] = receive
        return None

    def cancel(self, number: int) -> bool:
        """Take a receive back; return whether it still waited."""
        return self._receives.pop(number, None) is not None

    def probe(self, source: int, tag: int) -> Unexpected[T] | None:
        """Return the message that a receive would get, and leave it."""
        receive = Receive(0, source, tag)
        for message in self._messages.values():
            if receive.wants(message.source, message.tag):
                return message
        return None

    def receives_from(self, source: int) -> list[Receive]:
        """Return the receives that want messages of one place and no other."""
        return [one for one in self._receives.values() if one.source == source]

    def drop(self, source: int, item: T) -> None:
        """Forget a message that cannot be had any more."""
        for key, message in self._messages.items():
            if message.source == source and message.item is item:
                self._leave(key)
                return

    def from_source(self, source: int) -> list[T]:
        """Return the messages of a place that wait."""
        return [one.item for one in self._messages.values() if one.source == source]

    def _leave(self, key: int) -> Unexpected[T]:
        message = self._messages.pop(key)
        self._nbytes -= message.nbytes
        return message
