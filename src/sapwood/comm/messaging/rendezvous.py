"""Rendezvous: bulk transfer of large payloads, in pieces where memory is not shared. No I/O.

A message with a large payload carries a reference to shared memory as long as the links on its way
can share. Where a link cannot, only the message travels, and the receiver asks for the bytes when
it needs them (rendezvous). They come in pieces of :data:`PIECE` bytes, of which only a window is on
its way at a time: no place in between ever holds more than that. In both cases the receiver says
when it has them, and only then the sender may use their memory again.

::

    OFFERED --grant--> MOVING --taken--> ENDED
       |                  |                ^
       +----- taken, stop, lost -----------+
"""

from __future__ import annotations

import enum
import mmap
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sapwood.comm.messages import messaging as msg
from sapwood.comm.messaging.delivery import EAGER, OutgoingMessage, ReliableDelivery
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import CancelledError, ProtocolError, ResourceError, SapwoodError
from sapwood.core.states import StateTable

PIECES = 2
"""Channel of the pieces."""

GRANT, PIECE_OF, TAKEN, STOP = 20, 21, 22, 23
"""Kinds of messages: send the bytes; some of them; all are here; never mind."""

PIECE = 256 * 1024
"""Bytes of one piece."""

WINDOW = 16
"""Pieces on their way between two places: at most 4 MiB."""

MAPPED = 64 * 1024
"""Bytes from which on room for a payload takes no memory until it is written."""

Allocate = Callable[[int], Payload]
"""Returns a payload of so many bytes that can be written to."""


class TransferState(enum.Enum):
    """States of a transfer at its sender."""

    OFFERED = "offered"
    MOVING = "moving"
    ENDED = "ended"


class TransferEvent(enum.Enum):
    """What happens to a transfer."""

    GRANT = "grant"
    TAKEN = "taken"
    STOP = "stop"
    LOST = "lost"


_OFFERED, _MOVING, _ENDED = TransferState.OFFERED, TransferState.MOVING, TransferState.ENDED

TRANSITIONS = StateTable(
    "a transfer",
    {
        (_OFFERED, TransferEvent.GRANT): _MOVING,
        (_OFFERED, TransferEvent.TAKEN): _ENDED,
        (_OFFERED, TransferEvent.STOP): _ENDED,
        (_OFFERED, TransferEvent.LOST): _ENDED,
        (_MOVING, TransferEvent.TAKEN): _ENDED,
        (_MOVING, TransferEvent.STOP): _ENDED,
        (_MOVING, TransferEvent.LOST): _ENDED,
    },
)
"""(state, event) → next state; any other pair breaks the protocol."""


class TransferOwner(Protocol):
    """Whose payloads are transferred: the user of a channel."""

    def ended(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """A message has arrived, or never will."""
        if outgoing.large and error is None:
            return []  # its message has; the payload is still to be taken
        return self.settled(now, destination, outgoing, error)

    def settled(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """A message's payload was taken, or never will be."""

    def fetched(
        self,
        now: float,
        message: msg.RoutedMessage,
        payload: Payload | None,
        error: SapwoodError | None,
    ) -> Effects:
        """The payload of a message is here, or never will be."""

    def retracted(self, source: int, large: int) -> None:
        """A payload that is on offer is not any more."""

    def moved(
        self, peer: int, what: OutgoingMessage | msg.RoutedMessage, done: int, total: int
    ) -> Effects:
        """So many bytes of a payload have arrived."""


class OutgoingTransfer:
    """A payload that is on offer or on its way."""

    __slots__ = ("acknowledged", "destination", "offset", "outgoing", "owner", "state")

    def __init__(self, destination: int, outgoing: OutgoingMessage, owner: TransferOwner) -> None:
        self.destination = destination
        self.outgoing = outgoing
        self.owner = owner
        self.state = TransferState.OFFERED
        self.offset = 0
        self.acknowledged = 0

    def advance(self, event: TransferEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        self.state = TRANSITIONS.after(self.state, event)


class IncomingTransfer:
    """A payload that is being fetched."""

    __slots__ = ("arrived", "message", "owner", "payload")

    def __init__(self, message: msg.RoutedMessage, payload: Payload, owner: TransferOwner) -> None:
        self.message = message
        self.payload = payload
        self.owner = owner
        self.arrived = 0


class RendezvousTransfers:
    """The large payloads of one place; the user of the channel of pieces.

    Args:
        delivery: What they travel with.
    """

    window = WINDOW
    prompt = WINDOW // 4

    def __init__(self, delivery: ReliableDelivery) -> None:
        self._delivery = delivery
        self._outgoing: dict[tuple[int, int], OutgoingTransfer] = {}
        self._incoming: dict[tuple[int, int], IncomingTransfer] = {}
        self._moving: dict[int, deque[OutgoingTransfer]] = {}
        self._next = 1
        self._owners: list[TransferOwner] = []
        delivery.use(PIECES, self)

    def serve(self, owner: TransferOwner) -> None:
        """Have the user of a channel told of payloads that are taken back."""
        self._owners.append(owner)

    def __len__(self) -> int:
        return len(self._outgoing) + len(self._incoming)

    def forget_all(self) -> None:
        """Drop everything: this place ends."""
        self._outgoing.clear()
        self._incoming.clear()
        self._moving.clear()

    # --- at the sender -----------------------------------------------------------------------

    def offer(self, destination: int, outgoing: OutgoingMessage, owner: TransferOwner) -> None:
        """Note a message that is to be sent; a large one ends when its payload was taken."""
        payload = outgoing.payload
        if payload is None or (payload.nbytes <= EAGER and payload.ref is None):
            return
        outgoing.large = self._next
        self._next += 1
        self._outgoing[destination, outgoing.large] = OutgoingTransfer(destination, outgoing, owner)

    def cancel(self, now: float, destination: int, outgoing: OutgoingMessage) -> Effects:
        """Take a large message back; the receiver hears of it."""
        transfer = self._outgoing.get((destination, outgoing.large))
        if transfer is None:
            return []
        error = CancelledError("the message was cancelled")
        stop = OutgoingMessage(STOP, outgoing.large, body=b"sender")
        effects = self._end(now, transfer, TransferEvent.STOP, error)
        return effects + self._delivery.send(now, destination, PIECES, stop)

    def forget(self, destination: int, outgoing: OutgoingMessage) -> None:
        """A large message will not arrive: there is nothing to fetch."""
        transfer = self._outgoing.pop((destination, outgoing.large), None)
        if transfer is not None:
            transfer.advance(TransferEvent.LOST)

    def _granted(self, now: float, message: msg.RoutedMessage) -> Effects:
        transfer = self._outgoing.get((message.source, message.tag))
        if transfer is None:  # it was taken back meanwhile
            stop = OutgoingMessage(STOP, message.tag, body=b"sender")
            return self._delivery.send(now, message.source, PIECES, stop)
        if transfer.state is not TransferState.OFFERED:
            return []
        transfer.advance(TransferEvent.GRANT)
        self._moving.setdefault(message.source, deque()).append(transfer)
        return self._pump(now, message.source)

    def _pump(self, now: float, destination: int) -> Effects:
        """Send pieces while the window has room, of all transfers to a place in turn."""
        moving = self._moving.get(destination)
        effects: Effects = []
        while moving and self._delivery.room(PIECES, destination):
            transfer = moving.popleft()
            payload = transfer.outgoing.payload
            if transfer.state is not TransferState.MOVING or payload is None:
                continue
            start, stop = transfer.offset, min(transfer.offset + PIECE, payload.nbytes)
            transfer.offset = stop
            if stop < payload.nbytes:
                moving.append(transfer)
            piece = OutgoingMessage(
                PIECE_OF,
                transfer.outgoing.large,
                payload=Payload(payload.view[start:stop]),
                handle=transfer,
            )
            effects += self._delivery.send(now, destination, PIECES, piece)
        if not moving:
            self._moving.pop(destination, None)
        return effects

    def ended(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """A piece has arrived, or its receiver is gone."""
        transfer = outgoing.handle
        if (
            error is not None
            or not isinstance(transfer, OutgoingTransfer)
            or outgoing.payload is None
        ):
            return []
        transfer.acknowledged += outgoing.payload.nbytes
        effects: Effects = []
        whole = transfer.outgoing.payload
        if transfer.state is TransferState.MOVING and whole is not None:
            effects += transfer.owner.moved(
                destination, transfer.outgoing, transfer.acknowledged, whole.nbytes
            )
        return effects + self._pump(now, destination)

    def _end(
        self,
        now: float,
        transfer: OutgoingTransfer,
        event: TransferEvent,
        error: SapwoodError | None,
    ) -> Effects:
        transfer.advance(event)
        destination, outgoing = transfer.destination, transfer.outgoing
        self._outgoing.pop((destination, outgoing.large), None)
        return transfer.owner.settled(now, destination, outgoing, error)

    # --- at the receiver ---------------------------------------------------------------------

    def fetch(
        self, now: float, message: msg.RoutedMessage, owner: TransferOwner, allocate: Allocate
    ) -> Effects:
        """Ask for the payload of a message that came without it."""
        try:
            if message.size > self._delivery.max_payload:
                raise ResourceError("it is over the limit of comm.max_message")
            payload = allocate(message.size)
        except (MemoryError, OSError, SapwoodError) as problem:
            text = problem.what if isinstance(problem, SapwoodError) else "out of memory"
            error = ResourceError(f"no room for a message of {message.size} bytes: {text}")
            refusal = OutgoingMessage(
                STOP, message.large, body=b"receiver", error=error.to_record()
            )
            effects = self._delivery.send(now, message.source, PIECES, refusal)
            return effects + owner.fetched(now, message, None, error)
        self._incoming[message.source, message.large] = IncomingTransfer(message, payload, owner)
        return self._delivery.send(
            now, message.source, PIECES, OutgoingMessage(GRANT, message.large)
        )

    def taken(self, now: float, message: msg.RoutedMessage) -> Effects:
        """Say that the payload of a message is here."""
        if not message.large:
            return []
        return self._delivery.send(
            now, message.source, PIECES, OutgoingMessage(TAKEN, message.large)
        )

    def refuse(self, now: float, message: msg.RoutedMessage, error: SapwoodError) -> Effects:
        """Say that the payload of a message is not wanted any more."""
        self._incoming.pop((message.source, message.large), None)
        stop = OutgoingMessage(STOP, message.large, body=b"receiver", error=error.to_record())
        return self._delivery.send(now, message.source, PIECES, stop)

    def _piece(self, now: float, message: msg.RoutedMessage, payload: Payload | None) -> Effects:
        incoming = self._incoming.get((message.source, message.tag))
        if incoming is None or payload is None:
            return []
        start, total = incoming.arrived, incoming.payload.nbytes
        stop = start + payload.nbytes
        if stop > total:  # whoever brought it cannot help it: only the transfer ends
            error = ProtocolError(f"rank {message.source} sends more bytes than it announced")
            effects = self.refuse(now, incoming.message, error)
            return effects + incoming.owner.fetched(now, incoming.message, None, error)
        incoming.payload.view[start:stop] = payload.view
        incoming.arrived = stop
        effects = incoming.owner.moved(message.source, incoming.message, stop, total)
        if stop == total:
            del self._incoming[message.source, message.tag]
            effects += incoming.owner.fetched(now, incoming.message, incoming.payload, None)
            effects += self.taken(now, incoming.message)
        return effects

    # --- the channel -------------------------------------------------------------------------

    def arrived(self, now: float, message: msg.RoutedMessage, payload: Payload | None) -> Effects:
        """Take a piece in, or what the other side says of a transfer."""
        if message.kind == PIECE_OF:
            return self._piece(now, message, payload)
        if message.kind == GRANT:
            return self._granted(now, message)
        transfer = self._outgoing.get((message.source, message.tag))
        if message.kind == TAKEN:
            return self._end(now, transfer, TransferEvent.TAKEN, None) if transfer else []
        if message.body == b"sender":
            return self._stopped(now, message)
        if transfer is None:
            return []
        error = (
            SapwoodError.from_record(message.error) if message.error else CancelledError("stopped")
        )
        return self._end(now, transfer, TransferEvent.STOP, error)

    def _stopped(self, now: float, message: msg.RoutedMessage) -> Effects:
        incoming = self._incoming.pop((message.source, message.tag), None)
        error = CancelledError(f"agent {message.source} cancelled the message")
        if incoming is None:
            for owner in self._owners:
                owner.retracted(message.source, message.tag)
            return []
        return incoming.owner.fetched(now, incoming.message, None, error)

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone, and with it what was to come from it or go there."""
        effects: Effects = []
        self._moving.pop(rank, None)
        for key in [key for key in self._outgoing if key[0] == rank]:
            effects += self._end(now, self._outgoing[key], TransferEvent.LOST, error)
        for key in [key for key in self._incoming if key[0] == rank]:
            incoming = self._incoming.pop(key)
            effects += incoming.owner.fetched(now, incoming.message, None, error)
        return effects


def in_memory(nbytes: int) -> Payload:
    """Return room for a payload in this process.

    The size is what a peer says: memory is used only for bytes that arrive.
    """
    if nbytes < MAPPED:
        return Payload(memoryview(bytearray(nbytes)))
    return Payload(memoryview(mmap.mmap(-1, nbytes)))
