"""Letters from any place to any other over the tree: routing, numbers, receipts. No I/O.

Every message that is not for a neighbour only is a letter on a channel. A place passes on what
is for others, and hands what is for itself to the user of the channel, exactly once and in
order (``ordering.py``): requests (``active.py``), tagged messages (``tagged.py``) and the pieces
of large ones (``transfers.py``). A letter to several places travels each link once and is
divided where the ways part.

Silence ends nothing: what is not acknowledged is sent again for as long as the place belongs to the
tree. Only the front end says that a process is gone (``census.py``), or a newer one at its place;
neighbours notice silence on their link, and receipts may be lost at every hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.letters import events as le
from sapwood.comm.letters.exchange import Exchange, Key
from sapwood.comm.letters.ordering import EPOCH_SHIFT, Action, Inbox, Outbox
from sapwood.comm.letters.parcel import (
    Absence,
    ChannelUser,
    Parcel,
    addressed,
    fitting,
    lost_error,
    receipt_for,
    written,
)
from sapwood.comm.link import Link
from sapwood.comm.messages import letters as msg
from sapwood.comm.neighbourhood import Effects, Neighbourhood
from sapwood.comm.payload import Payload
from sapwood.core.errors import AgentLostError, SapwoodError

MAX_HOPS = 64
"""Places that may pass a letter on; more than any tree is deep, so it goes in a circle."""

PATIENCE = 2.0
"""Heartbeats after which a letter is sent again if its receipt has not come."""


class Letters:
    """The letters of one place.

    Args:
        near: The neighbours.

    Attributes:
        gone: Places without a process, and why.
        exchange: Letters that somebody else exchanges.
        max_payload: Bytes of the largest payload that is fetched.
    """

    def __init__(self, near: Neighbourhood) -> None:
        self.rank = near.rank
        self.max_payload = near.timing.max_payload
        self.gone: dict[int, Absence] = {}
        self._near = near
        self._users: dict[int, ChannelUser] = {}
        self._patience = PATIENCE * near.timing.heartbeat
        self._outboxes: dict[Key, Outbox[Parcel]] = {}
        self._inboxes: dict[Key, Inbox[tuple[msg.Letter, Payload | None]]] = {}
        self._under_way: set[Key] = set()
        self._owing: set[Key] = set()
        self._blocked: set[Key] = set()
        self._peers: dict[int, int] = {}
        self._oldest: dict[int, int] = {}
        self.exchange = Exchange(
            self._outboxes, self._inboxes, self._under_way, self._owing, self.gone
        )

    def use(self, channel: int, user: ChannelUser) -> None:
        """Give a channel its user."""
        self._users[channel] = user

    def forget(self) -> None:
        """Drop everything: this place ends."""
        self._outboxes.clear()
        self._inboxes.clear()
        for keys in (self._under_way, self._owing, self._blocked):
            keys.clear()

    # --- sending -----------------------------------------------------------------------------

    def send(self, now: float, destination: int, channel: int, parcel: Parcel) -> Effects:
        """Send a parcel; its channel's user hears of its end."""
        outbox = self._outboxes.get((channel, destination))
        if outbox is None or self.gone:
            error = self.why_not(destination)
            if error is not None:
                return self._users[channel].ended(now, destination, parcel, error)
            outbox = self._outbox(channel, destination)
        if not outbox:
            self._under_way.add((channel, destination))
        number = outbox.post(now, parcel)
        if not number:
            return []
        letter = written(self.rank, destination, channel, outbox, number, parcel)
        return self._onward(now, letter, parcel.payload)

    def send_to_all(self, now: float, channel: int, parcels: dict[int, Parcel]) -> Effects:
        """Send parcels of the same content to several places; each link carries it once."""
        addresses: list[msg.Address] = []
        effects: Effects = []
        template: Parcel | None = None
        for destination, parcel in parcels.items():
            error = self.why_not(destination)
            if error is not None:
                effects += self._users[channel].ended(now, destination, parcel, error)
                continue
            outbox = self._outbox(channel, destination)
            template = parcel
            self._under_way.add((channel, destination))
            number = outbox.post(now, parcel)
            if number:
                one = msg.Address(destination, outbox.epoch, outbox.peer, number, parcel.large)
                addresses.append(one)
        if template is not None and addresses:
            nobody: Outbox[Parcel] = Outbox(0, 0, 0.0)
            letter = written(self.rank, -1, channel, nobody, 0, template)
            effects += self._divide(now, letter, tuple(addresses), template.payload)
        return effects

    def withdraw(self, destination: int, channel: int, parcel: Parcel) -> bool:
        """Take a parcel back; return whether it had not left yet."""
        outbox = self._outboxes.get((channel, destination))
        return outbox is not None and outbox.withdraw(parcel)

    def room(self, channel: int, destination: int) -> int:
        """Return how many parcels would leave at once."""
        return self._outbox(channel, destination).room

    def why_not(self, destination: int) -> SapwoodError | None:
        """Return why nothing can be sent to a place, if so."""
        if not 0 <= destination < self._near.router.size:
            return AgentLostError(f"there is no rank {destination}")
        absence = self.gone.get(destination)
        return lost_error(destination, absence.reason) if absence is not None else None

    def _outbox(self, channel: int, destination: int) -> Outbox[Parcel]:
        key = (channel, destination)
        outbox = self._outboxes.get(key)
        if outbox is None:
            incarnation = self._near.identity.incarnation
            window = self._users[channel].window
            outbox = self._outboxes[key] = Outbox(incarnation, window, self._patience)
        return outbox

    def _onward(
        self, now: float, letter: msg.Letter | msg.Receipt, payload: Payload | None
    ) -> Effects:
        """Send towards the destination; where there is no way now, it is sent again later."""
        if letter.destination == self.rank:
            return self._take_in(now, letter, payload)
        hop = self._near.neighbours.get(self._near.router.next_hop(letter.destination))
        if hop is None:
            return []
        return [ev.Transmit((hop.number,), letter, fitting(hop, letter, payload))]

    def _divide(
        self,
        now: float,
        letter: msg.Letter,
        addresses: Sequence[msg.Address],
        payload: Payload | None,
        came_by: int = -1,
    ) -> Effects:
        """Send each neighbour the letter for those who are reached by it."""
        ways: dict[int, list[msg.Address]] = {}
        effects: Effects = []
        for address in addresses:
            if address.destination == self.rank:
                effects += self._take_in(now, addressed(letter, address), payload)
            else:
                hop = self._near.router.next_hop(address.destination)
                ways.setdefault(hop, []).append(address)
        for rank, those in ways.items():
            link = self._near.neighbours.get(rank)
            if link is None or link.number == came_by:
                continue
            single = addressed(letter, those[0]) if len(those) == 1 else None
            message = single or msg.Multiple(letter, tuple(those))
            part = fitting(link, letter, payload)
            effects.append(ev.Transmit((link.number,), message, part))
        return effects

    # --- what comes --------------------------------------------------------------------------

    def on_letter(self, link: Link, letter: msg.Letter, payload: Payload | None) -> Effects:
        """A letter arrived: pass it on, or take it in."""
        if letter.destination != self.rank:
            return self._pass_on(link, letter, payload)
        if not self._credible(link, letter.source) or letter.channel not in self._users:
            return []
        return self._take_in(link.last_heard, letter, payload)

    def on_receipt(self, link: Link, receipt: msg.Receipt, _payload: Any) -> Effects:
        """A receipt arrived: pass it on, or take it in."""
        if receipt.destination != self.rank:
            return self._pass_on(link, receipt, None)
        if not self._credible(link, receipt.source):
            return []
        return self._take_in(link.last_heard, receipt, None)

    def on_multiple(self, link: Link, message: msg.Multiple, payload: Payload | None) -> Effects:
        """A letter to several places arrived."""
        letter = message.letter
        if not self._credible(link, letter.source) or letter.channel not in self._users:
            return []
        if letter.hops >= MAX_HOPS or len(message.addresses) > self._near.router.size:
            return []
        onward = msgspec.structs.replace(letter, hops=letter.hops + 1)
        return self._divide(link.last_heard, onward, message.addresses, payload, link.number)

    def _credible(self, link: Link, source: int) -> bool:
        """Whether a neighbour may bring letters from a place: it is on the way there."""
        router = self._near.router
        return 0 <= source < router.size and router.next_hop(source) == link.rank

    def _pass_on(
        self, link: Link, message: msg.Letter | msg.Receipt, payload: Payload | None
    ) -> Effects:
        hop = self._near.neighbours.get(self._near.router.next_hop(message.destination))
        astray = hop is link or message.hops >= MAX_HOPS or not self._credible(link, message.source)
        if hop is None or astray:
            return []
        onward = msgspec.structs.replace(message, hops=message.hops + 1)
        return [ev.Transmit((hop.number,), onward, fitting(hop, message, payload))]

    def _take_in(
        self, now: float, message: msg.Letter | msg.Receipt, payload: Payload | None
    ) -> Effects:
        incarnation = (
            message.incarnation
            if isinstance(message, msg.Receipt)
            else message.epoch >> EPOCH_SHIFT
        )
        if incarnation != self._peers.get(message.source):
            if incarnation < self._oldest.get(message.source, 0):
                return []  # of a process that is gone
            met = self._meet(now, message.source, incarnation)
            return met + self._take_in(now, message, payload)
        if isinstance(message, msg.Receipt):
            return self._acknowledged(now, message)
        if message.peer not in {0, self._near.identity.incarnation}:
            key = (message.channel, message.source)
            return self._receipt(now, key, Inbox(message.epoch))  # it was for another process
        return self._arrived(now, message, payload)

    def _arrived(self, now: float, letter: msg.Letter, payload: Payload | None) -> Effects:
        key = (letter.channel, letter.source)
        inbox = self._inboxes.get(key)
        if inbox is None:
            inbox = self._inboxes[key] = Inbox()
        if inbox.is_next(letter.epoch, letter.number):
            user = self._users[letter.channel]
            done = user.arrived(now, letter, payload)
            if done is not None:
                if inbox.passed() >= user.prompt:
                    done += self._receipt(now, key, inbox)
                else:
                    self._owing.add(key)
                return done
        action = inbox.arrive(letter.epoch, letter.number, (letter, payload))
        if action is Action.DELIVER:
            return self._deliver(now, key, inbox)
        if action is Action.REPEAT:
            return self._receipt(now, key, inbox, inbox.missing(again=True))
        if action is Action.KEEP:
            missing = inbox.missing()
            return self._receipt(now, key, inbox, missing) if missing else []
        return []

    def _meet(self, now: float, rank: int, incarnation: int) -> Effects:
        """Something came of a process that was not heard of before."""
        known = self._peers.get(rank, 0)
        effects: Effects = []
        if known:
            effects = self.lose(now, rank, known, "its process was replaced by another")
        self._peers[rank] = incarnation
        self._oldest[rank] = incarnation
        absence = self.gone.get(rank)
        if absence is not None and absence.incarnation < incarnation:
            del self.gone[rank]
        return effects

    def _deliver(
        self, now: float, key: Key, inbox: Inbox[tuple[msg.Letter, Payload | None]]
    ) -> Effects:
        user = self._users[key[0]]
        effects: Effects = []
        self._blocked.discard(key)
        while inbox.waiting:
            done = user.arrived(now, *inbox.next())
            if done is None:
                self._blocked.add(key)
                break
            inbox.take()
            effects += done
        if inbox.owed >= user.prompt:
            effects += self._receipt(now, key, inbox)
        elif inbox.owed:
            self._owing.add(key)
        return effects

    def acknowledge(self, now: float, event: le.Acknowledge) -> Effects:
        """Send a place its receipt, if so many letters have come that it is not to wait."""
        key = (event.channel, event.rank)
        inbox = self._inboxes.get(key)
        due = inbox is not None and inbox.owed >= self._users[event.channel].prompt
        return self._receipt(now, key, inbox) if inbox is not None and due else []

    def resume(self, now: float, channel: int) -> Effects:
        """Offer the user of a channel again what it had no room for."""
        effects: Effects = []
        for key in [key for key in self._blocked if key[0] == channel]:
            effects += self._deliver(now, key, self._inboxes[key])
        return effects

    def _receipt(
        self, now: float, key: Key, inbox: Inbox[Any], missing: tuple[int, ...] = ()
    ) -> Effects:
        channel, source = key
        self._owing.discard(key)
        here = self._near.identity.incarnation
        receipt = receipt_for(self.rank, here, source, channel, inbox, *missing)
        return self._onward(now, receipt, None)

    def _acknowledged(self, now: float, receipt: msg.Receipt) -> Effects:
        rank, channel = receipt.source, receipt.channel
        outbox = self._outboxes.get((channel, rank))
        if outbox is None or receipt.epoch != outbox.epoch:
            return []
        done, again = outbox.receipt(
            now, receipt.epoch, receipt.incarnation, receipt.upto, receipt.missing
        )
        effects: Effects = []
        for posted in again:
            letter = written(self.rank, rank, channel, outbox, posted.number, posted.item)
            effects += self._onward(now, letter, posted.item.payload)
        user = self._users[channel]
        for posted in done:
            effects += user.ended(now, rank, posted.item, None)
        return effects

    # --- time and loss -----------------------------------------------------------------------

    def tick(self, now: float, _event: ev.Tick) -> Effects:
        """Time passed: send receipts that are owed, and again what has none."""
        effects: Effects = []
        for key in list(self._owing):
            effects += self._receipt(now, key, self._inboxes[key])
        for key in list(self._under_way):
            effects += self._retry(now, key, self._outboxes[key])
        return effects

    def _retry(self, now: float, key: Key, outbox: Outbox[Parcel]) -> Effects:
        if not outbox:
            self._under_way.discard(key)
            return []
        channel, rank = key
        effects: Effects = []
        for posted in outbox.overdue(now):
            letter = written(self.rank, rank, channel, outbox, posted.number, posted.item)
            effects += self._onward(now, letter, posted.item.payload)
        return effects

    def has_ended(self, rank: int, incarnation: int) -> bool:
        """Whether it is known that a process has ended: nothing is under way with it."""
        return incarnation < self._oldest.get(rank, 0)

    def lose(self, now: float, rank: int, incarnation: int, reason: str) -> Effects:
        """End what was under way with a process that is gone."""
        if incarnation < self._peers.get(rank, 0):
            return []  # what is under way is with a newer one
        error = lost_error(rank, reason)
        effects: Effects = []
        self._peers.pop(rank, None)
        self._oldest[rank] = max(incarnation + 1, self._oldest.get(rank, 0))
        for channel, user in self._users.items():
            outbox = self._outboxes.get((channel, rank))
            for parcel in outbox.begin_anew() if outbox is not None else ():
                effects += user.ended(now, rank, parcel, error)
            if self._inboxes.pop((channel, rank), None) is not None:
                self._owing.discard((channel, rank))
                self._blocked.discard((channel, rank))
        for user in self._users.values():
            effects += user.lost(now, rank, error)
        return effects
