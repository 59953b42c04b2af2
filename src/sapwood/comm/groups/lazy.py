"""The groups of a place, made when the first message or event of one comes.

Most places never have a group. What a place does with them (``groups.py``) is imported here, with
the first of them, and nowhere else: agents start faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from sapwood.comm import events as ev
from sapwood.comm.groups import events as gev
from sapwood.comm.link import Link
from sapwood.comm.messages import groups as gmsg
from sapwood.comm.payload import Payload
from sapwood.comm.peers import Effects, PeerTable
from sapwood.comm.streams.wave import NewGathering

if TYPE_CHECKING:
    from sapwood.comm.groups.groups import Groups

EVENTS = (gev.EnterGroup, gev.CallGroup, gev.BreakGroup, gev.MissResult, gev.ForgetGroups)
"""What the members of groups want."""

MESSAGES = (
    gmsg.GroupJoin,
    gmsg.GroupJoined,
    gmsg.GroupPart,
    gmsg.GroupResult,
    gmsg.GroupEnded,
    gmsg.GroupJoinCancelled,
    gmsg.GroupDisturbed,
    gmsg.GroupRestart,
)
"""What places tell each other of groups."""


class LazyGroups:
    """The groups of one place, if there ever was one.

    Args:
        near: The neighbours.
        gather: Makes what puts values together.
        is_agent: Whether this place is a leaf.

    Attributes:
        groups: The groups; None as long as there was none.
        on_event: Handlers of events by class.
        on_message: Handlers of messages by class.
    """

    def __init__(self, near: PeerTable, gather: NewGathering, *, is_agent: bool) -> None:
        self.groups: Groups | None = None
        self._near = near
        self._gather = gather
        self._is_agent = is_agent
        self.on_event: dict[type[ev.Event], Callable[[float, Any], Effects]]
        self.on_event = dict.fromkeys(EVENTS, self._take_event)
        self.on_event[gev.ForgetGroups] = self._forget
        self.on_message: dict[type[Any], Callable[[Link, Any, Payload | None], Effects]]
        self.on_message = dict.fromkeys(MESSAGES, self._take_message)

    def __len__(self) -> int:
        """Return how many groups there are, with those that form."""
        return len(self.groups.open) + len(self.groups.forming) if self.groups is not None else 0

    def begun(self) -> Groups:
        """Return the groups, from now on."""
        if self.groups is None:
            from sapwood.comm.groups.groups import Groups  # noqa: PLC0415 - as said above

            self.groups = Groups(self._near, self._gather, is_agent=self._is_agent)
        return self.groups

    def _take_event(self, now: float, event: ev.Event) -> Effects:
        return self.begun().on_event[type(event)](now, event)

    def _take_message(self, link: Link, message: Any, payload: Payload | None) -> Effects:
        return self.begun().on_message[type(message)](link, message, payload)

    def _forget(self, now: float, event: gev.ForgetGroups) -> Effects:
        return self.groups.forget(now, event) if self.groups is not None else []

    # --- the tree changes: nothing to do without groups ----------------------------------------

    def places_left(self, ranks: Collection[int]) -> Effects:
        """Places cannot be reached below this one any more."""
        return self.groups.places_left(ranks) if self.groups is not None else []

    def places_moved(self, ranks: Collection[int]) -> Effects:
        """Places are reached by another child."""
        return self.groups.places_moved(ranks) if self.groups is not None else []

    def places_came(self) -> Effects:
        """Places can be reached again."""
        return self.groups.places_came() if self.groups is not None else []

    def parent_changed(self) -> Effects:
        """This place has another parent, or none."""
        return self.groups.parent_changed() if self.groups is not None else []

    def gone(self, places: Iterable[tuple[int, int]], reason: str) -> Effects:
        """Processes, given with their incarnations, are gone."""
        return self.groups.gone(places, reason) if self.groups is not None else []
