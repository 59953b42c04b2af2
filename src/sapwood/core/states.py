"""Tables of states: what follows which state on which event, and an error for all else.

The tables of links, channels, places and streams look alike, and share this class and no more: a
link may be suspect while the channel over it is open, and the place at its end ready. No two of
them have the same states, events or owner.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from sapwood.core.errors import REPORT_HINT, InternalError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class StateTable(dict[tuple[S, E], S], Generic[S, E]):
    """(state, event) → next state; any other pair is a mistake of the program.

    Callers that act on the request of a peer or a user check first, with ``(state, event) in
    table``, and refuse the request.

    Args:
        subject: Name of the object with these states, for errors.
        transitions: The pairs that may happen, and what follows.

    Example:
        >>> Light = enum.Enum("Light", {"RED": "red", "GREEN": "green"})
        >>> Push = enum.Enum("Push", {"WAIT": "wait"})
        >>> table = StateTable("a light", {(Light.RED, Push.WAIT): Light.GREEN})
        >>> table.after(Light.RED, Push.WAIT).value
        'green'
        >>> table.after(Light.GREEN, Push.WAIT)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        sapwood.core.errors.InternalError: a light got wait while green. Hint: this is a mistake ...
    """

    def __init__(self, subject: str, transitions: Mapping[tuple[S, E], S]) -> None:
        super().__init__(transitions)
        self._subject = subject

    def after(self, state: S, event: E, which: object = "") -> S:
        """Return the next state.

        Args:
            state: The state it is in.
            event: What happens.
            which: Says which one of its kind it is, for the error.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        following = self.get((state, event))
        if following is None:
            subject = f"{self._subject} {which}".rstrip()
            what = f"{subject} got {event.value} while {state.value}"
            raise InternalError(what, hint=REPORT_HINT)
        return following
