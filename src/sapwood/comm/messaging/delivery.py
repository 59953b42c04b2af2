"""Reliable delivery from end to end: routing, acknowledgements, retransmission, multicast. No I/O.

Every message that is not for a neighbour only is routed over the tree, on a channel. A place
passes on what is for others, and hands what is for itself to the user of the channel, exactly once
and in order (``ordering.py``): requests (``active.py``), tagged messages (``point_to_point.py``)
and the pieces of large ones (``rendezvous.py``). A message to several places travels each link once
and is divided where the ways part.

Messages that are not acknowledged are sent again as long as their receiver belongs to the
tree. Only the client says that a process is gone (``membership.py``), or a newer one at its
place; neighbours notice silence on their link, and acknowledgements may be lost at every hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from sapwood.comm import events as ev
from sapwood.comm.link import Link
from sapwood.comm.messages import messaging as msg
from sapwood.comm.messaging.ordering import EPOCH_SHIFT, Action, ReceiveWindow, SendWindow
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.core.errors import AgentLostError, ErrorRecord, ProtocolError, SapwoodError

ChannelKey = tuple[int, int]
"""Channel, and the place at the other end."""

MAX_HOPS = 64
"""Places that may pass a message on; more than any tree is deep, so it goes in a circle."""

PATIENCE = 2.0
"""Heartbeats after which a message is sent again if its acknowledgement has not come."""


EAGER = 64 * 1024
"""Bytes of a payload up to which it always travels with its message."""


class LostProcess(NamedTuple):
    """A place without a process: which one it was, and why it is gone."""

    incarnation: int
    reason: str


class OutgoingMessage:
    """A message to send, before it has an address and a number.

    Attributes:
        kind: What it is.
        tag: Number of a request, tag of a message, or which large one this is about.
        label: Handler of a request.
        body: Encoded value.
        payload: Its arrays.
        error: In place of an answer.
        handle: By which the channel's user knows it.
        large: By which name a large payload is known; 0 where it is small.
    """

    __slots__ = ("body", "error", "handle", "kind", "label", "large", "payload", "tag")

    def __init__(
        self,
        kind: int,
        tag: int,
        *,
        label: str = "",
        body: bytes = b"",
        payload: Payload | None = None,
        error: ErrorRecord | None = None,
        handle: Any = None,
        large: int = 0,
    ) -> None:
        self.kind = kind
        self.tag = tag
        self.label = label
        self.body = body
        self.payload = payload
        self.error = error
        self.handle = handle
        self.large = large


class ChannelUser(Protocol):
    """What a channel is used for.

    Attributes:
        window: Messages to one place that may be on their way at a time.
        prompt: Messages after which an acknowledgement is sent at once; before, it may wait for
            a tick.
    """

    window: int
    prompt: int

    def arrived(
        self, now: float, message: msg.RoutedMessage, payload: Payload | None
    ) -> Effects | None:
        """Take a message in, or return None where there is no room: it is offered again."""

    def ended(
        self, now: float, destination: int, outgoing: OutgoingMessage, error: SapwoodError | None
    ) -> Effects:
        """A message has arrived, or never will."""

    def lost(self, now: float, rank: int, error: SapwoodError) -> Effects:
        """A place is gone, after all messages to it have ended."""


class ReliableDelivery:
    """Sends, routes and receives the messages of one place.

    Args:
        near: The neighbours.

    Attributes:
        gone: Places without a process, and why.
        max_payload: Bytes of the largest payload that is fetched.
    """

    def __init__(self, near: PeerTable) -> None:
        self.rank = near.rank
        self.max_payload = near.timing.max_payload
        self.gone: dict[int, LostProcess] = {}
        self._near = near
        self._users: dict[int, ChannelUser] = {}
        self._patience = PATIENCE * near.timing.heartbeat
        self._send_windows: dict[ChannelKey, SendWindow[OutgoingMessage]] = {}
        self._receive_windows: dict[
            ChannelKey, ReceiveWindow[tuple[msg.RoutedMessage, Payload | None]]
        ] = {}
        self._under_way: set[ChannelKey] = set()
        self._owing: set[ChannelKey] = set()
        self._blocked: set[ChannelKey] = set()
        self._peers: dict[int, int] = {}
        self._oldest: dict[int, int] = {}

    def use(self, channel: int, user: ChannelUser) -> None:
        """Give a channel its user."""
        self._users[channel] = user

    def forget(self) -> None:
        """Drop everything: this place ends."""
        self._send_windows.clear()
        self._receive_windows.clear()
        for keys in (self._under_way, self._owing, self._blocked):
            keys.clear()

    # --- sending -----------------------------------------------------------------------------

    def send(
        self, now: float, destination: int, channel: int, outgoing: OutgoingMessage
    ) -> Effects:
        """Send a message; its channel's user hears of its end."""
        send_window = self._send_windows.get((channel, destination))
        if send_window is None or self.gone:
            error = self.why_not(destination)
            if error is not None:
                return self._users[channel].ended(now, destination, outgoing, error)
            send_window = self._send_window(channel, destination)
        if not send_window:
            self._under_way.add((channel, destination))
        number = send_window.post(now, outgoing)
        if not number:
            return []
        message = written(self.rank, destination, channel, send_window, number, outgoing)
        return self._onward(now, message, outgoing.payload)

    def send_to_all(self, now: float, channel: int, copies: dict[int, OutgoingMessage]) -> Effects:
        """Send the same content to several places; each link carries it once."""
        addresses: list[msg.MulticastAddress] = []
        effects: Effects = []
        template: OutgoingMessage | None = None
        for destination, outgoing in copies.items():
            error = self.why_not(destination)
            if error is not None:
                effects += self._users[channel].ended(now, destination, outgoing, error)
                continue
            send_window = self._send_window(channel, destination)
            template = outgoing
            self._under_way.add((channel, destination))
            number = send_window.post(now, outgoing)
            if number:
                one = msg.MulticastAddress(
                    destination, send_window.epoch, send_window.peer, number, outgoing.large
                )
                addresses.append(one)
        if template is not None and addresses:
            nobody: SendWindow[OutgoingMessage] = SendWindow(0, 0, 0.0)
            message = written(self.rank, -1, channel, nobody, 0, template)
            effects += self._divide(now, message, tuple(addresses), template.payload)
        return effects

    def cancel(self, destination: int, channel: int, outgoing: OutgoingMessage) -> bool:
        """Take a message back; return whether it had not left yet."""
        send_window = self._send_windows.get((channel, destination))
        return send_window is not None and send_window.cancel(outgoing)

    def room(self, channel: int, destination: int) -> int:
        """Return how many messages would leave at once."""
        return self._send_window(channel, destination).room

    def why_not(self, destination: int) -> SapwoodError | None:
        """Return why nothing can be sent to a place, if so."""
        if not 0 <= destination < self._near.router.size:
            return AgentLostError(f"rank {destination} does not exist")
        absence = self.gone.get(destination)
        return lost_error(destination, absence.reason) if absence is not None else None

    def left(self, destination: int) -> SapwoodError | None:
        """Return why nothing new is to be asked of a place, if the tree does not have it."""
        tree = self._near.router.tree
        if not tree.epoch or destination in tree or not 0 <= destination < tree.size:
            return None
        return lost_error(destination, "it was removed from the session")

    def _send_window(self, channel: int, destination: int) -> SendWindow[OutgoingMessage]:
        key = (channel, destination)
        send_window = self._send_windows.get(key)
        if send_window is None:
            incarnation = self._near.identity.incarnation
            window = self._users[channel].window
            send_window = self._send_windows[key] = SendWindow(incarnation, window, self._patience)
        return send_window

    def _onward(
        self, now: float, message: msg.RoutedMessage | msg.Acknowledgement, payload: Payload | None
    ) -> Effects:
        """Send towards the destination; where there is no way now, it is sent again later."""
        if message.destination == self.rank:
            return self._take_in(now, message, payload)
        hop = self._near.peers.get(self._near.router.next_hop(message.destination))
        if hop is None:
            return []
        return [ev.Transmit((hop.number,), message, fitting(hop, message, payload))]

    def _divide(
        self,
        now: float,
        message: msg.RoutedMessage,
        addresses: Sequence[msg.MulticastAddress],
        payload: Payload | None,
        came_by: int = -1,
    ) -> Effects:
        """Send each neighbour the message for those who are reached by it."""
        ways: dict[int, list[msg.MulticastAddress]] = {}
        effects: Effects = []
        for address in addresses:
            if address.destination == self.rank:
                effects += self._take_in(now, addressed(message, address), payload)
            else:
                hop = self._near.router.next_hop(address.destination)
                ways.setdefault(hop, []).append(address)
        for rank, those in ways.items():
            link = self._near.peers.get(rank)
            if link is None or link.number == came_by:
                continue
            single = addressed(message, those[0]) if len(those) == 1 else None
            copy = single or msg.Multicast(message, tuple(those))
            part = fitting(link, message, payload)
            effects.append(ev.Transmit((link.number,), copy, part))
        return effects

    # --- what comes --------------------------------------------------------------------------

    def on_message(
        self, link: Link, message: msg.RoutedMessage, payload: Payload | None
    ) -> Effects:
        """A message arrived: pass it on, or take it in."""
        _check_size(link, message)
        if message.destination != self.rank:
            return self._pass_on(link, message, payload)
        if not self._credible(link, message.source) or message.channel not in self._users:
            return []
        return self._take_in(link.last_heard, message, payload)

    def on_acknowledgement(
        self, link: Link, acknowledgement: msg.Acknowledgement, _payload: Any
    ) -> Effects:
        """An acknowledgement arrived: pass it on, or take it in."""
        if acknowledgement.destination != self.rank:
            return self._pass_on(link, acknowledgement, None)
        if not self._credible(link, acknowledgement.source):
            return []
        return self._take_in(link.last_heard, acknowledgement, None)

    def on_multicast(
        self, link: Link, multicast: msg.Multicast, payload: Payload | None
    ) -> Effects:
        """A message to several places arrived."""
        message = multicast.message
        _check_size(link, message)
        if not self._credible(link, message.source) or message.channel not in self._users:
            return []
        if message.hops >= MAX_HOPS or len(multicast.addresses) > self._near.router.size:
            return []
        onward = msgspec.structs.replace(message, hops=message.hops + 1)
        return self._divide(link.last_heard, onward, multicast.addresses, payload, link.number)

    def _credible(self, link: Link, source: int) -> bool:
        """Whether a neighbour may bring messages from a place: it is on the way there."""
        router = self._near.router
        return 0 <= source < router.size and router.next_hop(source) == link.rank

    def _pass_on(
        self, link: Link, message: msg.RoutedMessage | msg.Acknowledgement, payload: Payload | None
    ) -> Effects:
        hop = self._near.peers.get(self._near.router.next_hop(message.destination))
        astray = hop is link or message.hops >= MAX_HOPS or not self._credible(link, message.source)
        if hop is None or astray:
            return []
        onward = msgspec.structs.replace(message, hops=message.hops + 1)
        return [ev.Transmit((hop.number,), onward, fitting(hop, message, payload))]

    def _take_in(
        self, now: float, message: msg.RoutedMessage | msg.Acknowledgement, payload: Payload | None
    ) -> Effects:
        incarnation = (
            message.incarnation
            if isinstance(message, msg.Acknowledgement)
            else message.epoch >> EPOCH_SHIFT
        )
        if incarnation != self._peers.get(message.source):
            if incarnation < self._oldest.get(message.source, 0):
                return []  # of a process that is gone
            met = self._meet(now, message.source, incarnation)
            return met + self._take_in(now, message, payload)
        if isinstance(message, msg.Acknowledgement):
            return self._acknowledged(now, message)
        if message.peer not in {0, self._near.identity.incarnation}:
            key = (message.channel, message.source)
            # It was for another process.
            return self._acknowledge(now, key, ReceiveWindow(message.epoch))
        return self._arrived(now, message, payload)

    def _arrived(self, now: float, message: msg.RoutedMessage, payload: Payload | None) -> Effects:
        key = (message.channel, message.source)
        receive_window = self._receive_windows.get(key)
        if receive_window is None:
            receive_window = self._receive_windows[key] = ReceiveWindow()
        if receive_window.is_next(message.epoch, message.number):
            user = self._users[message.channel]
            done = user.arrived(now, message, payload)
            if done is not None:
                if receive_window.passed() >= user.prompt:
                    done += self._acknowledge(now, key, receive_window)
                else:
                    self._owing.add(key)
                return done
        action = receive_window.arrive(message.epoch, message.number, (message, payload))
        if action is Action.DELIVER:
            return self._deliver(now, key, receive_window)
        if action is Action.REPEAT:
            return self._acknowledge(now, key, receive_window, receive_window.missing(again=True))
        if action is Action.KEEP:
            missing = receive_window.missing()
            return self._acknowledge(now, key, receive_window, missing) if missing else []
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
        self,
        now: float,
        key: ChannelKey,
        receive_window: ReceiveWindow[tuple[msg.RoutedMessage, Payload | None]],
    ) -> Effects:
        user = self._users[key[0]]
        effects: Effects = []
        self._blocked.discard(key)
        while receive_window.waiting:
            done = user.arrived(now, *receive_window.next())
            if done is None:
                self._blocked.add(key)
                break
            receive_window.take()
            effects += done
        if receive_window.owed >= user.prompt:
            effects += self._acknowledge(now, key, receive_window)
        elif receive_window.owed:
            self._owing.add(key)
        return effects

    def resume(self, now: float, channel: int) -> Effects:
        """Offer the user of a channel again what it had no room for."""
        effects: Effects = []
        for key in [key for key in self._blocked if key[0] == channel]:
            effects += self._deliver(now, key, self._receive_windows[key])
        return effects

    def _acknowledge(
        self,
        now: float,
        key: ChannelKey,
        receive_window: ReceiveWindow[Any],
        missing: tuple[int, ...] = (),
    ) -> Effects:
        channel, source = key
        self._owing.discard(key)
        here = self._near.identity.incarnation
        acknowledgement = acknowledgement_for(
            self.rank, here, source, channel, receive_window, *missing
        )
        return self._onward(now, acknowledgement, None)

    def _acknowledged(self, now: float, acknowledgement: msg.Acknowledgement) -> Effects:
        rank, channel = acknowledgement.source, acknowledgement.channel
        send_window = self._send_windows.get((channel, rank))
        if send_window is None or acknowledgement.epoch != send_window.epoch:
            return []
        done, again = send_window.acknowledge(
            now,
            acknowledgement.epoch,
            acknowledgement.incarnation,
            acknowledgement.upto,
            acknowledgement.missing,
        )
        effects: Effects = []
        for posted in again:
            message = written(self.rank, rank, channel, send_window, posted.number, posted.item)
            effects += self._onward(now, message, posted.item.payload)
        user = self._users[channel]
        for posted in done:
            effects += user.ended(now, rank, posted.item, None)
        return effects

    # --- time and loss -----------------------------------------------------------------------

    def tick(self, now: float, _event: ev.Tick) -> Effects:
        """Time passed: send acknowledgements that are owed, and again what has none."""
        effects: Effects = []
        for key in list(self._owing):
            effects += self._acknowledge(now, key, self._receive_windows[key])
        for key in list(self._under_way):
            effects += self._retry(now, key, self._send_windows[key])
        return effects

    def _retry(
        self, now: float, key: ChannelKey, send_window: SendWindow[OutgoingMessage]
    ) -> Effects:
        if not send_window:
            self._under_way.discard(key)
            return []
        channel, rank = key
        effects: Effects = []
        for posted in send_window.overdue(now):
            message = written(self.rank, rank, channel, send_window, posted.number, posted.item)
            effects += self._onward(now, message, posted.item.payload)
        return effects

    def has_ended(self, rank: int, incarnation: int) -> bool:
        """Whether it is known that a process has ended: nothing is under way with it."""
        return incarnation < self._oldest.get(rank, 0)

    def lose(self, now: float, rank: int, incarnation: int, reason: str) -> Effects:
        """End what was under way with a process that is gone."""
        if incarnation < self._peers.get(rank, 0):
            return []  # pending messages are for a newer incarnation
        error = lost_error(rank, reason)
        effects: Effects = []
        self._peers.pop(rank, None)
        self._oldest[rank] = max(incarnation + 1, self._oldest.get(rank, 0))
        for channel, user in self._users.items():
            send_window = self._send_windows.get((channel, rank))
            for outgoing in send_window.begin_anew() if send_window is not None else ():
                effects += user.ended(now, rank, outgoing, error)
            if self._receive_windows.pop((channel, rank), None) is not None:
                self._owing.discard((channel, rank))
                self._blocked.discard((channel, rank))
        for user in self._users.values():
            effects += user.lost(now, rank, error)
        return effects


def written(
    source: int,
    destination: int,
    channel: int,
    send_window: SendWindow[OutgoingMessage],
    number: int,
    outgoing: OutgoingMessage,
) -> msg.RoutedMessage:
    """Return what is sent over the tree."""
    payload = outgoing.payload
    return msg.RoutedMessage(
        source,
        destination,
        channel,
        send_window.epoch,
        send_window.peer,
        number,
        0,
        outgoing.kind,
        outgoing.tag,
        outgoing.label,
        outgoing.body,
        payload.nbytes if outgoing.large and payload is not None else 0,
        outgoing.large,
        outgoing.error,
    )


def acknowledgement_for(
    rank: int,
    incarnation: int,
    source: int,
    channel: int,
    receive_window: ReceiveWindow[Any],
    *missing: int,
) -> msg.Acknowledgement:
    """Note that what a receive window has handed out is acknowledged now; return what says so."""
    upto = receive_window.acknowledged()
    return msg.Acknowledgement(
        rank, source, channel, receive_window.epoch, incarnation, 0, upto, missing
    )


def addressed(message: msg.RoutedMessage, address: msg.MulticastAddress) -> msg.RoutedMessage:
    """Return a message to several places as the one that goes to one of them."""
    return msgspec.structs.replace(
        message,
        destination=address.destination,
        epoch=address.epoch,
        peer=address.peer,
        number=address.number,
        large=address.large,
    )


def fitting(
    hop: Link, message: msg.RoutedMessage | msg.Acknowledgement, payload: Payload | None
) -> Payload | None:
    """Leave a large payload behind where the next place cannot map it: it is fetched in pieces."""
    if payload is None or isinstance(message, msg.Acknowledgement) or not message.size:
        return payload
    return payload if payload.ref is not None and hop.same_machine else None


def lost_error(rank: int, reason: str) -> SapwoodError:
    """Return the error of what was under way with a place that is gone."""
    return AgentLostError(f"agent {rank} is gone: {reason}")


def _check_size(link: Link, message: msg.RoutedMessage) -> None:
    """Raise ProtocolError where a neighbour passes on a message of a negative size."""
    if message.size < 0:
        raise ProtocolError(f"rank {link.rank} sends a message of {message.size} bytes")
