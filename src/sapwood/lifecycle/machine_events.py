"""What happens to the machines of a control tree, and what is to be done about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from sapwood.contexts import orders as reports
from sapwood.core.errors import NodeLostError
from sapwood.lifecycle.events import Log, WakeAt, WakeUp

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DaemonExpected:
    """A daemon of a machine may join from now on."""

    rank: int
    incarnation: int


@dataclass(frozen=True)
class JoinAsked:
    """A machine asks to be a node, with a valid token or certificate.

    Attributes:
        name: What it calls itself.
        node: The id in its certificate; empty for one that has a token.
        slot: The machine that its token is for; 0 for any.
        incarnation: The daemon that its token was made for by a launcher; 0 for any.
    """

    name: str
    node: str = ""
    slot: int = 0
    incarnation: int = 0


@dataclass(frozen=True)
class Certified:
    """A machine that was admitted has a certificate."""

    rank: int
    node: str


@dataclass(frozen=True)
class DaemonExited:
    """A launcher could not start a daemon, or the daemon ended.

    Attributes:
        report: Which one, and why; its process id is 0 if the daemon did not come.
    """

    report: reports.Exited


@dataclass(frozen=True)
class DaemonJoined:
    """A daemon has its place in the tree, for the first time or again."""

    rank: int


@dataclass(frozen=True)
class DaemonLinkChanged:
    """The link to a daemon has no connection now, or continues.

    Attributes:
        rank: The machine.
        reason: Why it has none; empty if it continues.
    """

    rank: int
    reason: str


@dataclass(frozen=True)
class DaemonsLost:
    """Daemons have lost their places in the tree.

    Attributes:
        ranks: Their machines.
        reason: Why.
        disconnected: Whether they may still be running.
        for_good: Whether the restart policy has given them up.
        removed: Whether their machines were removed from the tree.
    """

    ranks: tuple[int, ...]
    reason: str
    disconnected: bool = False
    for_good: bool = False
    removed: bool = False


@dataclass(frozen=True)
class ComponentsReported:
    """A daemon has reported its components.

    Attributes:
        rank: The machine.
        closed: Why sessions cannot start processes there; empty if they can.
    """

    rank: int
    closed: str


@dataclass(frozen=True)
class Leaving:
    """A machine is being removed: no daemon joins as it any more."""

    rank: int


@dataclass(frozen=True)
class StartOver:
    """The machines of the launcher have come, as far as they were waited for."""


MachineInput = (
    DaemonExpected
    | JoinAsked
    | Certified
    | DaemonExited
    | DaemonJoined
    | DaemonLinkChanged
    | DaemonsLost
    | ComponentsReported
    | Leaving
    | StartOver
    | WakeUp
)

# --- orders --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Admit:
    """Admit the machine that asked.

    Attributes:
        rank: Its rank.
        incarnation: Which daemon of that rank it is.
        replaces: Whether it has the rank of a machine that may only be cut off: then it gets
            another name in certificates.
    """

    rank: int
    incarnation: int
    replaces: bool = False


@dataclass(frozen=True)
class AddMachine:
    """Give the machine that asked a new rank, and let it ask for that."""


@dataclass(frozen=True)
class Retry:
    """Have the machine that asked ask again later."""

    reason: str


@dataclass(frozen=True)
class Refuse:
    """Refuse the machine that asked."""

    reason: str
    hint: str


@dataclass(frozen=True)
class RemoveMachines:
    """Remove machines from the tree."""

    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class RestartDaemon:
    """Expect another daemon in place of one that was admitted and has not joined."""

    rank: int
    incarnation: int
    reason: str


@dataclass(frozen=True)
class PassOn:
    """Give the life cycle of the daemons the report of a launcher."""

    report: reports.Exited


@dataclass(frozen=True)
class FailStart:
    """Give up the start: machines did not come."""

    error: NodeLostError


class MachineNews(enum.Enum):
    """What sessions learn of a machine."""

    READY = "ready"
    GONE = "gone"
    GIVEN_UP = "given up"
    REMOVED = "removed"


@dataclass(frozen=True)
class NotifySessions:
    """Notify the sessions that use a machine."""

    rank: int
    news: MachineNews
    reason: str = ""


MachineOrder = (
    Admit
    | AddMachine
    | Retry
    | Refuse
    | RemoveMachines
    | RestartDaemon
    | PassOn
    | FailStart
    | NotifySessions
    | WakeAt
    | Log
)
