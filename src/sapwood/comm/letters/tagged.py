"""Tagged messages of one place: sent, matched with receives, fetched if they are large. No I/O."""

from __future__ import annotations

from sapwood.comm.letters import events as le
from sapwood.comm.letters.letters import Letters
from sapwood.comm.letters.match import ANY, Matching, Receive
from sapwood.comm.letters.parcel import Parcel, lost_error
from sapwood.comm.letters.transfers import Allocate, Owner, Transfers, in_memory
from sapwood.comm.messages import letters as msg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects
from sapwood.core.errors import AgentLostError, CancelledError, SapwoodError

TAGGED = 1
"""Channel of tagged messages."""

MESSAGE = 10
"""Kind of their letters."""

Item = tuple[msg.Letter, Payload | None]


class Tagged(Owner):
    """The tagged messages of one place; the user of their channel.

    Args:
        letters: What they travel with.
        transfers: What fetches large ones.

    Attributes:
        allocate: Makes room for large ones.
    """

    window = 64
    prompt = 1

    def __init__(self, letters: Letters, transfers: Transfers) -> None:
        self.matching: Matching[Item] = Matching()
        self.allocate: Allocate = in_memory
        self._letters = letters
        self._transfers = transfers
        self._parcels: dict[tuple[int, int], Parcel] = {}
        self._fetching: dict[tuple[int, int], Receive] = {}
        letters.use(TAGGED, self)
        transfers.serve(self)

    def forget(self) -> None:
        """Drop everything: this place ends."""
        self.matching = Matching()
        self._parcels.clear()
        self._fetching.clear()

    # --- sending -----------------------------------------------------------------------------

    def send(self, now: float, event: le.SendTagged) -> Effects:
        """Send a message to one place or several."""
        parcels: dict[int, Parcel] = {}
        for destination in event.destinations:
            parcel = Parcel(
                MESSAGE,
                event.tag,
                body=event.body,
                payload=event.payload,
                handle=event.number,
            )
            if event.payload is not None:
                self._transfers.offer(destination, parcel, self)
            self._parcels[destination, event.number] = parcels[destination] = parcel
        if len(parcels) > 1:
            return self._letters.send_to_all(now, TAGGED, parcels)
        effects: Effects = []
        for destination, parcel in parcels.items():
            effects += self._letters.send(now, destination, TAGGED, parcel)
        return effects

    def withdraw(self, now: float, event: le.WithdrawTagged) -> Effects:
        """Take a message back that has not left yet, or of which not all has arrived."""
        destination, number = event.destination, event.number
        parcel = self._parcels.get((destination, number))
        if parcel is None:
            return []
        if self._letters.withdraw(destination, TAGGED, parcel):
            error = CancelledError("the message was taken back")
            return self.settled(now, destination, parcel, error)
        if parcel.large:
            return self._transfers.withdraw(now, destination, parcel)
        return []

    def settled(
        self, now: float, destination: int, parcel: Parcel, error: SapwoodError | None
    ) -> Effects:
        """The payload was taken, or never will be."""
        del now
        if self._parcels.pop((destination, parcel.handle), None) is None:
            return []
        if error is not None:
            self._transfers.forget(destination, parcel)
        record = error.to_record() if error is not None else None
        return [le.SendEnded(parcel.handle, destination, record)]

    # --- receiving ---------------------------------------------------------------------------

    def receive(self, now: float, event: le.PostReceive) -> Effects:
        """Wait for a message."""
        receive = Receive(event.number, event.source, event.tag)
        message = self.matching.posted(receive)
        if message is None:
            absence = self._letters.gone.get(event.source)
            effects = self._letters.resume(now, TAGGED)  # one that had no room may be wanted
            if absence is None or not self.matching.cancel(event.number):
                return effects
            record = lost_error(event.source, absence.reason).to_record()
            return [*effects, le.ReceiveFailed(event.number, record)]
        effects = self._give(now, receive, message.item)
        return effects + self._letters.resume(now, TAGGED)

    def cancel(self, number: int) -> bool:
        """Take a receive back; return whether it still waited."""
        return self.matching.cancel(number)

    def arrived(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects | None:
        """Take a message in, if somebody waits for it or it has room to wait."""
        nbytes = len(letter.body) + (payload.nbytes if payload and not letter.large else 0)
        waits = self.matching.find(letter.source, letter.tag) is not None
        if not waits and not self.matching.has_room(nbytes):
            return None
        receive = self.matching.arrived(letter.source, letter.tag, nbytes, (letter, payload))
        return self._give(now, receive, (letter, payload)) if receive is not None else []

    def _give(self, now: float, receive: Receive, item: Item) -> Effects:
        letter, payload = item
        if letter.large and payload is None:
            self._fetching[letter.source, letter.large] = receive
            return self._transfers.fetch(now, letter, self, self.allocate)
        found = le.TaggedArrived(receive.number, letter.source, letter.tag, letter.body, payload)
        return [found, *self._transfers.taken(now, letter)]

    def fetched(
        self, now: float, letter: msg.Letter, payload: Payload | None, error: SapwoodError | None
    ) -> Effects:
        """The payload of a large message is here, or never will be."""
        receive = self._fetching.pop((letter.source, letter.large), None)
        if receive is None:
            return []
        if error is None:
            return [
                le.TaggedArrived(receive.number, letter.source, letter.tag, letter.body, payload)
            ]
        lost = isinstance(error, AgentLostError) and receive.source == ANY
        if lost or isinstance(error, CancelledError):  # as if it had never been sent
            return self.receive(now, le.PostReceive(*receive))
        return [le.ReceiveFailed(receive.number, error.to_record())]

    def retracted(self, source: int, large: int) -> None:
        """A large message that waits was taken back."""
        for item in self.matching.from_source(source):
            if item[0].large == large:
                self.matching.drop(source, item)

    def moved(self, peer: int, what: Parcel | msg.Letter, done: int, total: int) -> Effects:
        """So many bytes of a large message have arrived."""
        if isinstance(what, Parcel):
            return [le.Progressed(TAGGED, what.handle, outgoing=True, done=done, total=total)]
        receive = self._fetching.get((peer, what.large))
        if receive is None:
            return []
        return [le.Progressed(TAGGED, receive.number, outgoing=False, done=done, total=total)]

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone: what it had only offered, and what only it could send."""
        del now
        for item in self.matching.from_source(rank):
            if item[0].large:
                self.matching.drop(rank, item)
        effects: Effects = []
        for receive in self.matching.receives_from(rank):
            self.matching.cancel(receive.number)
            effects.append(le.ReceiveFailed(receive.number, error.to_record()))
        return effects
