"""The life of a stream at one place, as a table of states.

::

    OPEN --quiesce--> DRAINING --drained--> QUIET --resume--> OPEN
      |                   |                   |
      +------ close ------+------ close ------+--> CLOSED

A stream that drains or is quiet begins no wave and sends nothing; what was sent before is on
its way only while it drains. ``flush`` changes no state.
"""

from __future__ import annotations

import enum

from sapwood.core.states import StateTable


class StreamState(enum.Enum):
    """States of a stream."""

    OPEN = "open"
    DRAINING = "draining"
    QUIET = "quiet"
    CLOSED = "closed"


class StreamEvent(enum.Enum):
    """What happens to a stream."""

    QUIESCE = "quiesce"
    DRAINED = "drained"
    RESUME = "resume"
    CLOSE = "close"


TRANSITIONS = StateTable(
    "a stream",
    {
        (StreamState.OPEN, StreamEvent.QUIESCE): StreamState.DRAINING,
        (StreamState.DRAINING, StreamEvent.DRAINED): StreamState.QUIET,
        (StreamState.QUIET, StreamEvent.RESUME): StreamState.OPEN,
        (StreamState.OPEN, StreamEvent.CLOSE): StreamState.CLOSED,
        (StreamState.DRAINING, StreamEvent.CLOSE): StreamState.CLOSED,
        (StreamState.QUIET, StreamEvent.CLOSE): StreamState.CLOSED,
    },
    hints={
        StreamEvent.QUIESCE: "resume a stream before quiescing it again",
        StreamEvent.RESUME: "quiesce a stream before resuming it",
    },
)
"""(state, event) → next state; any other pair is an error."""
