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

from sapwood.core.errors import ProtocolError


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


TRANSITIONS: dict[tuple[StreamState, StreamEvent], StreamState] = {
    (StreamState.OPEN, StreamEvent.QUIESCE): StreamState.DRAINING,
    (StreamState.DRAINING, StreamEvent.DRAINED): StreamState.QUIET,
    (StreamState.QUIET, StreamEvent.RESUME): StreamState.OPEN,
    (StreamState.OPEN, StreamEvent.CLOSE): StreamState.CLOSED,
    (StreamState.DRAINING, StreamEvent.CLOSE): StreamState.CLOSED,
    (StreamState.QUIET, StreamEvent.CLOSE): StreamState.CLOSED,
}
"""(state, event) → next state; any other pair is an error."""


def following(state: StreamState, event: StreamEvent) -> StreamState:
    """Return the next state.

    Raises:
        ProtocolError: The event cannot happen in this state.

    Example:
        >>> following(StreamState.OPEN, StreamEvent.QUIESCE)
        <StreamState.DRAINING: 'draining'>
    """
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise ProtocolError(
            f"a stream that is {state.value} cannot {event.value}",
            hint="resume a stream before quiescing it again"
            if event is StreamEvent.QUIESCE
            else "",
        )
    return found
