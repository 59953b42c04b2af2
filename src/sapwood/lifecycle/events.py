"""What happens to the processes of a tree, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from sapwood.comm import events as ev
from sapwood.contexts import orders as reports
from sapwood.core.errors import SapwoodError
from sapwood.core.topology import Tree
from sapwood.lifecycle.starters import StarterKey

# --- events --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartAll:
    """All processes of the tree are to be started."""


@dataclass(frozen=True)
class MachineGone:
    """A process cannot be started because its machine is gone.

    Attributes:
        report: Which process, and why.
        ready: Numbers of the machines on which processes can start now.
    """

    report: reports.SpawnFailed
    ready: tuple[int, ...]


@dataclass(frozen=True)
class StarterEnded:
    """A starter ended, and with it all processes that it started."""

    key: StarterKey
    reason: str


@dataclass(frozen=True)
class StarterFailed:
    """A starter could not be started."""

    key: StarterKey
    error: SapwoodError


@dataclass(frozen=True)
class Expand:
    """Agents are added to the tree.

    Attributes:
        homes: The parent of each new rank.
        hosts: The number of the machine of each new rank; 0 is the root's, a negative number
            stands for a process that joined by an invitation.
    """

    homes: Mapping[int, int]
    hosts: Mapping[int, int]


@dataclass(frozen=True)
class Drain:
    """Ranks leave the tree; their processes finish what they were asked for."""

    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Remove:
    """The processes of ranks end for good; ranks that the tree still has leave it."""

    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Restart:
    """A process is to be replaced if it is this one and has not joined the tree yet."""

    rank: int
    incarnation: int
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """The processes will not all become ready: callers that wait for that get the error."""

    error: BaseException


@dataclass(frozen=True)
class Poll:
    """One polling interval has passed."""


@dataclass(frozen=True)
class WakeUp:
    """The time of a :class:`WakeAt` has come."""

    at: float


Report = reports.Spawned | reports.Exited | reports.SpawnFailed
"""What starters report of single processes."""

Event = (
    StartAll
    | MachineGone
    | StarterEnded
    | StarterFailed
    | Expand
    | Drain
    | Remove
    | Restart
    | GiveUp
    | Poll
    | WakeUp
    | ev.PlaceJoined
    | ev.PlacesLost
    | Report
)

# --- orders --------------------------------------------------------------------------------------


class ProcessChange(msgspec.Struct, frozen=True):
    """What happened to the processes of ranks.

    Attributes:
        ranks: The ranks.
        back: Whether their processes can be reached again; otherwise they are lost.
        disconnected: Whether their processes are the same as before.
        reason: Why they are lost.
        for_good: Whether they will not be back: the restart policy has given them up, or they
            were removed.
        added: Whether they joined for the first time, in a tree that was running.
        removed: Whether the tree does not have them any more.
    """

    ranks: tuple[int, ...]
    back: bool
    disconnected: bool
    reason: str = ""
    for_good: bool = False
    added: bool = False
    removed: bool = False


@dataclass(frozen=True)
class Start:
    """Have a starter start processes; start the starter first if it is not running.

    Attributes:
        key: The starter.
        processes: Rank and incarnation of each.
    """

    key: StarterKey
    processes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class EndProcess:
    """Have a starter kill a process."""

    key: StarterKey
    pid: int


@dataclass(frozen=True)
class ReplaceStarter:
    """Start another starter in place of one that ended."""

    key: StarterKey


@dataclass(frozen=True)
class CloseStarter:
    """End a starter that has no ranks left."""

    key: StarterKey


@dataclass(frozen=True)
class NewTree:
    """Use the tree of the next epoch: the root and its neighbours receive it."""

    tree: Tree
    hosts: tuple[int, ...]


@dataclass(frozen=True)
class MoveRanks:
    """Use another machine for ranks whose machine is gone; their start is ordered separately."""

    ranks: tuple[int, ...]
    host: int
    hosts: tuple[int, ...]


@dataclass(frozen=True)
class Notify:
    """Notify all subscribers of a change."""

    change: ProcessChange


@dataclass(frozen=True)
class WakeAt:
    """Send :class:`WakeUp` at this time."""

    at: float


@dataclass(frozen=True)
class EveryoneReady:
    """All processes have joined for the first time."""


@dataclass(frozen=True)
class ReportFailure:
    """Some ranks stay without a process: the session reports this error."""

    error: BaseException


@dataclass(frozen=True)
class Log:
    """Write a message to the log."""

    level: str
    text: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Order = (
    Start
    | EndProcess
    | ReplaceStarter
    | CloseStarter
    | NewTree
    | MoveRanks
    | Notify
    | WakeAt
    | EveryoneReady
    | ReportFailure
    | Log
)
