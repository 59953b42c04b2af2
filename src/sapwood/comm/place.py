"""A place at work: a node driven by an event loop over a transport.

Bytes come in through ``bytes_received``: frames are cut, messages of the link itself (credit,
resuming) are dealt with here, the others go to the node, and what it wants done is done. What it
sends goes through the channel of each link (``channel.py``).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from sapwood.comm import events as ev
from sapwood.comm import frames
from sapwood.comm import messages as msg
from sapwood.comm.channel import (
    MAX_QUEUED,
    MESSAGE_COST,
    Channel,
    ChannelState,
    Hold,
    holds_back,
)
from sapwood.comm.frames import Buffers
from sapwood.comm.lines import Line, Lines, Reconnect, Resumption
from sapwood.comm.liveness import ProcessWatch, Watch
from sapwood.comm.loop import Loop, Timer
from sapwood.comm.node import Node
from sapwood.comm.payload import Payload
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.comm.transport.base import Connection, ConnectionHandler
from sapwood.core.errors import ProtocolError

Handlers = Mapping[type[ev.Effect], Callable[[Any], None]]
"""What the layer above does with each kind of effect that concerns it."""


class Place:
    """Drives a node: bytes in, effects out.

    Args:
        node: The protocol core.
        handlers: What to do with the effects that are not about connections.
        loop: The event loop; all calls happen on its thread.
        on_problem: Told what was wrong with a peer that broke the protocol.
        reconnect: Makes the connection to the parent anew, with :meth:`resumption`; without it
            a broken connection to the parent is its loss.
        watch: Tells of the end of processes of this machine.
    """

    def __init__(
        self,
        node: Node,
        handlers: Handlers,
        loop: Loop,
        on_problem: Callable[[str], None],
        reconnect: Reconnect | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.node = node
        self.blocks = MappedBlocks()
        self._loop = loop
        self._on_problem = on_problem
        lines = Lines(node, self.post, loop.time, reconnect, watch or ProcessWatch(loop))
        self.lines = lines
        self.channels = lines.channels
        self._open = lines.open
        self._queue: deque[ev.Effect] = deque()
        self._performing = False
        self._source: Channel | None = None
        self._source_frame: frames.Frame | None = None
        self._hold: Hold | None = None
        self._timer: Timer | None = None
        self._handlers: dict[type[ev.Effect], Callable[[Any], None]] = {
            **handlers,
            ev.Transmit: self._transmit,
            ev.Disconnect: self._disconnect,
            ev.Wake: self._wake,
        }

    def start(self) -> None:
        """Begin to tick: there is nothing to do yet."""
        self._timer = self._loop.call_later(self.node.timing.heartbeat / 2, self._beat)

    def _beat(self) -> None:
        self.tick()
        self.start()

    def tick(self) -> None:
        """Let links and node do what they do by themselves; let go of what others gave up."""
        self.blocks.forget_gone()
        self.lines.tick()
        self.post(ev.Tick())

    def post(self, event: ev.Event) -> None:
        """Give the node an event and do what it wants done."""
        effects = self.node.step(self._loop.time(), event)
        if effects:
            self._perform(effects)

    # --- connections -----------------------------------------------------------------------------

    def connection_opened(self, connection: Connection, *, initiator: bool) -> int:
        """Take a new connection in and return a number for it."""
        number = self.lines.new_number()
        effects = self.node.step(self._loop.time(), ev.LinkOpened(number, initiator))
        self.lines.add(number, connection, initiator=initiator)
        self._perform(effects)
        return number

    def connection_closed(self, number: int, reason: str) -> None:
        """Note that a connection ended; its link may go on over another one."""
        self.lines.closed(number, reason)

    def resumption(self, link: int) -> ConnectionHandler:
        """Return what a new connection is to be given to, on which a broken link is to go on."""
        return Resumption(self.lines, self, link)

    def cut(self, number: int, reason: str) -> None:
        """End a link at once, as if its process had ended."""
        self.lines.cut(number, reason)

    def close(self) -> None:
        """End all links at once."""
        if self._timer is not None:
            self._timer.cancel()
        self.lines.close()
        self.blocks.forget()
        self.node.forget()

    # --- receiving -------------------------------------------------------------------------------

    def bytes_received(self, number: int, data: bytes) -> None:
        """Take bytes in; a peer that breaks the protocol is cut off."""
        line = self._open.get(number)
        if line is None:
            return
        now = self._loop.time()
        try:
            arrived = line.decoder.feed(data)
            self._take(line, arrived, now)
        except ProtocolError as error:
            channel = line.channel
            self._on_problem(f"{channel.link}: {error}")
            self.lines.end(channel, str(error))
            return
        finally:
            self._source = None
        channel = line.channel
        unpaid = channel.unpaid = channel.unpaid + len(data) + len(arrived) * MESSAGE_COST
        if unpaid >= channel.credit_at:
            self.lines.give_credit(channel, now)

    def _take(self, line: Line, arrived: list[frames.Frame], now: float) -> None:
        """Take frames in, in order."""
        receive, channel = self.node.receive, line.channel
        for frame in arrived:
            message = frame.message
            if message.__class__ in msg.CONTROL:
                self._source = None
                self._control(line, message, now)
                channel = line.channel
                continue
            self._source = channel
            self._source_frame = frame
            channel.received += 1
            if frame.payload is not None or frame.shared is not None:
                effects = receive(now, channel.number, message, self._payload(frame))
            else:
                effects = receive(now, channel.number, message, None)
            if effects:
                self._perform(effects)
                self._hold = None
        if channel.overdrawn:
            raise ProtocolError("it sends more than it has credit for")

    def _control(self, line: Line, message: msg.AnyMessage, now: float) -> None:
        """Deal with a message of the link itself."""
        channel = line.channel
        if channel.state is ChannelState.RESUMING:
            if isinstance(message, msg.Resumed):
                channel.link.heard(now)
                self.lines.goes_on(line, message.received)
            elif isinstance(message, msg.Refused):
                self.lines.end(channel, message.reason)
            else:
                raise ProtocolError(f"unexpected {type(message).__name__} before Resumed")
        elif isinstance(message, msg.Credit) and channel.state is ChannelState.OPEN:
            channel.link.heard(now)
            self.lines.release(channel.credited(message.consumed))
        elif isinstance(message, msg.Resume):
            self.lines.on_resume(line, message)
            line.channel.link.heard(now)
        else:
            self._greeting_or_sign(line, message, now)

    def _greeting_or_sign(self, line: Line, message: msg.AnyMessage, now: float) -> None:
        channel = line.channel
        if isinstance(message, msg.Hello) and channel.state is ChannelState.FRESH:
            self.lines.forget_former(message)
        effects = self.node.receive(now, channel.number, message, None)
        if channel.state is ChannelState.FRESH and channel.link.usable:
            self._greeted(line, message)
        self._perform(effects)

    def _greeted(self, line: Line, greeting: msg.AnyMessage) -> None:
        assert isinstance(greeting, msg.Hello | msg.Welcome)  # noqa: S101 - no other greets
        peer_link = greeting.link if isinstance(greeting, msg.Hello) else 0
        line.channel.greeted(greeting.window, peer_link, line.connection.write)
        line.decoder.trust(self.node.timing.max_payload)

    def _payload(self, frame: frames.Frame) -> Payload | None:
        if frame.shared is not None:
            return Payload.mapped(frame.shared, self.blocks)
        return Payload(frame.payload) if frame.payload is not None else None

    # --- doing what the node wants ---------------------------------------------------------------

    def _perform(self, effects: list[ev.Effect]) -> None:
        """Do what the node wants; what a handler causes comes after what was wanted before."""
        if self._performing:
            self._queue.extend(effects)
            return
        self._performing = True
        handlers, queue = self._handlers, self._queue
        try:
            for effect in effects:
                handler = handlers.get(type(effect))
                if handler is not None:
                    handler(effect)
            while queue:
                effect = queue.popleft()
                handler = handlers.get(type(effect))
                if handler is not None:
                    handler(effect)
        finally:
            self._performing = False

    def _transmit(self, effect: ev.Transmit) -> None:
        now = self._loop.time()
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
                self._queue_up(channel, buffers, cost)

    def _queue_up(self, channel: Channel, buffers: Buffers, cost: int) -> None:
        """Let a message wait for credit; what it was made of gives none meanwhile."""
        source = self._source
        hold = None
        frame = self._source_frame
        if source is not None and frame is not None and holds_back(source, channel):
            hold = self._hold
            if hold is None:
                hold = self._hold = source.hold(frame.nbytes + MESSAGE_COST)
        channel.send(buffers, cost, hold)
        if channel.queued > MAX_QUEUED and hold is None:
            self.cut(channel.number, f"{channel.queued} bytes wait and are not read")

    def _wake(self, effect: ev.Wake) -> None:
        self._loop.call_later(effect.seconds, self.post, ev.TimeUp(effect.stream))

    def _disconnect(self, effect: ev.Disconnect) -> None:
        self.lines.disconnect(effect.link, effect.reason)
