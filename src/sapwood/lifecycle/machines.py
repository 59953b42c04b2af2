"""The machines of a control tree, one record for each, with one table of states.

::

    EXPECTED --admitted--> JOINING --joined--> READY <==cut off, joined==> CUT_OFF
        ^  |                  |                  |                            |
        |  +-----gone---------+-------gone-------+-----------gone-------------+
    expected                            v
        +----------------------------- LOST

From each of them a machine that will not come back goes to GIVEN_UP, and one that is removed from
the tree to REMOVED, which is final.

A machine is cut off while its daemon may still be running: its link has no connection, or no place
of the tree has its link. It is lost when its daemon is known to have ended, or counts as ended.
EXPECTED and JOINING are shown to users as *starting*, LOST and GIVEN_UP as *lost*.
"""

from __future__ import annotations

import enum

from sapwood.core.errors import invariant
from sapwood.core.states import StateTable


class MachineState(enum.Enum):
    """States of a machine."""

    EXPECTED = "expected"
    JOINING = "joining"
    READY = "ready"
    CUT_OFF = "cut off"
    LOST = "lost"
    GIVEN_UP = "given up"
    REMOVED = "removed"

    @property
    def shown(self) -> str:
        """The state in the words of users: starting, ready, disconnected, lost or removed."""
        return _SHOWN.get(self, self.value)


_SHOWN = {
    MachineState.EXPECTED: "starting",
    MachineState.JOINING: "starting",
    MachineState.CUT_OFF: "disconnected",
    MachineState.GIVEN_UP: "lost",
}


class MachineEvent(enum.Enum):
    """What happens to a machine."""

    EXPECTED = "expected"
    ADMITTED = "admitted"
    JOINED = "joined"
    CUT_OFF = "cut off"
    GONE = "gone"
    GIVEN_UP = "given up"
    REMOVED = "removed"


_S, _E = MachineState, MachineEvent

_OVER = frozenset({_S.GIVEN_UP, _S.REMOVED})

MACHINE_TRANSITIONS: StateTable[MachineState, MachineEvent] = StateTable(
    "machine",
    {
        (_S.EXPECTED, _E.ADMITTED): _S.JOINING,
        (_S.EXPECTED, _E.GONE): _S.LOST,
        (_S.JOINING, _E.JOINED): _S.READY,
        (_S.JOINING, _E.GONE): _S.LOST,
        (_S.READY, _E.CUT_OFF): _S.CUT_OFF,
        (_S.READY, _E.GONE): _S.LOST,
        (_S.CUT_OFF, _E.JOINED): _S.READY,
        (_S.CUT_OFF, _E.GONE): _S.LOST,
        (_S.LOST, _E.EXPECTED): _S.EXPECTED,
        **{(state, _E.GIVEN_UP): _S.GIVEN_UP for state in _S if state not in _OVER},
        **{(state, _E.REMOVED): _S.REMOVED for state in _S if state is not _S.REMOVED},
    },
)
"""(state, event) → next state. The first detector of a loss has the transition; for the second one
there is none, and its event is dropped."""


class MachineRecord:
    """One machine.

    Attributes:
        rank: Its rank in the control tree, and its number.
        launched: Whether a launcher starts its daemons; others join by a token or a certificate.
        name: What users call it; empty until a machine that joins says it.
        node: Its id in certificates; empty until it has joined.
        state: Where it is in its life.
        awaited: The incarnation of the daemon that may join as this machine; 0 for none.
        answered: The incarnation of the daemon that was admitted last.
        closed: Why sessions cannot start processes on it although it is ready; empty if they can.
        reason: Why it is cut off, lost, given up or removed.
        trouble: Why its launcher could not start it, or what ended it; empty once a daemon of it
            was admitted.
        deadline: When a daemon that was admitted has to have joined, seconds; None otherwise.
        is_new: Whether no daemon of it has joined the tree yet.
        leaving: Whether it is being removed.
    """

    __slots__ = (
        "answered",
        "awaited",
        "closed",
        "deadline",
        "is_new",
        "launched",
        "leaving",
        "name",
        "node",
        "rank",
        "reason",
        "state",
        "trouble",
    )

    def __init__(self, rank: int, name: str = "", *, launched: bool = False) -> None:
        self.rank = rank
        self.launched = launched
        self.name = name
        self.node = ""
        self.state = MachineState.EXPECTED
        self.awaited = self.answered = 0
        self.closed = self.reason = self.trouble = ""
        self.deadline: float | None = None
        self.is_new = True
        self.leaving = False

    def advance(self, event: MachineEvent) -> bool:
        """Go to the next state if the event means something in this one; return whether."""
        if (self.state, event) not in MACHINE_TRANSITIONS:
            return False
        self.state = MACHINE_TRANSITIONS.after(self.state, event, self.rank)
        self.deadline = None
        if self.state is not MachineState.EXPECTED:
            self.awaited = 0
        if self.state in _WITHOUT_DAEMON:
            self.closed = ""  # its next daemon reports its own components
        return True

    @property
    def is_ready(self) -> bool:
        """Whether processes of sessions can start on it."""
        return self.state is MachineState.READY and not self.closed

    @property
    def is_present(self) -> bool:
        """Whether it is a machine of the tree, and stays one."""
        return self.state is not MachineState.REMOVED and not self.leaving

    @property
    def may_return(self) -> bool:
        """Whether it cannot be reached now, and may be again under the same rank."""
        return self.state in {MachineState.CUT_OFF, MachineState.LOST}

    @property
    def given_up(self) -> str:
        """Why it will not come back; empty if it may."""
        return self.reason if self.state in _OVER else ""

    def check(self) -> None:
        """Check what always holds between two events.

        Raises:
            InternalError: It does not.
        """
        which = f"machine {self.rank} is {self.state.value}"
        waits = self.state is MachineState.EXPECTED
        invariant(waits or not self.awaited, f"{which}: no daemon may join as it")
        invariant(waits or self.answered or not self.node, f"{which}: it was admitted")
        joined = self.state in {MachineState.READY, MachineState.CUT_OFF}
        invariant(not joined or not self.is_new, f"{which}: a daemon of it has joined")
        invariant(joined or not self.closed, f"{which}: it has no components")
        joining = self.state is MachineState.JOINING
        bounded = self.deadline is not None
        invariant(bounded == (joining and not self.launched), f"{which}: joining has a deadline")
        invariant(self.state not in _OVER or self.reason, f"{which}: there is a reason")

    def __repr__(self) -> str:
        return f"MachineRecord({self.rank}, {self.state.value})"


_WITHOUT_DAEMON = frozenset({_S.EXPECTED, _S.JOINING, _S.LOST, _S.GIVEN_UP, _S.REMOVED})
