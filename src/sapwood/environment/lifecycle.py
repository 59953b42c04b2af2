"""The life of a component: a table of states and what may follow what.

A state is kept by :class:`Lifecycle` and changes only along :data:`TRANSITIONS`.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from types import MappingProxyType

from sapwood.core.clock import Clock
from sapwood.core.errors import SapwoodError
from sapwood.core.shown import shown

MAX_STORY = 64
"""Transitions that a life remembers; the oldest are forgotten first."""


class State(enum.Enum):
    """Where a component is in its life."""

    CREATED = "created"
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"

    @property
    def works(self) -> bool:
        """Whether a component in this state does what it is for, fully or not."""
        return self in {State.READY, State.DEGRADED}


TRANSITIONS: Mapping[State, Mapping[State, str]] = MappingProxyType(
    {
        State.CREATED: {
            State.STARTING: "start",
            State.STOPPED: "stop before start",
        },
        State.STARTING: {
            State.READY: "started",
            State.DEGRADED: "started, but not fully",
            State.FAILED: "could not start",
            State.STOPPING: "stop",
        },
        State.READY: {
            State.DEGRADED: "works, but not fully",
            State.STOPPING: "stop",
            State.FAILED: "died",
        },
        State.DEGRADED: {
            State.READY: "recovered",
            State.STOPPING: "stop",
            State.FAILED: "died",
        },
        State.STOPPING: {
            State.STOPPED: "stopped",
            State.FAILED: "could not stop",
        },
        State.FAILED: {
            State.STARTING: "restart",
            State.STOPPED: "given up",
        },
        State.STOPPED: {
            State.STARTING: "start again",
        },
    }
)
"""The possible transitions of each state, and their meaning. This table is complete."""


@dataclasses.dataclass(frozen=True, slots=True)
class Transition:
    """One transition of a life.

    Attributes:
        at: When, seconds of the clock.
        before: The state that it left.
        after: The state that it reached.
        reason: Why, for people.
    """

    at: float
    before: State
    after: State
    reason: str


class Lifecycle:
    """The state of one component, which changes only along the table.

    Args:
        name: The component's name, for errors.
        clock: The time, for the story.
    """

    __slots__ = ("_clock", "name", "state", "steps")

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        self.state = State.CREATED
        self.steps: tuple[Transition, ...] = ()
        self._clock = clock

    def move(self, after: State, reason: str = "") -> Transition:
        """Go to another state.

        Args:
            after: The state to reach.
            reason: Why; by default what the table says of this step.

        Returns:
            The step that was taken.

        Raises:
            SapwoodError: The table does not allow it; the details tell the story so far.
        """
        allowed = TRANSITIONS[self.state]
        if after not in allowed:
            following = ", ".join(state.value for state in allowed) or "nothing"
            raise SapwoodError(
                f"component {shown(self.name)} is {self.state.value} and cannot become "
                f"{after.value}",
                where=self.name,
                hint=f"after {self.state.value} comes {following}",
                details={"its story": self.story()},
            )
        step = Transition(self._clock.now(), self.state, after, reason or allowed[after])
        self.steps = (*self.steps[1 - MAX_STORY :], step)
        self.state = after
        return step

    def story(self) -> str:
        """Return the steps so far, one a line, with the time since the first."""
        if not self.steps:
            return "created, nothing since"
        begin = self.steps[0].at
        return "\n".join(
            f"{step.at - begin:9.3f} s  {step.before.value} -> {step.after.value}: {step.reason}"
            for step in self.steps
        )


def table_markdown() -> str:
    """Return the table for the documentation."""
    lines = ["| from | to | when |", "|---|---|---|"]
    for before, steps in TRANSITIONS.items():
        lines += [f"| {before.value} | {after.value} | {why} |" for after, why in steps.items()]
    return "\n".join(lines) + "\n"


def table_dot() -> str:
    """Return the table as a Graphviz graph."""
    lines = ["digraph lifecycle {", "  rankdir=LR;", "  node [shape=box, style=rounded];"]
    for before, steps in TRANSITIONS.items():
        lines += [
            f'  {before.value} -> {after.value} [label="{why}"];' for after, why in steps.items()
        ]
    return "\n".join([*lines, "}"]) + "\n"
