"""The link table of one place: the link protocol at work. No I/O, no clock, no loop.

:meth:`LinkTable.receive` is the one entrance for bytes. Here frames are cut; the messages of the
link itself (greeting, ``Credit``, ``Resume``, ``Goodbye``) are obeyed; the others go to the node;
and what the node wants sent waits here for credit, and leaves from here. Other effects go to the
handlers of the layer above. For clock, loop and kernel they use the
:class:`Surroundings`: the driver of a process (``driver.py``), which the simulators drive, too.

**One reconnect, from beginning to end.** A connection ends (:meth:`LinkTable.closed`); its link
stays, BROKEN, and keeps what the peer has not acknowledged. The surroundings watch the peer's
process and make a new connection (:meth:`LinkTable.reconnected`), on which this side says
``Resume`` with the number of messages it has received. The peer (:meth:`LinkTable._on_resume`)
finds the link, answers ``Resumed`` with its own number, and both retransmit what the other lacks
(:meth:`LinkTable._goes_on`). A link that stays broken for the grace time, or whose peer's process
has ended, is over: the node hears of :class:`~sapwood.comm.events.LinkClosed`.

**Why this table and the node are two objects.** Each owns one half of a link, and no more: the
node's peers know who is at the other end, and whether it lives (``Link``: greeting, heartbeat);
this table knows what has become of the bytes (``Channel``: credit, retransmission, the connection).
A link begins and ends here only, and the node hears of that by an event. In one object, the node
could not be run without bytes. The simulators of messages do that: they lose, double and reorder
messages between places, as no link would, to show that what lies above holds even then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.frames import FrameDecoder
from sapwood.comm.framing import Buffers
from sapwood.comm.link import (
    MAX_QUEUED,
    MESSAGE_COST,
    Channel,
    ChannelState,
    Hold,
    check_greeting,
    holds_back,
)
from sapwood.comm.link_figures import LinkFigures
from sapwood.comm.payload import Payload
from sapwood.comm.repeated_failures import RepeatedFailures
from sapwood.comm.transport.base import ConnectionFacts, DescribedConnection
from sapwood.core.errors import ProtocolError
from sapwood.core.failures import as_error

if TYPE_CHECKING:
    from sapwood.comm.node import Node
    from sapwood.comm.shared_memory import MappedBlocks
    from sapwood.comm.transport.base import Connection


Handlers = Mapping[type[ev.Effect], Callable[[Any], None]]
"""What the layer above does with each kind of effect that concerns it."""


class Surroundings(Protocol):
    """What a link table has done by whoever drives it."""

    def reconnect(self, link: int, attempt: int) -> None:
        """Begin to make a new connection for a broken link."""

    def watch(self, link: int, pid: int) -> Callable[[], None]:
        """Call :meth:`LinkTable.process_ended` once a process of this machine ends, or at once.

        Returns:
            A function that ends the watch.
        """

    def problem(self, text: str) -> None:
        """Report what a peer did that the protocol does not allow."""

    def failed(self, doing: str, exception: BaseException, effect: ev.Effect | None) -> None:
        """Report an unexpected exception, and fail what an effect was for; must not raise."""


class LinkConnection:
    """A connection and the channel that it carries at present.

    Args:
        number: The connection's number.
        connection: The connection.
        channel: The channel; it changes when the connection continues another link.
        decoder: Cuts its bytes into frames.
    """

    __slots__ = ("channel", "connection", "decoder", "number")

    def __init__(
        self, number: int, connection: Connection, channel: Channel, decoder: FrameDecoder
    ) -> None:
        self.number = number
        self.connection = connection
        self.channel = channel
        self.decoder = decoder


class FailedLink(NamedTuple):
    """A link that failed again, and is kept for a while: what its peer says is not read.

    Attributes:
        carrier: Its connection.
        ends_at: When it ends.
        reason: Why.
    """

    carrier: LinkConnection
    ends_at: float
    reason: str


class LinkTable:
    """The links of one place, with the connections that carry them.

    Args:
        node: The protocol core above the links.
        handlers: What to do with effects other than sending and disconnecting.
        surroundings: Does what is neither protocol nor state.
        blocks: Maps shared memory that messages refer to.
        reconnects: Whether this side makes broken connections to the parent anew; without it a
            broken connection to the parent is its loss.

    Attributes:
        connections: The open connections, by their number.
        channels: Channels by the number of their link.
        dropped: Messages that waited for credit when their link ended, by the peer's rank.
    """

    def __init__(
        self,
        node: Node,
        handlers: Handlers,
        surroundings: Surroundings,
        blocks: MappedBlocks,
        *,
        reconnects: bool,
    ) -> None:
        self.connections: dict[int, LinkConnection] = {}
        self.channels: dict[int, Channel] = {}
        self.dropped: dict[int, int] = {}
        self._node = node
        self._handlers = handlers
        self._surroundings = surroundings
        self._queue: deque[ev.Effect] = deque()
        self._performing = False
        self._blocks = blocks
        self._reconnects = reconnects
        self._broken: dict[int, Callable[[], None]] = {}
        self._failed: dict[int, FailedLink] = {}
        self._failures = RepeatedFailures()
        self._next_number = 1
        self._source: Channel | None = None
        self._source_frame: frames.Frame | None = None
        self._hold: Hold | None = None

    def step(self, now: float, event: ev.Event) -> None:
        """Give the node an event and have done what it wants."""
        effects = self._node.step(now, event)
        if effects:
            self._perform(now, effects)

    def tick(self, now: float) -> None:
        """Give credit that is due, end what stayed broken; then the node sends heartbeats."""
        for failed in list(self._failed.values()):
            channel = failed.carrier.channel
            channel.link.heard(now)  # it is not the peer that is silent
            if now >= failed.ends_at:
                self._end(now, channel, failed.reason)
        grace = self._node.timing.grace
        for channel in list(self.channels.values()):
            if channel.state is ChannelState.OPEN:
                self._give_credit(channel, now)
            elif channel.number in self._broken and now - channel.broken_at > grace:
                self._end(now, channel, channel.reason)
        self.step(now, ev.Tick())

    def _perform(self, now: float, effects: list[ev.Effect]) -> None:
        """Do what the node wants; what a handler causes comes after what was wanted before."""
        if self._performing:
            self._queue.extend(effects)
            return
        self._performing = True
        queue, handlers = self._queue, self._handlers
        left = iter(effects)
        try:
            while True:
                try:
                    while True:
                        for effect in left:
                            if type(effect) is ev.Transmit:
                                self._transmit(now, effect)
                            elif type(effect) is ev.Disconnect:
                                self.disconnect(now, effect.link, effect.reason)
                            elif (handler := handlers.get(type(effect))) is not None:
                                handler(effect)
                        if not queue:
                            return
                        left = iter((queue.popleft(),))
                except (Exception, SystemExit) as exception:  # noqa: BLE001 - whatever it is
                    # It ends what this effect was for; the others are performed, in order.
                    self._not_performed(now, effect, exception)
        finally:
            self._performing = False

    def _not_performed(
        self, now: float, effect: ev.Effect, exception: Exception | SystemExit
    ) -> None:
        """Fail what an effect was for that could not be performed."""
        name = type(effect).__name__
        if not isinstance(effect, ev.Transmit):
            self._surroundings.failed(f"effect {name}", exception, effect)
            return
        name = type(effect.message).__name__
        self._surroundings.failed(f"sending {name}", exception, effect)
        for number in effect.links:  # the peers wait for a message that will not come
            self.cut(now, number, f"{name} could not be sent: {type(exception).__name__}")

    def figures(self, now: float) -> list[LinkFigures]:
        """Return what is known of each link to a neighbour."""
        carriers = {one.channel.number: one.connection for one in self.connections.values()}
        found: list[LinkFigures] = []
        for channel in self.channels.values():
            link = channel.link
            if not link.usable:
                continue
            connection, trip = carriers.get(channel.number), link.round_trip
            found.append(
                LinkFigures(
                    rank=link.rank,
                    state=link.state.value if connection is not None else channel.state.value,
                    silent=now - link.last_heard,
                    round_trip=trip.smoothed if trip else None,
                    round_trip_variation=trip.variation if trip else None,
                    round_trip_least=trip.least if trip else None,
                    messages_sent=channel.sent,
                    bytes_sent=channel.bytes_sent,
                    messages_received=channel.incoming.received,
                    bytes_received=channel.incoming.nbytes,
                    unacknowledged=channel.kept,
                    waiting=channel.waiting,
                    queued=max(0, channel.queued - channel.waiting * MESSAGE_COST),
                    dropped=self.dropped.get(link.rank, 0),
                    resumptions=channel.resumptions,
                    connection=_facts_of(connection),
                )
            )
        return found

    # --- connections -----------------------------------------------------------------------------

    def opened(self, now: float, connection: Connection, *, initiator: bool) -> int:
        """Take in a connection with a new link; return its number, which is the link's, too."""
        number = self._new_number()
        effects = self._node.step(now, ev.LinkOpened(number, initiator))
        channel = Channel(self._node.links[number], self._node.timing.window)
        channel.write = connection.write
        decoder = self._decoder() if initiator else FrameDecoder.of_stranger()
        self.channels[number] = channel
        self.connections[number] = LinkConnection(number, connection, channel, decoder)
        self._perform(now, effects)
        return number

    def _new_number(self) -> int:
        number = self._next_number
        self._next_number += 1
        return number

    def _decoder(self) -> FrameDecoder:
        return FrameDecoder(self._node.timing.max_payload)

    def closed(self, now: float, number: int, reason: str) -> None:
        """A connection ended: its link waits for another one, unless its process is gone."""
        failed = self._failed.pop(number, None)
        if failed is not None:
            self._end(now, failed.carrier.channel, failed.reason)
            return
        carrier = self.connections.pop(number, None)
        if carrier is None:
            return
        channel = carrier.channel
        link = channel.link
        final = not self._node.timing.grace or (link.initiator and not self._reconnects)
        if channel.state is ChannelState.FRESH or final:
            self._end(now, channel, reason)
            return
        channel.broke(now, reason)
        self._broken.pop(channel.number, _nothing)()
        self._broken[channel.number] = _nothing
        if link.same_machine:
            unwatch = self._surroundings.watch(channel.number, link.pid)
            if self.channels.get(channel.number) is not channel:
                return
            self._broken[channel.number] = unwatch
        if self._reconnects and link.initiator:
            self._surroundings.reconnect(channel.number, channel.attempts)
        self._report_change(now, channel, reason)

    def _report_change(self, now: float, channel: Channel, reason: str) -> None:
        """Report that a link lost its connection, or continues: then there is no reason."""
        if channel.link.usable and self.channels.get(channel.number) is channel:
            self._perform(now, [ev.LinkChanged(channel.link.rank, reason)])

    def process_ended(self, now: float, link: int) -> None:
        """End a broken link: its peer's process is known to have ended."""
        channel = self.channels.get(link)
        if channel is not None and link in self._broken:
            self._end(now, channel, channel.reason)

    def give_up(self, now: float, link: int, reason: str) -> None:
        """End a broken link: the peer no longer listens."""
        if self.is_broken(link):
            self._end(now, self.channels[link], reason)

    def cut(self, now: float, link: int, reason: str) -> None:
        """End a link at once; the peer is notified if it still listens."""
        channel = self.channels.get(link)
        if channel is not None:
            channel.write(_goodbye(reason))
            self._end(now, channel, reason)

    def disconnect(self, now: float, link: int, reason: str) -> None:
        """End a link after what was sent."""
        channel = self.channels.get(link)
        if channel is not None:
            self._hang_up(channel, politely=True)
            self._end(now, channel, reason)

    def close(self) -> None:
        """End all links at once."""
        farewell = _goodbye("the other side ended")
        for carrier in self._carriers():
            carrier.connection.write(farewell)
            carrier.connection.abort()
        self._failed.clear()
        for unwatch in self._broken.values():
            unwatch()
        self._broken.clear()
        self.connections.clear()
        self.channels.clear()

    def _end(self, now: float, channel: Channel, reason: str) -> None:
        """A link is over."""
        if channel.state is ChannelState.CLOSED:
            return
        self.channels.pop(channel.number, None)
        self._broken.pop(channel.number, _nothing)()
        self._hang_up(channel, politely=False)
        if channel.waiting:
            rank = channel.link.rank
            self.dropped[rank] = self.dropped.get(rank, 0) + channel.waiting
        self._release(now, channel.gone())
        self.step(now, ev.LinkClosed(channel.number, reason))

    def _hang_up(self, channel: Channel, *, politely: bool) -> None:
        """Close the connection that carries a channel, if there is one."""
        for carrier in self._carriers():
            if carrier.channel is channel:
                self.connections.pop(carrier.number, None)
                self._failed.pop(carrier.number, None)
                (carrier.connection.close if politely else carrier.connection.abort)()

    def _carriers(self) -> list[LinkConnection]:
        """Return all connections, also those of links that failed."""
        return [*self.connections.values(), *(one.carrier for one in self._failed.values())]

    def _fail(self, now: float, carrier: LinkConnection, reason: str) -> None:
        """End a link whose message could not be taken in; later if that happens again and again.

        A link that is kept is not read, so its peer does not begin a new one that fails at once.
        """
        channel = carrier.channel
        pause = self._failures.pause(channel.link.rank, now) if channel.link.usable else 0.0
        open_still = self.connections.get(carrier.number) is carrier
        if not pause or not open_still:
            self._end(now, channel, reason)
            return
        del self.connections[carrier.number]
        self._failed[carrier.number] = FailedLink(carrier, now + pause, reason)

    # --- receiving -------------------------------------------------------------------------------

    def receive(self, now: float, number: int, data: bytes) -> None:
        """Take bytes in; a peer that breaks the protocol is cut off.

        An unexpected exception of the decoder or the node ends the link, too, without blame: the
        node may have taken in half of a message.
        """
        carrier = self.connections.get(number)
        if carrier is None:
            return
        try:
            arrived = carrier.decoder.feed(data)
            self._take(carrier, arrived, now)
        except ProtocolError as error:
            channel = carrier.channel
            self._surroundings.problem(f"{channel.link}: {error}")
            self._fail(now, carrier, str(error))
            return
        except Exception as exception:  # noqa: BLE001 - whatever it is, it is this link's
            channel = carrier.channel
            self._surroundings.failed(f"a message on {channel.link}", exception, None)
            self._fail(now, carrier, str(as_error(exception).what))
            return
        finally:
            self._source = None
        incoming = carrier.channel.incoming
        unpaid = incoming.unpaid = incoming.unpaid + len(data) + len(arrived) * MESSAGE_COST
        if unpaid >= incoming.credit_at:
            self._give_credit(carrier.channel, now)

    def _take(self, carrier: LinkConnection, arrived: list[frames.Frame], now: float) -> None:
        """Take frames in, in order."""
        receive, channel = self._node.receive, carrier.channel
        for frame in arrived:
            message = frame.message
            if message.__class__ in msg.CONTROL:
                self._source = None
                self._control(carrier, message, now)
                channel = carrier.channel
                channel.incoming.control += frame.nbytes + MESSAGE_COST
                continue
            self._source = channel
            self._source_frame = frame
            channel.incoming.received += 1
            if frame.payload is not None or frame.shared is not None:
                effects = receive(now, channel.number, message, self._payload(frame))
            else:
                effects = receive(now, channel.number, message, None)
            if effects:
                self._perform(now, effects)
                self._hold = None
        if channel.incoming.overdrawn:
            raise ProtocolError("it sends more than it has credit for")

    def _payload(self, frame: frames.Frame) -> Payload | None:
        if frame.shared is not None:
            return Payload.mapped(frame.shared, self._blocks)
        return Payload(frame.payload) if frame.payload is not None else None

    def _control(self, carrier: LinkConnection, message: msg.AnyMessage, now: float) -> None:
        """Deal with a message of the link itself."""
        channel = carrier.channel
        if channel.state is ChannelState.RESUMING:
            if isinstance(message, msg.Resumed):
                channel.link.heard(now)
                self._goes_on(carrier, message.received, now)
            elif isinstance(message, msg.Refused):
                self._end(now, channel, message.reason)
            else:
                raise ProtocolError(f"unexpected {type(message).__name__} before Resumed")
        elif isinstance(message, msg.Credit) and channel.state is ChannelState.OPEN:
            channel.link.heard(now)
            self._release(now, channel.credited(message.consumed))
        elif isinstance(message, msg.Resume):
            self._on_resume(carrier, message, now)
            carrier.channel.link.heard(now)
        else:
            self._greeting_or_sign(carrier, message, now)

    def _greeting_or_sign(
        self, carrier: LinkConnection, message: msg.AnyMessage, now: float
    ) -> None:
        """Take a greeting in, or a sign of life: a heartbeat or a goodbye."""
        channel = carrier.channel
        if isinstance(message, msg.Hello) and channel.state is ChannelState.FRESH:
            self._forget_former(message, now)
        effects = self._node.receive(now, channel.number, message, None)
        if channel.state is ChannelState.FRESH and channel.link.usable:
            assert isinstance(message, msg.Hello | msg.Welcome)  # noqa: S101 - no other greets
            peer_link = message.link if isinstance(message, msg.Hello) else 0
            channel.greeted(message.window, peer_link, carrier.connection.write)
            carrier.decoder.trust(self._node.timing.max_payload)
        self._perform(now, effects)

    def _forget_former(self, hello: msg.Hello, now: float) -> None:
        """Forget the former link of a process that says hello: it does not resume that link."""
        if not self._node.identity.accepts(hello.rank, hello.credential):
            return
        for number in list(self._broken):
            link = self.channels[number].link
            if link.rank == hello.rank and link.incarnation <= hello.incarnation:
                self._end(now, self.channels[number], "greeted anew")

    # --- sending ---------------------------------------------------------------------------------

    def _transmit(self, now: float, effect: ev.Transmit) -> None:
        """Send a message on several links, where there is credit; encode it once."""
        message, payload = effect.message, effect.payload
        channels, control = self.channels, message.__class__ in msg.CONTROL
        encoded: dict[bool, tuple[Buffers, int]] = {}
        for number in effect.links:
            channel = channels.get(number)
            if channel is None:
                continue
            link = channel.link
            entry = encoded.get(link.same_machine)
            if entry is None:
                buffers = frames.encode(message, payload, share=link.same_machine)
                cost = MESSAGE_COST + sum(map(len, buffers))
                entry = encoded[link.same_machine] = (buffers, cost)
            else:
                buffers, cost = entry
            if channel.ready and not control:
                link.last_sent = now
                channel.send(buffers, cost)
            elif control:
                link.last_sent = now
                channel.write(buffers)
            else:
                self._queue_up(now, channel, buffers, cost)

    def _queue_up(self, now: float, channel: Channel, buffers: Buffers, cost: int) -> None:
        """Back-pressure: a message waits for credit; what it was made of gives none meanwhile."""
        source = self._source
        hold = None
        frame = self._source_frame
        if source is not None and frame is not None and holds_back(source, channel):
            hold = self._hold
            if hold is None:
                hold = self._hold = source.incoming.hold(source, frame.nbytes + MESSAGE_COST)
        channel.send(buffers, cost, hold)
        if channel.queued > MAX_QUEUED and hold is None:
            self.cut(now, channel.number, f"{channel.queued} bytes wait and are not read")

    def _give_credit(self, channel: Channel, now: float) -> None:
        """Tell a peer what has been consumed, if that is news."""
        consumed = channel.incoming.owed()
        if consumed:
            channel.link.last_sent = now
            channel.write(frames.encode(msg.Credit(consumed), None, share=False))

    def _release(self, now: float, holds: list[Hold]) -> None:
        """Give credit to the links from which messages came that were held and are sent now."""
        for hold in holds:
            source = hold.channel
            if source.incoming.release(hold) and source.state is ChannelState.OPEN:
                self._give_credit(source, now)

    # --- reconnect and resume --------------------------------------------------------------------

    def is_broken(self, link: int) -> bool:
        """Whether a link waits for a new connection."""
        channel = self.channels.get(link)
        return channel is not None and channel.state is ChannelState.BROKEN

    def reconnected(self, link: int, connection: Connection) -> int:
        """Send on a new connection which link continues, and where; return its number."""
        if not self.is_broken(link):
            connection.abort()
            return -1
        channel, number = self.channels[link], self._new_number()
        self.connections[number] = LinkConnection(number, connection, channel, self._decoder())
        channel.reconnected()
        message = self._node.identity.resume(link, channel.incoming.received, channel.link.rank)
        connection.write(frames.encode(message, None, share=False))
        return number

    def _on_resume(self, carrier: LinkConnection, message: msg.Resume, now: float) -> None:
        """A peer has made a new connection for a link.

        Raises:
            ProtocolError: It may not say so here, or is of another version or cluster.
        """
        fresh = carrier.channel
        if fresh.state is not ChannelState.FRESH or fresh.link.initiator:
            raise ProtocolError("unexpected Resume")
        channel = self._resumable(message)
        if channel is None:
            reason = f"rank {message.rank} has no such link here"
            fresh.write(frames.encode(msg.Refused(reason), None, share=False))
            self.disconnect(now, fresh.number, reason)
            return
        del self.channels[fresh.number]
        fresh.gone()
        self.step(now, ev.LinkClosed(fresh.number, "its connection continues another link"))
        self._hang_up(channel, politely=False)  # this side may not have noticed the break yet
        carrier.channel = channel
        carrier.decoder.trust(self._node.timing.max_payload)
        answer = msg.Resumed(channel.incoming.received)
        carrier.connection.write(frames.encode(answer, None, share=False))
        self._goes_on(carrier, message.received, now)

    def _resumable(self, message: msg.Resume) -> Channel | None:
        """Return the channel that a peer may resume."""
        identity = self._node.identity
        check_greeting(message, identity)
        if not identity.accepts(message.rank, message.credential):
            return None
        failed = {one.carrier.channel.number for one in self._failed.values()}
        for channel in self.channels.values():
            if channel.number in failed:
                continue  # half of a message may have been taken in
            link = channel.link
            known = (link.rank, link.incarnation, channel.peer_link)
            if known == (message.rank, message.incarnation, message.link) and not link.initiator:
                return channel
        return None

    def _goes_on(self, carrier: LinkConnection, received: int, now: float) -> None:
        """Retransmit what the peer has not received, from where both sides know the link continues.

        Raises:
            ProtocolError: The peer cannot have received so many messages.
        """
        channel = carrier.channel
        self._broken.pop(channel.number, _nothing)()
        self._release(now, channel.resumed(received, carrier.connection.write))
        self._give_credit(channel, now)
        self._report_change(now, channel, "")


def _facts_of(connection: object) -> ConnectionFacts | None:
    """Return what a connection is made of, if there is one that says so."""
    return connection.facts() if isinstance(connection, DescribedConnection) else None


def _goodbye(reason: str) -> Buffers:
    """Return a frame that ends a link on purpose."""
    return frames.encode(msg.Goodbye(reason), None, share=False)


def _nothing() -> None:
    pass
