"""Tables of states: what follows which state on which event, and an error for all else.

The tables of links, channels, places and streams look alike, and share this class and no more: a
link may be suspect while the channel over it is open, and the place at its end ready. No two of
them have the same states, events or owner.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Generic, TypeVar

from sapwood.core.errors import ProtocolError

S = TypeVar("S", bound=enum.Enum)
E = TypeVar("E", bound=enum.Enum)


class StateTable(dict[tuple[S, E], S], Generic[S, E]):
    """(state, event) → next state; any other pair is a mistake.

    Args:
        subject: What has these states, for errors.
        transitions: The pairs that may happen, and what follows.
        hints: What to do about an event that cannot happen, by event.

    Example:
        >>> Light = enum.Enum("Light", {"RED": "red", "GREEN": "green"})
        >>> Push = enum.Enum("Push", {"WAIT": "wait"})
        >>> table = StateTable("a light", {(Light.RED, Push.WAIT): Light.GREEN})
        >>> table.after(Light.RED, Push.WAIT).value
        'green'
        >>> table.after(Light.GREEN, Push.WAIT)
        Traceback (most recent call last):
        sapwood.core.errors.ProtocolError: a light got wait while green
    """

    def __init__(
        self,
        subject: str,
        transitions: Mapping[tuple[S, E], S],
        hints: Mapping[E, str] | None = None,
    ) -> None:
        super().__init__(transitions)
        self._subject = subject
        self._hints = hints or {}

    def after(self, state: S, event: E, which: object = "") -> S:
        """Return the next state.

        Args:
            state: The state it is in.
            event: What happens.
            which: Says which one of its kind it is, for the error.

        Raises:
            ProtocolError: The event cannot happen in this state.
        """
        following = self.get((state, event))
        if following is None:
            subject = f"{self._subject} {which}".rstrip()
            raise ProtocolError(
                f"{subject} got {event.value} while {state.value}",
                hint=self._hints.get(event, ""),
            )
        return following
