"""The connections of a place: which link each carries, how links break, go on and end."""

from collections.abc import Callable
from functools import partial

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.channel import Channel, ChannelState, Hold
from sapwood.comm.frames import Buffers, FrameDecoder
from sapwood.comm.link import check_greeting
from sapwood.comm.liveness import Watch
from sapwood.comm.node import Node
from sapwood.comm.transport.base import Connection, ConnectionHandler
from sapwood.core.errors import ProtocolError

Reconnect = Callable[[int, int], None]
"""``reconnect(link, attempt)`` begins to make the connection of a link anew."""


class Line:
    """A connection and the channel that it carries at present.

    Args:
        number: The connection's number.
        connection: The connection.
        channel: The channel; a connection on which a link goes on changes it.
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


class Lines:
    """The connections and channels of one place.

    Args:
        node: The protocol core.
        post: Gives it an event and does what it wants.
        clock: Returns the time, seconds.
        reconnect: Makes the connection to the parent anew; without it a broken connection to
            the parent is its loss.
        watch: Tells of the end of processes of this machine.

    Attributes:
        open: Connections by their number.
        channels: Channels by the number of their link.
    """

    def __init__(
        self,
        node: Node,
        post: Callable[[ev.Event], None],
        clock: Callable[[], float],
        reconnect: Reconnect | None,
        watch: Watch,
    ) -> None:
        self.open: dict[int, Line] = {}
        self.channels: dict[int, Channel] = {}
        self._node = node
        self._post = post
        self._clock = clock
        self._reconnect = reconnect
        self._watch = watch
        self._broken: dict[int, Callable[[], None]] = {}
        self._next_number = 1

    # --- connections -----------------------------------------------------------------------------

    def new_number(self) -> int:
        """Return a number for a connection; a link has that of its first one."""
        number = self._next_number
        self._next_number += 1
        return number

    def add(self, number: int, connection: Connection, *, initiator: bool) -> None:
        """Take in a connection with a new link, which the node knows."""
        channel = Channel(self._node.links[number], self._node.timing.window)
        channel.write = connection.write
        decoder = self._decoder() if initiator else FrameDecoder.of_stranger()
        self.channels[number] = channel
        self.open[number] = Line(number, connection, channel, decoder)

    def _decoder(self) -> FrameDecoder:
        return FrameDecoder(self._node.timing.max_payload)

    def closed(self, number: int, reason: str) -> None:
        """A connection ended: its link waits for another one, unless its process is gone."""
        line = self.open.pop(number, None)
        if line is None:
            return
        channel, timing = line.channel, self._node.timing
        link = channel.link
        final = not timing.grace or (link.initiator and self._reconnect is None)
        if channel.state is ChannelState.FRESH or final:
            self.end(channel, reason)
            return
        channel.broke(self._clock(), reason)
        self._broken.pop(channel.number, _nothing)()
        self._broken[channel.number] = _nothing
        if link.same_machine:
            unwatch = self._watch(link.pid, partial(self.end, channel, reason))
            if self.channels.get(channel.number) is not channel:
                return
            self._broken[channel.number] = unwatch
        if self._reconnect is not None and link.initiator:
            self._reconnect(channel.number, channel.attempts)

    def tick(self) -> None:
        """Give credit that is due; give up what stayed broken."""
        now, grace = self._clock(), self._node.timing.grace
        for channel in list(self.channels.values()):
            if channel.state is ChannelState.OPEN:
                self.give_credit(channel, now)
            elif channel.number in self._broken and now - channel.broken_at > grace:
                self.end(channel, channel.reason)

    def end(self, channel: Channel, reason: str) -> None:
        """A link is over."""
        if channel.state is ChannelState.CLOSED:
            return
        self.channels.pop(channel.number, None)
        self._broken.pop(channel.number, _nothing)()
        self._hang_up(channel, politely=False)
        self.release(channel.gone())
        self._post(ev.LinkClosed(channel.number, reason))

    def cut(self, number: int, reason: str) -> None:
        """End a link at once; the neighbour is told if it still listens."""
        channel = self.channels.get(number)
        if channel is not None:
            channel.write(goodbye(reason))
            self.end(channel, reason)

    def disconnect(self, number: int, reason: str) -> None:
        """End a link after what was sent."""
        channel = self.channels.get(number)
        if channel is not None:
            self._hang_up(channel, politely=True)
            self.end(channel, reason)

    def close(self) -> None:
        """End all links at once."""
        farewell = goodbye("the other side ended")
        for line in self.open.values():
            line.connection.write(farewell)
            line.connection.abort()
        for unwatch in self._broken.values():
            unwatch()
        self._broken.clear()
        self.open.clear()
        self.channels.clear()

    def _hang_up(self, channel: Channel, *, politely: bool) -> None:
        """Close the connection that carries a channel, if there is one."""
        for line in list(self.open.values()):
            if line.channel is channel:
                del self.open[line.number]
                (line.connection.close if politely else line.connection.abort)()

    # --- credit ----------------------------------------------------------------------------------

    def give_credit(self, channel: Channel, now: float) -> None:
        """Tell a neighbour what has been consumed, if that is news."""
        consumed = channel.owed()
        if consumed:
            channel.link.last_sent = now
            channel.write(frames.encode(msg.Credit(consumed), None, share=False))

    def release(self, holds: list[Hold]) -> None:
        """What was kept back has been sent: those it came from get their credit."""
        for hold in holds:
            source = hold.channel
            if source.release(hold) and source.state is ChannelState.OPEN:
                self.give_credit(source, self._clock())

    # --- links that go on ------------------------------------------------------------------------

    def is_broken(self, number: int) -> bool:
        """Whether a link waits for a new connection."""
        channel = self.channels.get(number)
        return channel is not None and channel.state is ChannelState.BROKEN

    def give_up(self, number: int, reason: str) -> None:
        """End a broken link: nobody listens any more."""
        if self.is_broken(number):
            self.end(self.channels[number], reason)

    def reconnected(self, link: int, connection: Connection) -> int:
        """Say on a new connection which link goes on, and where; return its number."""
        if not self.is_broken(link):
            connection.abort()
            return -1
        channel, number = self.channels[link], self.new_number()
        self.open[number] = Line(number, connection, channel, self._decoder())
        channel.reconnected()
        message = self._node.identity.resume(link, channel.received)
        connection.write(frames.encode(message, None, share=False))
        return number

    def on_resume(self, line: Line, message: msg.Resume) -> None:
        """A neighbour has made a new connection for a link.

        Raises:
            ProtocolError: It may not say so here, or is of another version or cluster.
        """
        fresh = line.channel
        if fresh.state is not ChannelState.FRESH or fresh.link.initiator:
            raise ProtocolError("unexpected Resume")
        channel = self._resumable(message)
        if channel is None:
            reason = f"rank {message.rank} has no such link here"
            fresh.write(frames.encode(msg.Refused(reason), None, share=False))
            self.disconnect(fresh.number, reason)
            return
        del self.channels[fresh.number]
        fresh.gone()
        self._post(ev.LinkClosed(fresh.number, "a link goes on"))
        self._hang_up(channel, politely=False)  # perhaps it is not known here that it broke
        line.channel = channel
        line.decoder.trust(self._node.timing.max_payload)
        answer = msg.Resumed(channel.received)
        line.connection.write(frames.encode(answer, None, share=False))
        self.goes_on(line, message.received)

    def _resumable(self, message: msg.Resume) -> Channel | None:
        identity = self._node.identity
        check_greeting(message, identity)
        if message.credential != identity.credential:
            return None
        for channel in self.channels.values():
            link = channel.link
            known = (link.rank, link.incarnation, channel.peer_link)
            if known == (message.rank, message.incarnation, message.link) and not link.initiator:
                return channel
        return None

    def goes_on(self, line: Line, received: int) -> None:
        """Both sides know where a link goes on.

        Raises:
            ProtocolError: The neighbour cannot have received so many messages.
        """
        channel = line.channel
        self._broken.pop(channel.number, _nothing)()
        self.release(channel.resumed(received, line.connection.write))
        self.give_credit(channel, self._clock())

    def forget_former(self, hello: msg.Hello) -> None:
        """A process that greets anew does not go on where it, or one before it, had been."""
        if hello.credential != self._node.identity.credential:
            return
        for number in list(self._broken):
            link = self.channels[number].link
            if link.rank == hello.rank and link.incarnation <= hello.incarnation:
                self.end(self.channels[number], "greeted anew")


class Resumption:
    """What a transport gives a new connection to, for a link that is to go on over it.

    Args:
        lines: The connections of the place.
        handler: The place.
        link: The link.
    """

    def __init__(self, lines: Lines, handler: ConnectionHandler, link: int) -> None:
        self._lines = lines
        self._link = link
        self.bytes_received = handler.bytes_received
        self.connection_closed = handler.connection_closed

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Say on the new connection which link goes on."""
        assert initiator, "links go on over connections that this side made"  # noqa: S101
        return self._lines.reconnected(self._link, connection)


def goodbye(reason: str) -> Buffers:
    """Return a frame that ends a link on purpose."""
    return frames.encode(msg.Goodbye(reason), None, share=False)


def _nothing() -> None:
    pass
