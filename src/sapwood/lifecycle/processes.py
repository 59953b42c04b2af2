"""The processes of a tree, one record for each rank, with one table of states.

::

    STARTING --joined--> READY --cut off--> DISCONNECTED --joined--> READY
        |                  |                     |
        +------------------+-------gone----------+
                           v
       +-gone-----------> ENDING --exited--> PAUSED --spawned--> STARTING
       |                   |  ^                |
       |                   |  +------gone------+
       |                   v
       +-------------- GIVEN_UP

From each of them a process whose rank is removed from the tree goes to LEFT, which is final.

A process is disconnected while the connection to it is lost and it may still be running: it is
expected to attach elsewhere in the tree. ENDING, PAUSED and GIVEN_UP are shown to users as *lost*.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Sequence

from sapwood.comm.messaging import events as mev
from sapwood.core.errors import invariant
from sapwood.core.states import StateTable
from sapwood.core.topology import Tree
from sapwood.lifecycle.starters import StarterKey


class ProcessState(enum.Enum):
    """States of the process of a rank."""

    STARTING = "starting"
    READY = "ready"
    DISCONNECTED = "disconnected"
    ENDING = "ending"
    PAUSED = "paused"
    GIVEN_UP = "given up"
    LEFT = "left"

    @property
    def is_lost(self) -> bool:
        """Whether its process has ended or is being stopped."""
        return self in _LOST

    @property
    def shown(self) -> str:
        """The state in the words of users: starting, ready, disconnected, lost or left."""
        return "lost" if self.is_lost else self.value


_LOST = frozenset({ProcessState.ENDING, ProcessState.PAUSED, ProcessState.GIVEN_UP})


class LifeEvent(enum.Enum):
    """What happens to the process of a rank."""

    JOINED = "joined"
    CUT_OFF = "cut off"
    GONE = "gone"
    EXITED = "exited"
    GIVEN_UP = "given up"
    SPAWNED = "spawned"
    REMOVED = "removed"


_S, _E = ProcessState, LifeEvent

TRANSITIONS: StateTable[ProcessState, LifeEvent] = StateTable(
    "rank",
    {
        (_S.STARTING, _E.JOINED): _S.READY,
        (_S.STARTING, _E.GONE): _S.ENDING,
        (_S.READY, _E.CUT_OFF): _S.DISCONNECTED,
        (_S.READY, _E.GONE): _S.ENDING,
        (_S.DISCONNECTED, _E.JOINED): _S.READY,
        (_S.DISCONNECTED, _E.GONE): _S.ENDING,
        (_S.ENDING, _E.GONE): _S.ENDING,
        (_S.ENDING, _E.EXITED): _S.PAUSED,
        (_S.ENDING, _E.GIVEN_UP): _S.GIVEN_UP,
        (_S.PAUSED, _E.SPAWNED): _S.STARTING,
        (_S.PAUSED, _E.GONE): _S.ENDING,
        (_S.GIVEN_UP, _E.GONE): _S.ENDING,
        **{(state, _E.REMOVED): _S.LEFT for state in _S if state is not _S.LEFT},
    },
)
"""(state, event) → next state; any other pair is an internal error."""


class ProcessRecord:
    """The process of one rank.

    Attributes:
        rank: The rank.
        starter: What starts its process.
        incarnation: Counts the processes of this rank.
        pid: Process id; 0 while there is none.
        state: Where it is in its life.
        deadline: When something is due: the restart of a paused one, or the end of the time in
            which a disconnected one can attach again, seconds; None if nothing is.
        pause: Seconds between the exit of an ending process and its restart; None if it is not
            restarted.
        reason: Why a lost process was lost.
        polls: Counts the polls at which it was forked and had not joined.
        failures: Counts the processes in a row that ended, or were given up, before they joined.
        is_new: Whether no process has joined yet, of a rank that was added to a running tree.
    """

    __slots__ = (
        "_tally",
        "deadline",
        "failures",
        "incarnation",
        "is_new",
        "pause",
        "pid",
        "polls",
        "rank",
        "reason",
        "starter",
        "state",
    )

    def __init__(
        self,
        rank: int,
        starter: StarterKey = (),
        tally: Counter[ProcessState] | None = None,
    ) -> None:
        self._tally: Counter[ProcessState] = Counter() if tally is None else tally
        self.rank = rank
        self.starter = starter
        self.incarnation = 1
        self.deadline: float | None = None
        self.pause: float | None = None
        self.reason = ""
        self.polls = 0
        self.failures = 0
        self.is_new = False
        self.pid = 0
        self.state = ProcessState.STARTING

    def advance(self, event: LifeEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        following = TRANSITIONS.after(self.state, event, self.rank)
        if following is ProcessState.READY:
            self.failures = 0
        elif event is LifeEvent.GONE and self.state in _NEVER_JOINED:
            self.failures += 1
        self.polls = 0
        self.deadline = None
        self._tally[self.state] -= 1
        self._tally[following] += 1
        self.state = following

    def is_late(self, polls: int) -> bool:
        """Count a poll; return whether its process has not joined for so many polls."""
        if self.state is ProcessState.STARTING and self.pid:
            self.polls += 1
        return self.polls >= polls

    @property
    def is_ready(self) -> bool:
        """Whether its process is running and can be reached."""
        return self.state is ProcessState.READY

    @property
    def may_come_back(self) -> bool:
        """Whether its process cannot be reached now, and it or another one may be again."""
        return self.state is ProcessState.DISCONNECTED or self.state.is_lost

    def check(self) -> None:
        """Check what always holds between two events.

        Raises:
            InternalError: It does not.
        """
        which = f"rank {self.rank} is {self.state.value}"
        if self.state is ProcessState.ENDING:
            invariant(self.pid, f"{which}: its process has an id")
        if self.state in {ProcessState.PAUSED, ProcessState.GIVEN_UP}:
            invariant(not self.pid, f"{which}: it has no process")

    def __repr__(self) -> str:
        return f"ProcessRecord({self.rank}, {self.state.value}, pid {self.pid})"


_NEVER_JOINED = frozenset({ProcessState.STARTING, ProcessState.PAUSED})


class ProcessTable:
    """The records of all ranks of a tree below the root."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._tally: Counter[ProcessState] = Counter()
        self._records: dict[int, ProcessRecord] = {}

    def __getitem__(self, rank: int) -> ProcessRecord:
        return self._records[rank]

    def __contains__(self, rank: int) -> bool:
        return rank in self._records

    def __iter__(self) -> Iterator[ProcessRecord]:
        """Go through the ranks that have not left."""
        left = ProcessState.LEFT
        return (record for record in list(self._records.values()) if record.state is not left)

    def add(self, rank: int, starter: StarterKey, *, new: bool) -> ProcessRecord:
        """Add the record of a rank; ``new`` if the tree was running without it."""
        record = self._records[rank] = ProcessRecord(rank, starter, self._tally)
        record.is_new = new
        self._tally[record.state] += 1
        return record

    def change(self, tree: Tree) -> None:
        """Use the tree of another epoch; records of removed ranks stay until they have LEFT."""
        self._tree = tree

    def all_ready(self) -> bool:
        """Whether all ranks have a ready process."""
        left = self._tally[ProcessState.LEFT]
        return self._tally[ProcessState.READY] == len(self._records) - left

    def agents(self) -> list[ProcessRecord]:
        """Return the records of agents, in order."""
        return [record for record in self if self._tree.is_agent(record.rank)]

    def gone(self, ranks: Sequence[int]) -> list[int]:
        """Return the ranks of a list whose process is missing or has not joined yet."""
        present = (ProcessState.READY, ProcessState.DISCONNECTED)
        return [rank for rank in ranks if self._records[rank].state not in present]

    def check(self) -> None:
        """Check all records and their tally.

        Raises:
            InternalError: Something that always holds does not.
        """
        for record in self._records.values():
            record.check()
        counted = Counter(record.state for record in self._records.values())
        invariant(counted == +self._tally, "the tally counts the states of all records")


def census_of(
    processes: ProcessTable, ranks: Sequence[int], reason: str, *, back: bool
) -> mev.AnnounceMembership:
    """Return what all processes receive about ranks that are lost or back."""
    if back:
        return mev.AnnounceMembership((), tuple(ranks))
    gone = tuple((rank, processes[rank].incarnation) for rank in ranks)
    return mev.AnnounceMembership(gone, (), reason)
