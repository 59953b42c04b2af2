"""What the front end knows of the processes of its tree, as a table of states.

::

    STARTING --joined--> READY --gone--> LOST --spawned--> STARTING
        |                ^   |            ^
        |           joined   cut off      |
        |                |   v            |
        |            DISCONNECTED --gone-->|
        +------------gone-----------------+

From each of them a place that is removed from the tree goes to LEFT, which is its end.

A place is disconnected while the way to it is lost and its process may live: it is expected to be
attached elsewhere in the tree.
"""

import enum
from collections import Counter
from collections.abc import Iterator, Sequence

from sapwood.comm.messaging import events as mev
from sapwood.core.states import StateTable
from sapwood.core.topology import Tree


class PlaceState(enum.Enum):
    """States of the process at a place."""

    STARTING = "starting"
    READY = "ready"
    DISCONNECTED = "disconnected"
    LOST = "lost"
    LEFT = "left"


class PlaceEvent(enum.Enum):
    """What happens to the process at a place."""

    JOINED = "joined"
    CUT_OFF = "cut off"
    GONE = "gone"
    SPAWNED = "spawned"
    REMOVED = "removed"


TRANSITIONS = StateTable(
    "rank",
    {
        (PlaceState.STARTING, PlaceEvent.JOINED): PlaceState.READY,
        (PlaceState.STARTING, PlaceEvent.GONE): PlaceState.LOST,
        (PlaceState.READY, PlaceEvent.GONE): PlaceState.LOST,
        (PlaceState.READY, PlaceEvent.CUT_OFF): PlaceState.DISCONNECTED,
        (PlaceState.DISCONNECTED, PlaceEvent.JOINED): PlaceState.READY,
        (PlaceState.DISCONNECTED, PlaceEvent.GONE): PlaceState.LOST,
        (PlaceState.LOST, PlaceEvent.SPAWNED): PlaceState.STARTING,
        (PlaceState.LOST, PlaceEvent.GONE): PlaceState.LOST,
        (PlaceState.STARTING, PlaceEvent.REMOVED): PlaceState.LEFT,
        (PlaceState.READY, PlaceEvent.REMOVED): PlaceState.LEFT,
        (PlaceState.DISCONNECTED, PlaceEvent.REMOVED): PlaceState.LEFT,
        (PlaceState.LOST, PlaceEvent.REMOVED): PlaceState.LEFT,
    },
)
"""(state, event) → next state; any other pair is a mistake of the program."""


class PlaceRecord:
    """The process at one place.

    Attributes:
        rank: The place.
        incarnation: Counts the processes that have been at this place.
        pid: Process id; 0 while there is none.
        state: Where it is in its life.
        drifts: Counts how often it was cut off.
        looks: Counts how often it was seen to be forked and not to have joined.
        failures: Counts the processes in a row that ended, or were given up, before they joined.
        is_new: Whether no process has joined yet, of a place that came to a running tree.
    """

    __slots__ = (
        "_tally",
        "drifts",
        "failures",
        "incarnation",
        "is_new",
        "looks",
        "pid",
        "rank",
        "state",
    )

    def __init__(self, rank: int, tally: Counter[PlaceState] | None = None) -> None:
        self._tally: Counter[PlaceState] = Counter() if tally is None else tally
        self.rank = rank
        self.incarnation = 1
        self.drifts = 0
        self.looks = 0
        self.failures = 0
        self.is_new = False
        self.pid = 0
        self.state = PlaceState.STARTING

    def advance(self, event: PlaceEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        following = TRANSITIONS.after(self.state, event, self.rank)
        if following is PlaceState.READY:
            self.failures = 0
        elif self.state is PlaceState.STARTING:
            self.failures += 1
        self.looks = 0
        self._tally[self.state] -= 1
        self._tally[following] += 1
        self.state = following

    def is_late(self, looks: int) -> bool:
        """Count a poll; return whether its process has not joined for so many polls."""
        if self.state is PlaceState.STARTING and self.pid:
            self.looks += 1
        return self.looks >= looks

    @property
    def is_ready(self) -> bool:
        """Whether its process is there and can be reached."""
        return self.state is PlaceState.READY

    def __repr__(self) -> str:
        return f"PlaceRecord({self.rank}, {self.state.value}, pid {self.pid})"


class Places:
    """All places of a tree below the front end."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._tally = Counter({PlaceState.STARTING: tree.size - 1})
        self._records = {rank: PlaceRecord(rank, self._tally) for rank in range(1, tree.size)}

    def __getitem__(self, rank: int) -> PlaceRecord:
        return self._records[rank]

    def __iter__(self) -> Iterator[PlaceRecord]:
        """Go through the places that the tree has."""
        left = PlaceState.LEFT
        return (record for record in list(self._records.values()) if record.state is not left)

    def change(self, tree: Tree) -> None:
        """Go by the tree of another epoch; places that are removed stay until they have LEFT."""
        for rank in range(self._tree.size, tree.size):
            record = PlaceRecord(rank, self._tally)
            record.is_new = True
            self._tally[record.state] += 1
            self._records[rank] = record
        self._tree = tree

    def all_ready(self) -> bool:
        """Whether all places have a ready process."""
        left = self._tally[PlaceState.LEFT]
        return self._tally[PlaceState.READY] == len(self._records) - left

    def agents(self) -> list[PlaceRecord]:
        """Return the agents, in order."""
        return [record for record in self if self._tree.is_agent(record.rank)]

    def gone(self, ranks: Sequence[int]) -> list[int]:
        """Return the places of a list whose process is missing or has not joined yet."""
        absent = (PlaceState.LOST, PlaceState.STARTING, PlaceState.LEFT)
        return [rank for rank in ranks if self._records[rank].state in absent]


def census_of(
    places: Places, ranks: Sequence[int], reason: str, *, back: bool
) -> mev.AnnounceMembership:
    """Return what all places are to hear of some that are gone or back."""
    if back:
        return mev.AnnounceMembership((), tuple(ranks))
    gone = tuple((rank, places[rank].incarnation) for rank in ranks)
    return mev.AnnounceMembership(gone, (), reason)
