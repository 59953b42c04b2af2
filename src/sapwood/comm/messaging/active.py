"""Active messages (RPC): a handler is called by name at another place, and replies. No I/O.

Requests and replies travel by reliable delivery: a request is handled once, requests of one place
in the order in which they were made, and whoever waits for a reply hears when there will be none.
"""

from __future__ import annotations

from collections import deque

from sapwood.comm import events as ev
from sapwood.comm.messages import messaging as msg
from sapwood.comm.messaging import events as mev
from sapwood.comm.messaging.delivery import OutgoingMessage, ReliableDelivery
from sapwood.comm.messaging.rendezvous import RendezvousTransfers, TransferOwner, in_memory
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.comm.plain import MAX_BODY, too_large
from sapwood.core.errors import CancelledError, CommunicationError, ErrorRecord, SapwoodError

ACTIVE = 0
"""Channel of requests and answers."""

REQUEST, REPLY, CANCEL = 1, 2, 3
"""Kinds of their messages."""

MAX_REQUESTS = 1_000_000
"""Requests of one place that wait for an answer at a time."""

MAX_QUEUED = 256
"""Requests of one place that wait behind one whose payload is being fetched."""


class ActiveMessages(TransferOwner):
    """The requests of one place; the user of their channel.

    Args:
        delivery: What they travel with.
        transfers: What fetches large ones.
    """

    window = 256
    prompt = 32

    def __init__(self, delivery: ReliableDelivery, transfers: RendezvousTransfers) -> None:
        self._delivery = delivery
        self._transfers = transfers
        self._asked: dict[int, tuple[int, OutgoingMessage]] = {}
        self._queues: dict[int, deque[tuple[msg.RoutedMessage, Payload | None]]] = {}
        delivery.use(ACTIVE, self)
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
        outgoing = OutgoingMessage(
            REQUEST,
            event.number,
            label=event.handler,
            body=event.body,
            payload=event.payload,
            handle=event.number,
        )
        error = self._delivery.left(event.destination) or _too_large(event.body)
        if error is not None:
            return [ev.Answered(event.number, b"", None, error.to_record())]
        self._asked[event.number] = (event.destination, outgoing)
        if event.payload is not None:
            self._transfers.offer(event.destination, outgoing, self)
        return self._delivery.send(now, event.destination, ACTIVE, outgoing)

    def answer(self, now: float, event: ev.Answer) -> Effects:
        """Answer a request; an answer that no link carries becomes an error."""
        problem = _too_large(event.body)
        if problem is not None:
            error = problem.to_record()
            event = ev.Answer(event.destination, event.number, b"", None, error)
        outgoing = OutgoingMessage(
            REPLY, event.number, body=event.body, payload=event.payload, error=event.error
        )
        if event.payload is not None:
            self._transfers.offer(event.destination, outgoing, self)
        return self._delivery.send(now, event.destination, ACTIVE, outgoing)

    def cancel(self, now: float, event: mev.CancelRequest) -> Effects:
        """Cancel a request: its answer is an error now, and its handler is notified."""
        entry = self._asked.pop(event.number, None)
        if entry is None:
            return []
        destination, outgoing = entry
        record = CancelledError("the request was cancelled").to_record()
        effects: Effects = [ev.Answered(event.number, b"", None, record)]
        if self._delivery.cancel(destination, ACTIVE, outgoing):
            return effects
        effects += self._transfers.cancel(now, destination, outgoing)
        taken_back = OutgoingMessage(CANCEL, event.number)
        return effects + self._delivery.send(now, destination, ACTIVE, taken_back)

    # --- the channel -------------------------------------------------------------------------

    def arrived(
        self, now: float, message: msg.RoutedMessage, payload: Payload | None
    ) -> Effects | None:
        """Take a request or an answer in; what follows one whose payload is fetched waits."""
        queue = self._queues.get(message.source)
        if queue is None:
            if not message.large or payload is not None:
                return self._complete(now, message, payload)
            self._queues[message.source] = deque([(message, payload)])
            return self._transfers.fetch(now, message, self, in_memory)
        if len(queue) >= MAX_QUEUED:
            return None
        queue.append((message, payload))
        return []

    def fetched(
        self,
        now: float,
        message: msg.RoutedMessage,
        payload: Payload | None,
        error: SapwoodError | None,
    ) -> Effects:
        """The payload of a request or an answer is here, or never will be."""
        queue = self._queues.get(message.source)
        if not queue or queue[0][0] is not message:
            return []
        queue.popleft()
        effects: Effects = []
        if error is None:
            effects += self._handle(message, payload)
        elif message.kind == REPLY:
            effects += self._answered(message, None, error.to_record())
        while queue:
            following, here = queue[0]
            if following.large and here is None:
                return effects + self._transfers.fetch(now, following, self, in_memory)
            queue.popleft()
            effects += self._complete(now, following, here)
        del self._queues[message.source]
        return effects + self._delivery.resume(now, ACTIVE)

    def _complete(self, now: float, message: msg.RoutedMessage, payload: Payload | None) -> Effects:
        effects = self._handle(message, payload)
        return effects + self._transfers.taken(now, message) if message.large else effects

    def _handle(self, message: msg.RoutedMessage, payload: Payload | None) -> Effects:
        if message.kind == REQUEST:
            return [ev.Asked(message.source, message.label, message.tag, message.body, payload)]
        if message.kind == CANCEL:
            return [mev.RequestCancelled(message.source, message.tag)]
        return self._answered(message, payload, message.error)

    def _answered(
        self, message: msg.RoutedMessage, payload: Payload | None, error: ErrorRecord | None
    ) -> Effects:
        entry = self._asked.get(message.tag)
        if entry is None or entry[0] != message.source:
            return []
        del self._asked[message.tag]
        return [ev.Answered(message.tag, message.body, payload, error)]

    def settled(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """The payload was taken, or never will be."""
        del now
        if error is not None:
            self._transfers.forget(destination, outgoing)
        payload, outgoing.payload = outgoing.payload, None
        if outgoing.kind == REPLY:
            return [ev.Released(payload)] if payload and payload.owner is not None else []
        if error is None or self._asked.pop(outgoing.handle, None) is None:
            return []
        return [ev.Answered(outgoing.handle, b"", None, error.to_record())]

    def moved(
        self, peer: int, what: OutgoingMessage | msg.RoutedMessage, done: int, total: int
    ) -> Effects:
        """So many bytes of a large request or answer have arrived."""
        del peer
        kind, tag = what.kind, what.tag
        ours = isinstance(what, OutgoingMessage)
        if kind != (REQUEST if ours else REPLY):
            return []
        return [mev.Progressed(ACTIVE, tag, ours, done, total)]

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
        return effects + self._delivery.resume(now, ACTIVE)


def _too_large(body: bytes) -> SapwoodError | None:
    """Return the error of a body that does not fit into a message; it would be sent for ever."""
    return too_large(len(body)) if len(body) > MAX_BODY else None
