"""Large payloads in pieces, for places that cannot map each other's memory. No I/O.

A letter with a large payload carries a reference to shared memory as long as the links on its way
can share. Where one cannot, it goes on without, and the receiver asks for the bytes when it wants
them (rendezvous). They come in pieces of :data:`PIECE` bytes, of which only a window is on its
way at a time: no place in between ever holds more than that. In both cases the receiver says when
it has them, and only then the sender may use their memory again.

::

    OFFERED --grant--> MOVING --taken--> ENDED
       |                  |                ^
       +----- taken, stop, lost -----------+
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable
from typing import Protocol

from sapwood.comm.letters.letters import Letters
from sapwood.comm.letters.parcel import EAGER, Parcel
from sapwood.comm.messages import letters as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import CancelledError, ProtocolError, ResourceError, SapwoodError
from sapwood.core.states import StateTable

PIECES = 2
"""Channel of the pieces."""

GRANT, PIECE_OF, TAKEN, STOP = 20, 21, 22, 23
"""Kinds of letters: send the bytes; some of them; all are here; never mind."""

PIECE = 256 * 1024
"""Bytes of one piece."""

WINDOW = 16
"""Pieces on their way between two places: at most 4 MiB."""

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


class Owner(Protocol):
    """Whose payloads are transferred: the user of a channel."""

    def ended(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """A parcel has arrived, or never will."""
        if parcel.large and error is None:
            return []  # its letter has; the payload is still to be taken
        return self.settled(now, destination, parcel, error)

    def settled(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """A parcel's payload was taken, or never will be."""

    def fetched(
        self, now: float, letter: msg.Letter, payload: Payload | None, error: SapwoodError | None
    ) -> Effects:
        """The payload of a letter is here, or never will be."""

    def retracted(self, source: int, large: int) -> None:
        """A payload that is on offer is not any more."""

    def moved(self, peer: int, what: Parcel | msg.Letter, done: int, total: int) -> Effects:
        """So many bytes of a payload have arrived."""


class Outgoing:
    """A payload that is on offer or on its way."""

    __slots__ = ("acknowledged", "destination", "offset", "owner", "parcel", "state")

    def __init__(self, destination: int, parcel: Parcel, owner: Owner) -> None:
        self.destination = destination
        self.parcel = parcel
        self.owner = owner
        self.state = TransferState.OFFERED
        self.offset = 0
        self.acknowledged = 0

    def advance(self, event: TransferEvent) -> None:
        """Go to the next state.

        Raises:
            ProtocolError: The event cannot happen in this state.
        """
        self.state = TRANSITIONS.after(self.state, event)


class Incoming:
    """A payload that is being fetched."""

    __slots__ = ("arrived", "letter", "owner", "payload")

    def __init__(self, letter: msg.Letter, payload: Payload, owner: Owner) -> None:
        self.letter = letter
        self.payload = payload
        self.owner = owner
        self.arrived = 0


class Transfers:
    """The large payloads of one place; the user of the channel of pieces.

    Args:
        letters: What they travel with.
    """

    window = WINDOW
    prompt = WINDOW // 4

    def __init__(self, letters: Letters) -> None:
        self._letters = letters
        self._outgoing: dict[tuple[int, int], Outgoing] = {}
        self._incoming: dict[tuple[int, int], Incoming] = {}
        self._moving: dict[int, deque[Outgoing]] = {}
        self._next = 1
        self._owners: list[Owner] = []
        letters.use(PIECES, self)

    def serve(self, owner: Owner) -> None:
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

    def offer(self, destination: int, parcel: Parcel, owner: Owner) -> None:
        """Note a parcel that is to be sent; a large one ends when its payload was taken."""
        payload = parcel.payload
        if payload is None or (payload.nbytes <= EAGER and payload.ref is None):
            return
        parcel.large = self._next
        self._next += 1
        self._outgoing[destination, parcel.large] = Outgoing(destination, parcel, owner)

    def withdraw(self, now: float, destination: int, parcel: Parcel) -> Effects:
        """Take a large parcel back; the receiver hears of it."""
        outgoing = self._outgoing.get((destination, parcel.large))
        if outgoing is None:
            return []
        error = CancelledError("the message was taken back")
        stop = Parcel(STOP, parcel.large, body=b"sender")
        effects = self._end(now, outgoing, TransferEvent.STOP, error)
        return effects + self._letters.send(now, destination, PIECES, stop)

    def forget(self, destination: int, parcel: Parcel) -> None:
        """The letter of a large parcel will not arrive: there is nothing to fetch."""
        outgoing = self._outgoing.pop((destination, parcel.large), None)
        if outgoing is not None:
            outgoing.advance(TransferEvent.LOST)

    def _granted(self, now: float, letter: msg.Letter) -> Effects:
        outgoing = self._outgoing.get((letter.source, letter.tag))
        if outgoing is None:  # it was taken back meanwhile
            stop = Parcel(STOP, letter.tag, body=b"sender")
            return self._letters.send(now, letter.source, PIECES, stop)
        if outgoing.state is not TransferState.OFFERED:
            return []
        outgoing.advance(TransferEvent.GRANT)
        self._moving.setdefault(letter.source, deque()).append(outgoing)
        return self._pump(now, letter.source)

    def _pump(self, now: float, destination: int) -> Effects:
        """Send pieces while the window has room, of all transfers to a place in turn."""
        moving = self._moving.get(destination)
        effects: Effects = []
        while moving and self._letters.room(PIECES, destination):
            outgoing = moving.popleft()
            payload = outgoing.parcel.payload
            if outgoing.state is not TransferState.MOVING or payload is None:
                continue
            start, stop = outgoing.offset, min(outgoing.offset + PIECE, payload.nbytes)
            outgoing.offset = stop
            if stop < payload.nbytes:
                moving.append(outgoing)
            piece = Parcel(
                PIECE_OF,
                outgoing.parcel.large,
                payload=Payload(payload.view[start:stop]),
                handle=outgoing,
            )
            effects += self._letters.send(now, destination, PIECES, piece)
        if not moving:
            self._moving.pop(destination, None)
        return effects

    def ended(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """A piece has arrived, or its receiver is gone."""
        outgoing = parcel.handle
        if error is not None or not isinstance(outgoing, Outgoing) or parcel.payload is None:
            return []
        outgoing.acknowledged += parcel.payload.nbytes
        effects: Effects = []
        whole = outgoing.parcel.payload
        if outgoing.state is TransferState.MOVING and whole is not None:
            effects += outgoing.owner.moved(
                destination, outgoing.parcel, outgoing.acknowledged, whole.nbytes
            )
        return effects + self._pump(now, destination)

    def _end(
        self, now: float, outgoing: Outgoing, event: TransferEvent, error: SapwoodError | None
    ) -> Effects:
        outgoing.advance(event)
        destination, parcel = outgoing.destination, outgoing.parcel
        self._outgoing.pop((destination, parcel.large), None)
        return outgoing.owner.settled(now, destination, parcel, error)

    # --- at the receiver ---------------------------------------------------------------------

    def fetch(self, now: float, letter: msg.Letter, owner: Owner, allocate: Allocate) -> Effects:
        """Ask for the payload of a letter that came without it."""
        try:
            if letter.size > self._letters.max_payload:
                raise ResourceError("it is over the limit of comm.max_message")
            payload = allocate(letter.size)
        except (MemoryError, SapwoodError) as problem:
            text = problem.what if isinstance(problem, SapwoodError) else "out of memory"
            error = ResourceError(f"no room for a message of {letter.size} bytes: {text}")
            refusal = Parcel(STOP, letter.large, body=b"receiver", error=error.to_record())
            effects = self._letters.send(now, letter.source, PIECES, refusal)
            return effects + owner.fetched(now, letter, None, error)
        self._incoming[letter.source, letter.large] = Incoming(letter, payload, owner)
        return self._letters.send(now, letter.source, PIECES, Parcel(GRANT, letter.large))

    def taken(self, now: float, letter: msg.Letter) -> Effects:
        """Say that the payload of a letter is here."""
        if not letter.large:
            return []
        return self._letters.send(now, letter.source, PIECES, Parcel(TAKEN, letter.large))

    def refuse(self, now: float, letter: msg.Letter, error: SapwoodError) -> Effects:
        """Say that the payload of a letter is not wanted any more."""
        self._incoming.pop((letter.source, letter.large), None)
        stop = Parcel(STOP, letter.large, body=b"receiver", error=error.to_record())
        return self._letters.send(now, letter.source, PIECES, stop)

    def _piece(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects:
        incoming = self._incoming.get((letter.source, letter.tag))
        if incoming is None or payload is None:
            return []
        start, total = incoming.arrived, incoming.payload.nbytes
        stop = start + payload.nbytes
        if stop > total:  # whoever brought it cannot help it: only the transfer ends
            error = ProtocolError(f"rank {letter.source} sends more bytes than it announced")
            effects = self.refuse(now, incoming.letter, error)
            return effects + incoming.owner.fetched(now, incoming.letter, None, error)
        incoming.payload.view[start:stop] = payload.view
        incoming.arrived = stop
        effects = incoming.owner.moved(letter.source, incoming.letter, stop, total)
        if stop == total:
            del self._incoming[letter.source, letter.tag]
            effects += incoming.owner.fetched(now, incoming.letter, incoming.payload, None)
            effects += self.taken(now, incoming.letter)
        return effects

    # --- the channel -------------------------------------------------------------------------

    def arrived(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects:
        """Take a piece in, or what the other side says of a transfer."""
        if letter.kind == PIECE_OF:
            return self._piece(now, letter, payload)
        if letter.kind == GRANT:
            return self._granted(now, letter)
        outgoing = self._outgoing.get((letter.source, letter.tag))
        if letter.kind == TAKEN:
            return self._end(now, outgoing, TransferEvent.TAKEN, None) if outgoing else []
        if letter.body == b"sender":
            return self._stopped(now, letter)
        if outgoing is None:
            return []
        error = (
            SapwoodError.from_record(letter.error) if letter.error else CancelledError("stopped")
        )
        return self._end(now, outgoing, TransferEvent.STOP, error)

    def _stopped(self, now: float, letter: msg.Letter) -> Effects:
        incoming = self._incoming.pop((letter.source, letter.tag), None)
        error = CancelledError(f"agent {letter.source} took the message back")
        if incoming is None:
            for owner in self._owners:
                owner.retracted(letter.source, letter.tag)
            return []
        return incoming.owner.fetched(now, incoming.letter, None, error)

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone, and with it what was to come from it or go there."""
        effects: Effects = []
        self._moving.pop(rank, None)
        for key in [key for key in self._outgoing if key[0] == rank]:
            effects += self._end(now, self._outgoing[key], TransferEvent.LOST, error)
        for key in [key for key in self._incoming if key[0] == rank]:
            incoming = self._incoming.pop(key)
            effects += incoming.owner.fetched(now, incoming.letter, None, error)
        return effects


def in_memory(nbytes: int) -> Payload:
    """Return room for a payload in this process."""
    return Payload(memoryview(bytearray(nbytes)))
