"""Point-to-point messages: tagged, sent, matched with receives, fetched if large. No I/O."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from sapwood.comm.messages import messaging as msg
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.delivery import OutgoingMessage, ReliableDelivery, lost_error
from sapwood.comm.messaging.envelope import ANY
from sapwood.comm.messaging.rendezvous import (
    Allocate,
    RendezvousTransfers,
    TransferOwner,
    in_memory,
)
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import AgentLostError, CancelledError, CommunicationError, SapwoodError

TAGGED = 1
"""Channel of tagged messages."""

MESSAGE = 10
"""Kind of their messages."""

T = TypeVar("T")

Item = tuple[msg.RoutedMessage, Payload | None]

MAX_UNEXPECTED = 1024
"""Unexpected messages that one place holds; further senders wait."""

MAX_UNEXPECTED_BYTES = 16 * 2**20
"""Bytes of such messages; large ones lie where they came from and do not count."""

MAX_RECEIVES = 100_000
"""Receives of one place that wait for a message."""


class Receive(NamedTuple):
    """A receive that waits: its number, and what it wants."""

    number: int
    source: int
    tag: int

    def wants(self, source: int, tag: int) -> bool:
        """Whether a message is for it."""
        return self.source in {ANY, source} and self.tag in {ANY, tag}


class Unexpected(NamedTuple, Generic[T]):
    """A message without a matching receive; ``nbytes`` is what it takes up here."""

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


class PointToPoint(TransferOwner):
    """The tagged messages of one place; the user of their channel.

    Args:
        delivery: What they travel with.
        transfers: What fetches large ones.

    Attributes:
        allocate: Makes room for large ones.
    """

    window = 64
    prompt = 1

    def __init__(self, delivery: ReliableDelivery, transfers: RendezvousTransfers) -> None:
        self.matching: Matching[Item] = Matching()
        self.allocate: Allocate = in_memory
        self._delivery = delivery
        self._transfers = transfers
        self._outgoing: dict[tuple[int, int], OutgoingMessage] = {}
        self._fetching: dict[tuple[int, int], Receive] = {}
        delivery.use(TAGGED, self)
        transfers.serve(self)

    def forget(self) -> None:
        """Drop everything: this place ends."""
        self.matching = Matching()
        self._outgoing.clear()
        self._fetching.clear()

    # --- sending -----------------------------------------------------------------------------

    def send(self, now: float, event: mev.SendTagged) -> Effects:
        """Send a message to one place or several."""
        copies: dict[int, OutgoingMessage] = {}
        for destination in event.destinations:
            outgoing = OutgoingMessage(
                MESSAGE,
                event.tag,
                body=event.body,
                payload=event.payload,
                handle=event.number,
            )
            if event.payload is not None:
                self._transfers.offer(destination, outgoing, self)
            self._outgoing[destination, event.number] = copies[destination] = outgoing
        if len(copies) > 1:
            return self._delivery.send_to_all(now, TAGGED, copies)
        effects: Effects = []
        for destination, outgoing in copies.items():
            effects += self._delivery.send(now, destination, TAGGED, outgoing)
        return effects

    def cancel_send(self, now: float, event: mev.CancelSend) -> Effects:
        """Take a message back that has not left yet, or of which not all has arrived."""
        destination, number = event.destination, event.number
        outgoing = self._outgoing.get((destination, number))
        if outgoing is None:
            return []
        if self._delivery.cancel(destination, TAGGED, outgoing):
            error = CancelledError("the message was cancelled")
            return self.settled(now, destination, outgoing, error)
        if outgoing.large:
            return self._transfers.cancel(now, destination, outgoing)
        return []

    def settled(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """The payload was taken, or never will be."""
        del now
        if self._outgoing.pop((destination, outgoing.handle), None) is None:
            return []
        if error is not None:
            self._transfers.forget(destination, outgoing)
        record = error.to_record() if error is not None else None
        return [mev.SendEnded(outgoing.handle, destination, record)]

    # --- receiving ---------------------------------------------------------------------------

    def receive(self, now: float, event: mev.PostReceive) -> Effects:
        """Wait for a message."""
        receive = Receive(event.number, event.source, event.tag)
        message = self.matching.posted(receive)
        if message is None:
            absence = self._delivery.gone.get(event.source)
            effects = self._delivery.resume(now, TAGGED)  # one that had no room may be wanted
            if absence is None or not self.matching.cancel(event.number):
                return effects
            record = lost_error(event.source, absence.reason).to_record()
            return [*effects, mev.ReceiveFailed(event.number, record)]
        effects = self._give(now, receive, message.item)
        return effects + self._delivery.resume(now, TAGGED)

    def arrived(
        self, now: float, message: msg.RoutedMessage, payload: Payload | None
    ) -> Effects | None:
        """Accept a message if a receive matches it or there is room to hold it."""
        nbytes = len(message.body) + (payload.nbytes if payload and not message.large else 0)
        waits = self.matching.find(message.source, message.tag) is not None
        if not waits and not self.matching.has_room(nbytes):
            return None
        receive = self.matching.arrived(message.source, message.tag, nbytes, (message, payload))
        return self._give(now, receive, (message, payload)) if receive is not None else []

    def _give(self, now: float, receive: Receive, item: Item) -> Effects:
        message, payload = item
        if message.large and payload is None:
            self._fetching[message.source, message.large] = receive
            return self._transfers.fetch(now, message, self, self.allocate)
        found = mev.TaggedArrived(
            receive.number, message.source, message.tag, message.body, payload
        )
        return [found, *self._transfers.taken(now, message)]

    def fetched(
        self,
        now: float,
        message: msg.RoutedMessage,
        payload: Payload | None,
        error: SapwoodError | None,
    ) -> Effects:
        """The payload of a large message is here, or never will be."""
        receive = self._fetching.pop((message.source, message.large), None)
        if receive is None:
            return []
        if error is None:
            return [
                mev.TaggedArrived(
                    receive.number, message.source, message.tag, message.body, payload
                )
            ]
        lost = isinstance(error, AgentLostError) and receive.source == ANY
        if lost or isinstance(error, CancelledError):  # as if it had never been sent
            return self.receive(now, mev.PostReceive(*receive))
        return [mev.ReceiveFailed(receive.number, error.to_record())]

    def retracted(self, source: int, large: int) -> None:
        """A large message that waits was taken back."""
        for item in self.matching.from_source(source):
            if item[0].large == large:
                self.matching.drop(source, item)

    def moved(
        self, peer: int, what: OutgoingMessage | msg.RoutedMessage, done: int, total: int
    ) -> Effects:
        """So many bytes of a large message have arrived."""
        if isinstance(what, OutgoingMessage):
            return [mev.Progressed(TAGGED, what.handle, outgoing=True, done=done, total=total)]
        receive = self._fetching.get((peer, what.large))
        if receive is None:
            return []
        return [mev.Progressed(TAGGED, receive.number, outgoing=False, done=done, total=total)]

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone: what it had only offered, and what only it could send."""
        del now
        for item in self.matching.from_source(rank):
            if item[0].large:
                self.matching.drop(rank, item)
        effects: Effects = []
        for receive in self.matching.receives_from(rank):
            self.matching.cancel(receive.number)
            effects.append(mev.ReceiveFailed(receive.number, error.to_record()))
        return effects
