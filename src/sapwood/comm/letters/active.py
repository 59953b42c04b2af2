"""Active messages: a handler is called by name at another place, and answers. No I/O.

Requests and answers are letters, so a request is handled once, requests of one place in the order
in which they were made, and whoever waits for an answer hears when there will be none.
"""

from __future__ import annotations

from collections import deque

from sapwood.comm import events as ev
from sapwood.comm.letters import events as le
from sapwood.comm.letters.letters import Letters
from sapwood.comm.letters.parcel import Parcel
from sapwood.comm.letters.transfers import Owner, Transfers, in_memory
from sapwood.comm.messages import letters as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import CancelledError, CommunicationError, ErrorRecord, SapwoodError

ACTIVE = 0
"""Channel of requests and answers."""

REQUEST, REPLY, WITHDRAW = 1, 2, 3
"""Kinds of their letters."""

MAX_REQUESTS = 1_000_000
"""Requests of one place that wait for an answer at a time."""

MAX_QUEUED = 256
"""Requests of one place that wait behind one whose payload is being fetched."""


class Active(Owner):
    """The requests of one place; the user of their channel.

    Args:
        letters: What they travel with.
        transfers: What fetches large ones.
    """

    window = 256
    prompt = 32

    def __init__(self, letters: Letters, transfers: Transfers) -> None:
        self._letters = letters
        self._transfers = transfers
        self._asked: dict[int, tuple[int, Parcel]] = {}
        self._queues: dict[int, deque[tuple[msg.Letter, Payload | None]]] = {}
        letters.use(ACTIVE, self)
        transfers.serve(self)

    def __len__(self) -> int:
        return len(self._asked)

    def forget(self) -> None:
        """Drop everything: this place ends."""
        self._asked.clear()
        self._queues.clear()

    # --- events ------------------------------------------------------------------------------

    def ask(self, now: float, event: ev.Ask) -> Effects:
        """Have a handler called at a place.

        Raises:
            CommunicationError: Too many requests are open.
        """
        if len(self._asked) >= MAX_REQUESTS:
            raise CommunicationError(f"more than {MAX_REQUESTS} requests wait for an answer")
        parcel = Parcel(
            REQUEST,
            event.number,
            label=event.handler,
            body=event.body,
            payload=event.payload,
            handle=event.number,
        )
        self._asked[event.number] = (event.destination, parcel)
        if event.payload is not None:
            self._transfers.offer(event.destination, parcel, self)
        return self._letters.send(now, event.destination, ACTIVE, parcel)

    def answer(self, now: float, event: ev.Answer) -> Effects:
        """Answer a request."""
        parcel = Parcel(
            REPLY, event.number, body=event.body, payload=event.payload, error=event.error
        )
        if event.payload is not None:
            self._transfers.offer(event.destination, parcel, self)
        return self._letters.send(now, event.destination, ACTIVE, parcel)

    def withdraw(self, now: float, event: le.Withdraw) -> Effects:
        """Take a request back: its answer is an error now, and its handler is told."""
        entry = self._asked.pop(event.number, None)
        if entry is None:
            return []
        destination, parcel = entry
        record = CancelledError("the request was taken back").to_record()
        effects: Effects = [ev.Answered(event.number, b"", None, record)]
        if self._letters.withdraw(destination, ACTIVE, parcel):
            return effects
        effects += self._transfers.withdraw(now, destination, parcel)
        taken_back = Parcel(WITHDRAW, event.number)
        return effects + self._letters.send(now, destination, ACTIVE, taken_back)

    # --- the channel -------------------------------------------------------------------------

    def arrived(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects | None:
        """Take a request or an answer in; what follows one whose payload is fetched waits."""
        queue = self._queues.get(letter.source)
        if queue is None:
            if not letter.large or payload is not None:
                return self._complete(now, letter, payload)
            self._queues[letter.source] = deque([(letter, payload)])
            return self._transfers.fetch(now, letter, self, in_memory)
        if len(queue) >= MAX_QUEUED:
            return None
        queue.append((letter, payload))
        return []

    def fetched(
        self, now: float, letter: msg.Letter, payload: Payload | None, error: SapwoodError | None
    ) -> Effects:
        """The payload of a request or an answer is here, or never will be."""
        queue = self._queues.get(letter.source)
        if not queue or queue[0][0] is not letter:
            return []
        queue.popleft()
        effects: Effects = []
        if error is None:
            effects += self._handle(letter, payload)
        elif letter.kind == REPLY:
            effects += self._answered(letter, None, error.to_record())
        while queue:
            following, here = queue[0]
            if following.large and here is None:
                return effects + self._transfers.fetch(now, following, self, in_memory)
            queue.popleft()
            effects += self._complete(now, following, here)
        del self._queues[letter.source]
        return effects + self._letters.resume(now, ACTIVE)

    def _complete(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects:
        effects = self._handle(letter, payload)
        return effects + self._transfers.taken(now, letter) if letter.large else effects

    def _handle(self, letter: msg.Letter, payload: Payload | None) -> Effects:
        if letter.kind == REQUEST:
            return [ev.Asked(letter.source, letter.label, letter.tag, letter.body, payload)]
        if letter.kind == WITHDRAW:
            return [le.Withdrawn(letter.source, letter.tag)]
        return self._answered(letter, payload, letter.error)

    def _answered(
        self, letter: msg.Letter, payload: Payload | None, error: ErrorRecord | None
    ) -> Effects:
        entry = self._asked.get(letter.tag)
        if entry is None or entry[0] != letter.source:
            return []
        del self._asked[letter.tag]
        return [ev.Answered(letter.tag, letter.body, payload, error)]

    def settled(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """The payload was taken, or never will be."""
        del now
        if error is not None:
            self._transfers.forget(destination, parcel)
        payload, parcel.payload = parcel.payload, None
        if parcel.kind == REPLY:
            return [ev.Released(payload)] if payload and payload.owner is not None else []
        if error is None or self._asked.pop(parcel.handle, None) is None:
            return []
        return [ev.Answered(parcel.handle, b"", None, error.to_record())]

    def moved(self, peer: int, what: Parcel | msg.Letter, done: int, total: int) -> Effects:
        """So many bytes of a large request or answer have arrived."""
        del peer
        kind, tag = what.kind, what.tag
        outgoing = isinstance(what, Parcel)
        if kind != (REQUEST if outgoing else REPLY):
            return []
        return [le.Progressed(ACTIVE, tag, outgoing, done, total)]

    def retracted(self, source: int, large: int) -> None:
        """A payload is not on offer any more: fetching it will say so."""

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone, and so are its answers."""
        self._queues.pop(rank, None)
        record = error.to_record()
        gone = [number for number, (asked, _) in self._asked.items() if asked == rank]
        for number in gone:
            del self._asked[number]
        effects: Effects = [ev.Answered(number, b"", None, record) for number in gone]
        return effects + self._letters.resume(now, ACTIVE)
