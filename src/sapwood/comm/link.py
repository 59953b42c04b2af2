"""One link to one peer: handshake, heartbeat, flow control, retransmission. No I/O, no clock.

**Handshake and heartbeat** (:class:`Link`), as a table (:data:`TRANSITIONS`)::

    CONNECTING --opened--> GREETING --greeted--> UP --silent--> SUSPECT --heard--> UP
         |                     |                 |                 |
         +------- closed ------+---- closed -----+---- closed -----+--> CLOSED

The side that connects sends ``Hello``; the side that accepts answers ``Welcome`` or
``Refused``. A peer from which nothing is heard for ``failure_after``, the heartbeat time-out, is
suspect; ``peers.py`` decides what to do about it. One that does not greet in that time is cut off.

**Flow control and retransmission** (:class:`Channel`). Both sides count every message but those
of the link itself (:data:`~sapwood.comm.messages.CONTROL`); nothing in a frame says its number. A
message costs its bytes and :data:`MESSAGE_COST`. A side may send while the cost of what it has
sent and the peer has not consumed is below the window that the peer announced; the rest waits
in order. The peer says ``Credit`` with the number of messages it has consumed in all, and this
side forgets them. Until then it keeps them, by reference: a connection that breaks while both
processes live is made anew, each side says how many messages it has received, and the other sends
the rest again (retransmission), nothing twice.

As a table (:data:`CHANNEL_TRANSITIONS`)::

    FRESH --greeted--> OPEN --broke--> BROKEN --reconnected--> RESUMING --resumed--> OPEN
                         ^               |  ^                      |
                         +--- resumed ---+  +------- broke --------+
    any --gone--> CLOSED

The side that connected makes the new connection. It goes through RESUMING; the other side goes
on from BROKEN, or from OPEN where it has not yet noticed that the old connection is gone.

**Back-pressure.** A message that a place passes on counts as consumed when it has been written
to all links it goes to (:class:`Hold`). A link without credit thus keeps back the credit of the
links that feed it, hop by hop to whoever writes.

**Why this cannot deadlock.** In a tree a message goes up any number of links and then down any
number. So the credit of an upward link waits for links further up or for downward ones, the
credit of a downward link only for links further down, and a leaf never waits. In this order,
upward links from the leaves to the root, then downward ones from the root to the leaves, every
link waits only for later ones, so no cycle exists. An answer could close a cycle: a message
from the parent that makes this place send something to the parent. Such a message is *not* held
back (:func:`holds_back`); its number is bounded by what was asked, which its sender bounds.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import msgspec

from sapwood.comm.frames import MAX_PAYLOAD
from sapwood.comm.framing import Buffers
from sapwood.comm.messages import PROTOCOL_VERSION, WINDOW, Heartbeat, Hello, Resume, Welcome
from sapwood.comm.place_keys import PlaceKeys
from sapwood.comm.replay import Expectation, Sent
from sapwood.comm.round_trip import RoundTrip
from sapwood.core.errors import ProtocolError
from sapwood.core.states import StateTable
from sapwood.core.topology import ROOT

PIECE = 256 * 1024
"""Bytes of a piece of large arrays of streams, where links cannot share memory."""


MESSAGE_COST = 256
"""Bytes that a message costs beyond its own: what it takes to keep it."""

MAX_QUEUED = 2**30
"""Cost of what may wait for one link's credit before the link is given up.

Relayed messages are bounded by the windows of the links they came from, messages of users by the
queues that they pass; this bound is for all others.
"""

CREDIT_SHARE = 4
"""A receiver gives credit back when it owes this part of its window, and at every tick."""


class LinkState(enum.Enum):
    """States of a link."""

    CONNECTING = "connecting"
    GREETING = "greeting"
    UP = "up"
    SUSPECT = "suspect"
    CLOSED = "closed"


class LinkEvent(enum.Enum):
    """What happens to a link."""

    OPENED = "opened"
    GREETED = "greeted"
    SILENT = "silent"
    HEARD = "heard"
    CLOSED = "closed"


TRANSITIONS = StateTable(
    "link",
    {
        (LinkState.CONNECTING, LinkEvent.OPENED): LinkState.GREETING,
        (LinkState.GREETING, LinkEvent.GREETED): LinkState.UP,
        (LinkState.UP, LinkEvent.SILENT): LinkState.SUSPECT,
        (LinkState.SUSPECT, LinkEvent.HEARD): LinkState.UP,
        (LinkState.CONNECTING, LinkEvent.CLOSED): LinkState.CLOSED,
        (LinkState.GREETING, LinkEvent.CLOSED): LinkState.CLOSED,
        (LinkState.UP, LinkEvent.CLOSED): LinkState.CLOSED,
        (LinkState.SUSPECT, LinkEvent.CLOSED): LinkState.CLOSED,
    },
)
"""(state, event) → next state; any other pair is a mistake of the program."""


class Identity(msgspec.Struct):
    """Who a place is.

    Attributes:
        cluster: Name of the cluster; both ends must agree.
        rank: Place in the tree.
        incarnation: Counts the processes that have held this place.
        pid: Process id; 0 until the process is there.
        machine: What decides whether two processes can share memory (see ``machine.py``).
        keys: What it shows to places above, and expects of those below.
    """

    cluster: str
    rank: int
    incarnation: int
    pid: int
    machine: str
    keys: PlaceKeys = PlaceKeys()

    def hello(
        self, window: int = WINDOW, link: int = 0, attachment: int = 1, above: int = ROOT
    ) -> Hello:
        """Return the first message of the side that connects.

        Args:
            window: What this side takes before it has consumed it, bytes.
            link: This side's number for the link.
            attachment: How often this process has asked to be attached to a parent.
            above: The place that it connects to.
        """
        return Hello(
            PROTOCOL_VERSION,
            self.cluster,
            self.rank,
            self.incarnation,
            self.pid,
            self.machine,
            self.keys.shown(self.rank, above),
            window,
            link,
            attachment,
        )

    def accepts(self, rank: int, credential: bytes) -> bool:
        """Whether a place below this one showed what it has to."""
        return self.keys.accepts(rank, credential, at=self.rank)

    def welcome(self, window: int = WINDOW) -> Welcome:
        """Return the answer of the side that accepts."""
        return Welcome(PROTOCOL_VERSION, self.rank, self.pid, self.machine, window)

    def resume(self, link: int, received: int, above: int = ROOT) -> Resume:
        """Return the first message of a connection that continues a link to a place above."""
        return Resume(
            PROTOCOL_VERSION,
            self.cluster,
            self.rank,
            self.incarnation,
            link,
            received,
            self.keys.shown(self.rank, above),
        )


class LinkTiming(msgspec.Struct, frozen=True):
    """When a link speaks, when it worries, and how much it takes.

    Attributes:
        heartbeat: Seconds between heartbeats.
        failure_after: The heartbeat time-out: seconds of silence after which a peer is suspect.
        grace: Seconds in which a connection that broke may be made anew; 0 for never.
        window: Cost of messages that are taken before they are consumed, bytes.
        max_payload: Largest payload that is accepted inside a message, bytes.
        give_up_after: Seconds that a place looks for a parent before it ends.
        piece: Bytes of a piece: larger arrays of streams go in such pieces over links whose
            ends share no memory. A multiple of 64.
    """

    heartbeat: float = 1.0
    failure_after: float = 10.0
    grace: float = 5.0
    window: int = WINDOW
    max_payload: int = MAX_PAYLOAD
    give_up_after: float = 30.0
    piece: int = PIECE


class Link:
    """State of one link.

    ``usable`` says whether messages other than the handshake may pass, ``round_trip`` how long one
    takes there and back, None until that is known.

    Args:
        number: The transport's name for the connection.
        initiator: Whether this side connected.
        now: Time of creation, seconds.
    """

    __slots__ = (
        "_echo",
        "_echo_at",
        "attachment",
        "incarnation",
        "initiator",
        "last_beat",
        "last_heard",
        "last_sent",
        "number",
        "pid",
        "rank",
        "round_trip",
        "same_machine",
        "state",
        "usable",
    )

    def __init__(self, number: int, *, initiator: bool, now: float) -> None:
        self.number = number
        self.initiator = initiator
        self.state = LinkState.CONNECTING
        self.usable = False
        self.rank = -1
        self.incarnation = 0
        self.attachment = 0
        self.pid = 0
        self.same_machine = False
        self.last_heard = now
        self.last_sent = now
        self.last_beat = now
        self.round_trip: RoundTrip | None = None
        self._echo = 0.0
        self._echo_at = 0.0

    def advance(self, event: LinkEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        following = TRANSITIONS.after(self.state, event, self.number)
        self.state = following
        self.usable = following is LinkState.UP or following is LinkState.SUSPECT

    def greet(self, message: Hello | Welcome, me: Identity) -> None:
        """Take the peer's greeting.

        Raises:
            ProtocolError: It is of another version or cluster.
        """
        check_greeting(message, me)
        self.rank = message.rank
        self.pid = message.pid
        self.same_machine = message.machine == me.machine
        if isinstance(message, Hello):
            self.incarnation = message.incarnation
            self.attachment = message.attachment
        self.advance(LinkEvent.GREETED)

    def heard(self, now: float) -> None:
        """Note that something arrived."""
        self.last_heard = now
        if self.state is LinkState.SUSPECT:
            self.advance(LinkEvent.HEARD)

    def beat(self, now: float) -> Heartbeat:
        """Return the heartbeat to be sent now, and count it as sent."""
        echo, self._echo = self._echo, 0.0
        self.last_sent = self.last_beat = now
        return Heartbeat(now, echo, now - self._echo_at if echo else 0.0)

    def beaten(self, beat: Heartbeat) -> None:
        """Take a heartbeat in that arrived just now."""
        now = self.last_heard
        self._echo, self._echo_at = beat.clock, now
        if beat.echo:
            trip = self.round_trip
            if trip is None:
                trip = self.round_trip = RoundTrip()
            trip.add(now - beat.echo - beat.held)

    def forgive(self, seconds: float) -> None:
        """Do not count a time in which this process itself did not run."""
        self.last_heard += seconds

    def __repr__(self) -> str:
        return f"Link({self.number}, {self.state.value}, rank {self.rank}, pid {self.pid})"


def check_greeting(message: Hello | Welcome | Resume, me: Identity) -> None:
    """Raise ProtocolError if a greeting is not meant for this place."""
    if message.version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"the peer speaks protocol version {message.version}, this side {PROTOCOL_VERSION}",
            hint="install the same version of Sapwood on both sides",
        )
    if not isinstance(message, Welcome) and message.cluster != me.cluster:
        raise ProtocolError("the peer belongs to another cluster", where=message.cluster)


# --- flow control and retransmission -------------------------------------------------------------


class ChannelState(enum.Enum):
    """States of a channel."""

    FRESH = "fresh"
    OPEN = "open"
    BROKEN = "broken"
    RESUMING = "resuming"
    CLOSED = "closed"


class ChannelEvent(enum.Enum):
    """What happens to a channel."""

    GREETED = "greeted"
    BROKE = "broke"
    RECONNECTED = "reconnected"
    RESUMED = "resumed"
    GONE = "gone"


CHANNEL_TRANSITIONS = StateTable(
    "channel",
    {
        (ChannelState.FRESH, ChannelEvent.GREETED): ChannelState.OPEN,
        (ChannelState.OPEN, ChannelEvent.BROKE): ChannelState.BROKEN,
        (ChannelState.OPEN, ChannelEvent.RESUMED): ChannelState.OPEN,
        (ChannelState.BROKEN, ChannelEvent.RECONNECTED): ChannelState.RESUMING,
        (ChannelState.BROKEN, ChannelEvent.RESUMED): ChannelState.OPEN,
        (ChannelState.RESUMING, ChannelEvent.RESUMED): ChannelState.OPEN,
        (ChannelState.RESUMING, ChannelEvent.BROKE): ChannelState.BROKEN,
        (ChannelState.FRESH, ChannelEvent.GONE): ChannelState.CLOSED,
        (ChannelState.OPEN, ChannelEvent.GONE): ChannelState.CLOSED,
        (ChannelState.BROKEN, ChannelEvent.GONE): ChannelState.CLOSED,
        (ChannelState.RESUMING, ChannelEvent.GONE): ChannelState.CLOSED,
    },
)
"""(state, event) → next state; any other pair is a mistake of the program."""


class Hold:
    """A received message that is not passed on yet: its credit is kept back.

    Args:
        channel: Where it came from.
        number: Which message of that channel it is.
        cost: What it cost the sender.
    """

    __slots__ = ("channel", "cost", "number", "waiting")

    def __init__(self, channel: Channel, number: int, cost: int) -> None:
        self.channel = channel
        self.number = number
        self.cost = cost
        self.waiting = 0


class ReceiveCredit:
    """What a link has received, and the credit for it that is due.

    Args:
        window: Cost of messages that this side takes before it has consumed them.

    Attributes:
        received: Messages that arrived, counted by the caller.
        unpaid: Cost of what arrived since credit was last given.
        control: Cost of the messages of the link itself that arrived.
        credit_at: Unpaid cost at which credit is given at once.
        overdrawn: Whether the peer has sent more than it had credit for.

    Example:
        >>> incoming = ReceiveCredit(1000)
        >>> incoming.received = 3
        >>> incoming.owed(), incoming.owed()
        (3, 0)
    """

    __slots__ = (
        "_held",
        "_holds",
        "_paid",
        "_told",
        "_window",
        "control",
        "credit_at",
        "overdrawn",
        "received",
        "unpaid",
    )

    def __init__(self, window: int) -> None:
        self.received = 0
        self.unpaid = 0
        self.control = 0
        self.credit_at = max(1, window // CREDIT_SHARE)
        self.overdrawn = False
        self._window = window
        self._paid = 0  # as unpaid, for what credit was given for
        self._holds: deque[Hold] = deque()
        self._held = 0
        self._told = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the messages that arrived."""
        return self._paid + self.unpaid - self.control - self.received * MESSAGE_COST

    @property
    def consumed(self) -> int:
        """Messages that are dealt with: all before the first that is held."""
        return self._holds[0].number - 1 if self._holds else self.received

    def passed(self, count: int, nbytes: int) -> None:
        """Count messages that another reader has consumed.

        Args:
            count: How many.
            nbytes: Their bytes.
        """
        self.received += count
        self.unpaid += nbytes + count * MESSAGE_COST

    def hold(self, channel: Channel, cost: int) -> Hold:
        """Keep back the credit of the message that was received last, of this channel."""
        if self._held >= self._window:
            self.overdrawn = True
        hold = Hold(channel, self.received, cost)
        self._held += cost
        self._holds.append(hold)
        return hold

    def release(self, hold: Hold) -> bool:
        """One link has taken what a hold stands for; return whether credit is due."""
        hold.waiting -= 1
        holds = self._holds
        due = False
        while holds and not holds[0].waiting:
            self._held -= holds.popleft().cost
            due = True
        return due

    def owed(self) -> int:
        """Return the number for a ``Credit`` that is due, and count it as said; 0 if none is."""
        consumed = self.consumed
        if consumed == self._told:
            return 0
        self._told = consumed
        self._paid += self.unpaid
        self.unpaid = 0
        return consumed

    def say_again(self) -> None:
        """Owe the last ``Credit`` once more: it may be lost."""
        self._told = 0

    def forget(self) -> None:
        """Drop all holds: the link is over."""
        self._holds.clear()


class Channel:
    """Flow control and retransmission of one link: counts, keeps and queues its messages.

    Args:
        link: The link; its number is the channel's.
        window: Cost of messages that this side takes before it has consumed them.

    Attributes:
        write: Writes to the connection; whoever drives the channel sets it.
        ready: Whether a message may be written at once.
        room: Cost that may still be sent; below zero after a message that was larger.
        queued: Cost of what waits for credit.
        incoming: What it has received, and the credit for it.
        resumptions: How often it continued over a new connection.

    Example:
        >>> channel, written = Channel(Link(1, initiator=True, now=0.0), 1000), []
        >>> channel.greeted(window=300, peer_link=1, write=written.append)
        >>> for text in (b"one", b"two", b"three"):
        ...     channel.send([text], len(text) + MESSAGE_COST)
        >>> written, channel.queued
        ([[b'one'], [b'two']], 261)
        >>> channel.credited(1)
        []
        >>> written[2]
        [b'three']
    """

    __slots__ = (
        "_acknowledged",
        "_kept",
        "_peer_window",
        "_queue",
        "_returned",
        "attempts",
        "broken_at",
        "incoming",
        "link",
        "number",
        "peer_link",
        "queued",
        "ready",
        "reason",
        "resumptions",
        "room",
        "state",
        "write",
    )

    def __init__(self, link: Link, window: int) -> None:
        self.link = link
        self.number = link.number
        self.peer_link = 0
        self.state = ChannelState.FRESH
        self.write: Callable[[Buffers], None] = _nowhere
        self.ready = False
        self.room = 0
        self.queued = 0
        self.incoming = ReceiveCredit(window)
        self.resumptions = 0
        self.broken_at = 0.0
        self.attempts = 0
        self.reason = ""
        self._peer_window = 0
        self._returned = 0  # the cost of what the peer has acknowledged
        self._acknowledged = 0
        self._kept: deque[tuple[Buffers, int]] = deque()
        self._queue: deque[tuple[Buffers, int, Hold | None]] = deque()

    def advance(self, event: ChannelEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        self.state = CHANNEL_TRANSITIONS.after(self.state, event, self.number)

    # --- sending ---------------------------------------------------------------------------------

    @property
    def sent(self) -> int:
        """Messages that were sent, counted from the first."""
        return self._acknowledged + len(self._kept)

    @property
    def bytes_sent(self) -> int:
        """Bytes of the messages that were sent."""
        return self._returned + self._peer_window - self.room - self.sent * MESSAGE_COST

    @property
    def waiting(self) -> int:
        """Messages that wait for credit."""
        return len(self._queue)

    @property
    def kept(self) -> int:
        """Messages that were sent and are not acknowledged."""
        return len(self._kept)

    def send(self, buffers: Buffers, cost: int, hold: Hold | None = None) -> None:
        """Send a message now, or when there is credit.

        Args:
            buffers: Its frame; must not change until it is acknowledged.
            cost: Bytes of the frame and :data:`MESSAGE_COST`.
            hold: What it was made of, if that gives credit only when this is sent.
        """
        if self.ready:
            room = self.room = self.room - cost
            if room <= 0:
                self.ready = False
            self._kept.append((buffers, cost))
            self.write(buffers)
            return
        self._queue.append((buffers, cost, hold))
        self.queued += cost
        if hold is not None:
            hold.waiting += 1

    @contextmanager
    def replay(self, sent: Iterable[Sent]) -> Iterator[None]:
        """Meanwhile, what is written is compared with what was sent; see ``replay.py``.

        Raises:
            SapwoodError: Something else was sent than is written.
        """
        write = self.write
        expected = Expectation(sent, write)
        self.write = expected.write
        try:
            yield
        finally:
            self.write = write
        expected.check()

    def passed(self, sent: Sequence[tuple[Buffers, int]], arrived: int) -> None:
        """Count messages that the C library sent, and as many that arrived.

        Args:
            sent: Frames, each with its cost.
            arrived: Bytes of what arrived.
        """
        self.incoming.passed(len(sent), arrived)
        self.room -= sum(cost for _, cost in sent)
        self._kept.extend(sent)

    def credited(self, consumed: int) -> list[Hold]:
        """The peer has consumed so many messages in all; send what waits for that.

        Returns:
            Holds of what was sent now.

        Raises:
            ProtocolError: It cannot have consumed so many, or said more before.
        """
        if not self._acknowledged <= consumed <= self.sent:
            raise ProtocolError(
                f"credit for {consumed} messages where {self._acknowledged} to {self.sent} can be"
            )
        kept, before = self._kept, self.room
        for _ in range(consumed - self._acknowledged):
            self.room += kept.popleft()[1]
        self._returned += self.room - before
        self._acknowledged = consumed
        return self._flush()

    def _flush(self) -> list[Hold]:
        holds: list[Hold] = []
        queue = self._queue
        while queue and self.room > 0:
            buffers, cost, hold = queue.popleft()
            self.queued -= cost
            self.room -= cost
            self._kept.append((buffers, cost))
            self.write(buffers)
            if hold is not None:
                holds.append(hold)
        self.ready = self.room > 0
        return holds

    # --- connections -----------------------------------------------------------------------------

    def greeted(self, window: int, peer_link: int, write: Callable[[Buffers], None]) -> None:
        """The handshake is complete.

        Args:
            window: What the peer takes.
            peer_link: The peer's number for this link, by which it resumes.
            write: Writes to the connection.
        """
        self.advance(ChannelEvent.GREETED)
        self.peer_link = peer_link
        self.write = write
        self.room = self._peer_window = max(1, window)
        self.ready = True

    def broke(self, now: float, reason: str) -> None:
        """The connection ended; both processes may live."""
        if self.state is ChannelState.OPEN:
            self.broken_at = now
            self.reason = reason
        self.advance(ChannelEvent.BROKE)
        self.ready = False
        self.write = _nowhere

    def reconnected(self) -> None:
        """There is a new connection, on which ``Resume`` is said first."""
        self.advance(ChannelEvent.RECONNECTED)
        self.attempts += 1

    def resumed(self, received: int, write: Callable[[Buffers], None]) -> list[Hold]:
        """Go on over a new connection; send again what the peer has not received.

        Returns:
            Holds of what was sent for the first time.

        Raises:
            ProtocolError: It cannot have received so many.
        """
        if not self._acknowledged <= received <= self.sent:
            raise ProtocolError(
                f"{received} messages received where {self._acknowledged} to {self.sent} can be"
            )
        self.advance(ChannelEvent.RESUMED)
        self.attempts = 0
        self.resumptions += 1
        self.write = write
        self.incoming.say_again()
        for buffers, _ in islice(self._kept, received - self._acknowledged, None):
            write(buffers)
        return self._flush()

    def gone(self) -> list[Hold]:
        """The link is over; return the holds of what was not sent any more."""
        self.advance(ChannelEvent.GONE)
        self.ready = False
        self.write = _nowhere
        holds = [hold for _, _, hold in self._queue if hold is not None]
        self._queue.clear()
        self._kept.clear()
        self.incoming.forget()
        self.queued = 0
        return holds

    def __repr__(self) -> str:
        return (
            f"Channel({self.number}, {self.state.value}, sent {self.sent}, kept {self.kept}, "
            f"received {self.incoming.received}, queued {self.queued})"
        )


def holds_back(source: Channel, target: Channel) -> bool:
    """Whether what came on one channel waits for credit of the other: not for answers upwards."""
    return not (source.link.initiator and target.link.initiator)


def _nowhere(_buffers: Buffers) -> None:
    pass
