"""One link to one neighbour: handshake, heartbeat, failure detection. No I/O.

Life of a link, as a table (:data:`TRANSITIONS`)::

    CONNECTING --opened--> GREETING --greeted--> UP --silent--> SUSPECT --heard--> UP
         |                     |                 |                 |
         +------- closed ------+---- closed -----+---- closed -----+--> CLOSED

The side that connects sends ``Hello``; the side that accepts answers ``Welcome`` or
``Refused``. A neighbour from which nothing is heard for ``failure_after`` is suspect; whoever
owns the node decides what to do about it. One that does not greet in that time is cut off.
"""

from __future__ import annotations

import enum

import msgspec

from sapwood.comm.frames import MAX_PAYLOAD
from sapwood.comm.messages import PROTOCOL_VERSION, WINDOW, Hello, Resume, Welcome
from sapwood.core.errors import ProtocolError
from sapwood.core.states import StateTable

PIECE = 256 * 1024
"""Bytes of a piece of large arrays of streams, where links cannot share memory."""


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
        credential: What the other side checks.
    """

    cluster: str
    rank: int
    incarnation: int
    pid: int
    machine: str
    credential: bytes = b""

    def hello(self, window: int = WINDOW, link: int = 0, attachment: int = 1) -> Hello:
        """Return the first message of the side that connects.

        Args:
            window: What this side takes before it has consumed it, bytes.
            link: This side's number for the link.
            attachment: How often this process has asked to be attached to a parent.
        """
        return Hello(
            PROTOCOL_VERSION,
            self.cluster,
            self.rank,
            self.incarnation,
            self.pid,
            self.machine,
            self.credential,
            window,
            link,
            attachment,
        )

    def welcome(self, window: int = WINDOW) -> Welcome:
        """Return the answer of the side that accepts."""
        return Welcome(PROTOCOL_VERSION, self.rank, self.pid, self.machine, window)

    def resume(self, link: int, received: int) -> Resume:
        """Return the first message of a connection on which a link goes on."""
        return Resume(
            PROTOCOL_VERSION,
            self.cluster,
            self.rank,
            self.incarnation,
            link,
            received,
            self.credential,
        )


class LinkTiming(msgspec.Struct, frozen=True):
    """When a link speaks, when it worries, and how much it takes.

    Attributes:
        heartbeat: Seconds between signs of life.
        failure_after: Seconds of silence after which a neighbour is suspect.
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

    ``usable`` says whether messages other than the handshake may pass.

    Args:
        number: The transport's name for the connection.
        initiator: Whether this side connected.
        now: Time of creation, seconds.
    """

    __slots__ = (
        "attachment",
        "incarnation",
        "initiator",
        "last_heard",
        "last_sent",
        "number",
        "pid",
        "rank",
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

    def advance(self, event: LinkEvent) -> None:
        """Go to the next state.

        Raises:
            ProtocolError: The event cannot happen in this state.
        """
        following = TRANSITIONS.after(self.state, event, self.number)
        self.state = following
        self.usable = following is LinkState.UP or following is LinkState.SUSPECT

    def greet(self, message: Hello | Welcome, me: Identity) -> None:
        """Take the neighbour's greeting.

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
