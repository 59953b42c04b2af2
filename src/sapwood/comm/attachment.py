r"""How a place finds a parent, and another one when that is gone. No I/O.

As a table (:data:`TRANSITIONS`)::

    SEEKING --welcomed--> ATTACHED --silent, called--> ASKING --welcomed--> ATTACHED
       ^  \--unreachable--^ |   ^--------unreachable------|
       +--------lost--------+------------ lost ------------+

A place looks among its ancestors in the planned tree, nearest first. While the parent is only
silent, the process keeps that link and asks the ancestors above whether one of them accepts it. It
follows their answer. A process that is stale, or that no ancestor accepts for long, ends.
"""

from __future__ import annotations

import enum

from sapwood.comm import events as ev
from sapwood.comm.link import LinkTiming
from sapwood.core.states import StateTable

RETRY_PAUSE = 0.005
"""Seconds before a parent that cannot be reached is tried again."""

Effects = list[ev.Effect]


class AttachmentState(enum.Enum):
    """States of a place towards its parent."""

    SEEKING = "seeking"
    ATTACHED = "attached"
    ASKING = "asking"
    ENDED = "ended"


class AttachmentEvent(enum.Enum):
    """What happens to a place and its parent."""

    WELCOMED = "welcomed"
    UNREACHABLE = "unreachable"
    LOST = "lost"
    SILENT = "silent"
    CALLED = "called"
    REFUSED = "refused"


_S, _E = AttachmentState, AttachmentEvent

TRANSITIONS = StateTable(
    "an attachment",
    {
        (_S.SEEKING, _E.WELCOMED): _S.ATTACHED,
        (_S.SEEKING, _E.UNREACHABLE): _S.SEEKING,
        (_S.SEEKING, _E.REFUSED): _S.ENDED,
        (_S.ATTACHED, _E.LOST): _S.SEEKING,
        (_S.ATTACHED, _E.SILENT): _S.ASKING,
        (_S.ATTACHED, _E.CALLED): _S.ASKING,
        (_S.ATTACHED, _E.REFUSED): _S.ENDED,
        (_S.ASKING, _E.WELCOMED): _S.ATTACHED,
        (_S.ASKING, _E.UNREACHABLE): _S.ATTACHED,
        (_S.ASKING, _E.LOST): _S.SEEKING,
        (_S.ASKING, _E.REFUSED): _S.ENDED,
    },
)
"""(state, event) → next state; any other pair is a mistake of the program."""


class Attachment:
    """The way of one place to its parent.

    Args:
        ancestors: Places above, nearest first, as the tree was planned.
        timing: When to lose patience.

    Attributes:
        number: How often this process has asked to be attached.
        epoch: Of the tree that this place knew when it asked last.
        sought: The place that is asked; -1 for none.
        link: The connection on which it is asked; 0 for none.
    """

    __slots__ = (
        "_ancestors",
        "_ever",
        "_since",
        "_timing",
        "epoch",
        "link",
        "number",
        "sought",
        "state",
    )

    def __init__(self, ancestors: tuple[int, ...], timing: LinkTiming) -> None:
        self._ancestors = ancestors
        self._timing = timing
        self._ever = not ancestors
        self._since = 0.0
        self.number = 0
        self.epoch = 0
        self.sought = -1
        self.link = 0
        self.state = AttachmentState.SEEKING if ancestors else AttachmentState.ATTACHED

    def advance(self, event: AttachmentEvent) -> None:
        """Go to the next state.

        Raises:
            InternalError: The event cannot happen in this state.
        """
        self.state = TRANSITIONS.after(self.state, event)

    def begin(self, now: float, _event: ev.Begin) -> Effects:
        """Look for the parent at home."""
        self._since = now
        return self._seek(self._ancestors[0])

    def asked(self, link: int, epoch: int) -> None:
        """Record the connection to the wanted process, and the epoch that was sent to it."""
        self.link = link
        self.number += 1
        self.epoch = epoch

    def welcomed(self) -> None:
        """The place that was sought is the parent now."""
        self.advance(AttachmentEvent.WELCOMED)
        self._ever = True
        self.sought, self.link = -1, 0

    def refused(self, reason: str) -> Effects:
        """Record that no ancestor accepts this process."""
        self.advance(AttachmentEvent.REFUSED)
        self.sought, self.link = -1, 0
        return [ev.ParentLost(reason)]

    def lost(self, now: float) -> Effects:
        """The link to the parent is gone: look for another one, nearest first."""
        if self.state is AttachmentState.ENDED:
            return []
        asking = self.state is AttachmentState.ASKING
        self.advance(AttachmentEvent.LOST)
        self._since = now
        return [] if asking else self._seek(self._ancestors[0])

    def silent(self, parent: int) -> Effects:
        """The parent says nothing: ask the place above it, if there is one."""
        above = self._above(parent)
        if self.state is not AttachmentState.ATTACHED or above is None:
            return []
        self.advance(AttachmentEvent.SILENT)
        return self._seek(above)

    def called(self, to: int, parent: int) -> Effects:
        """The parent says that a place nearer home is there again."""
        if self.state is not AttachmentState.ATTACHED or not self._is_nearer(to, parent):
            return []
        self.advance(AttachmentEvent.CALLED)
        return self._seek(to)

    def unreachable(self, now: float, rank: int, parent: int, *, absent: bool = False) -> Effects:
        """The place that was sought cannot be reached, or does not answer.

        If it is absent, no process there could start to answer.
        """
        if self.sought < 0 or rank != self.sought:
            return []
        self.link = 0
        above = self._above(rank)
        if self.state is AttachmentState.ASKING:
            if self._is_nearer(rank, parent) or above is None:
                self.advance(AttachmentEvent.UNREACHABLE)
                self.sought = -1
                return []
            return self._seek(above)
        if self.state is not AttachmentState.SEEKING:
            return []
        self.advance(AttachmentEvent.UNREACHABLE)
        waited = now - self._since
        if not self._ever and not absent and waited < self._timing.failure_after:
            return self._seek(rank, RETRY_PAUSE)  # the processes of a tree start together
        if above is not None:
            return self._seek(above)
        if waited > self._timing.give_up_after:
            return self.refused(f"no place of the tree could be reached for {waited:.1f} s")
        return self._seek(self._ancestors[0], RETRY_PAUSE)

    def _seek(self, rank: int, pause: float = 0.0) -> Effects:
        self.sought, self.link = rank, 0
        return [ev.Connect(rank, pause)]

    def _above(self, rank: int) -> int | None:
        position = self._ancestors.index(rank) + 1
        return self._ancestors[position] if position < len(self._ancestors) else None

    def _is_nearer(self, rank: int, parent: int) -> bool:
        ancestors = self._ancestors
        return rank in ancestors and ancestors.index(rank) < ancestors.index(parent)
