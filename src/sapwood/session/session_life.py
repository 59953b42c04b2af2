"""The life of a session with a separate session server, as a table of states.

::

    REQUESTED
        |
      begun    waits
        v     ------>
    STARTING           DELAYED
        |     <------
        |    allocated
        |
     started
        v         attached
    DETACHED <--------------> READY
        |           left        |
        +--ends--> DRAINING <---+
                      |
                     gone
                      v
                    ENDED

In DELAYED it waits for machines that were asked for. From there, DETACHED and READY it goes back to
STARTING when its process is LOST, and gets another one. From each state in which it has begun, or
waits to, it FAILED when its process ended unasked, and there is no other one. From DELAYED, too,
it ENDS when it is deleted.
"""

import enum

from sapwood.core.states import StateTable


class SessionState(enum.Enum):
    """States of a session."""

    REQUESTED = "requested"
    STARTING = "starting"
    DELAYED = "delayed"
    READY = "ready"
    DETACHED = "detached"
    DRAINING = "draining"
    ENDED = "ended"
    FAILED = "failed"

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        return self in {SessionState.ENDED, SessionState.FAILED}


class SessionStep(enum.Enum):
    """What happens to a session."""

    BEGUN = "begun"
    WAITS = "waits"
    ALLOCATED = "allocated"
    STARTED = "started"
    ATTACHED = "attached"
    LEFT = "left"
    LOST = "lost"
    ENDS = "ends"
    GONE = "gone"
    BROKEN = "broken"


_S, _E = SessionState, SessionStep

TRANSITIONS = StateTable(
    "session",
    {
        (_S.REQUESTED, _E.BEGUN): _S.STARTING,
        (_S.STARTING, _E.STARTED): _S.DETACHED,
        (_S.STARTING, _E.WAITS): _S.DELAYED,
        (_S.DELAYED, _E.ALLOCATED): _S.STARTING,
        (_S.DETACHED, _E.ATTACHED): _S.READY,
        (_S.READY, _E.LEFT): _S.DETACHED,
        (_S.READY, _E.LOST): _S.STARTING,
        (_S.DETACHED, _E.LOST): _S.STARTING,
        (_S.STARTING, _E.LOST): _S.STARTING,
        (_S.DELAYED, _E.LOST): _S.STARTING,
        (_S.READY, _E.ENDS): _S.DRAINING,
        (_S.DETACHED, _E.ENDS): _S.DRAINING,
        (_S.STARTING, _E.ENDS): _S.DRAINING,
        (_S.DELAYED, _E.ENDS): _S.DRAINING,
        (_S.DRAINING, _E.ENDS): _S.DRAINING,
        (_S.DRAINING, _E.GONE): _S.ENDED,
        (_S.REQUESTED, _E.BROKEN): _S.FAILED,
        (_S.STARTING, _E.BROKEN): _S.FAILED,
        (_S.DELAYED, _E.BROKEN): _S.FAILED,
        (_S.READY, _E.BROKEN): _S.FAILED,
        (_S.DETACHED, _E.BROKEN): _S.FAILED,
        (_S.DRAINING, _E.BROKEN): _S.ENDED,
    },
)
"""(state, step) → next state; any other pair is a mistake of the program."""

STEPS_OF_ROOTS = frozenset({_E.WAITS, _E.ALLOCATED, _E.STARTED, _E.ATTACHED, _E.LEFT, _E.ENDS})
"""Steps of which the root of a session tells the head; the head sees the others itself."""


def may_report(known: SessionState, told: SessionState) -> bool:
    """Whether the root of a session may be in a state, as the head knows it in another.

    A root tells its last state only, so several steps may lie between the two.

    Example:
        >>> may_report(SessionState.STARTING, SessionState.READY)
        True
        >>> may_report(SessionState.READY, SessionState.ENDED)  # the head sees that itself
        False
    """
    reached, new = {known}, {known}
    while new:
        new = {
            after
            for (state, step), after in TRANSITIONS.items()
            if state in new and step in STEPS_OF_ROOTS
        } - reached
        reached |= new
    return told in reached
