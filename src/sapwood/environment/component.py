"""What a component is: a part of the runtime that is started, watched and stopped as one.

Examples are the commands of a node, its sessions' processes, the store of a head. Any object
with the methods of :class:`Component` is one; nothing has to be inherited. A package of a third
party else registers a function without arguments that returns one, or its class, under the
entry-point group :data:`GROUP`; the setting ``nodes.components`` says which of them nodes run.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from sapwood.core.clock import Clock
from sapwood.environment.lifecycle import State
from sapwood.environment.logs import ComponentLogger
from sapwood.environment.settings import Settings

GROUP = "sapwood.components"
"""Entry points of components that packages bring."""


class ComponentAction(enum.Enum):
    """What a user may do with a component."""

    START = "start"
    STOP = "stop"
    RESTART = "restart"


class ComponentView(msgspec.Struct, frozen=True, kw_only=True):
    """A component as it is now, for people.

    Attributes:
        name: What it is called.
        state: One of :class:`~sapwood.environment.lifecycle.State`.
        since: Since when, seconds since 1970.
        reason: Why, where that is not plain.
        restarts: How often it was started again after it had died.
    """

    name: str
    state: str
    since: float
    reason: str = ""
    restarts: int = 0

    @property
    def works(self) -> bool:
        """Whether it does what it is for, fully or not."""
        return State(self.state).works


@dataclasses.dataclass(frozen=True, slots=True)
class ComponentEvent:
    """A notice to the other components and all subscribers.

    Attributes:
        at: When, seconds of the supervisor's clock.
        topic: Its topic; the supervisor's are constants of its module.
        source: The component that it is about or that published it; empty for all of them.
        value: Its content.
    """

    at: float
    topic: str
    source: str
    value: Any


@dataclasses.dataclass(frozen=True, slots=True)
class ComponentContext:
    """What a component is given at its start, and all that it may use of its surroundings.

    Attributes:
        settings: The configuration.
        logger: Where it logs.
        publish: Tells the other components something: ``publish(topic, value)``.
        clock: The time.
        own: Says that a process, by its number, is the component's. The daemon of a node ends
            children that no component has declared. It is forgotten when the component stops.
    """

    settings: Settings
    logger: ComponentLogger
    publish: Callable[[str, Any], None]
    clock: Clock
    own: Callable[[int], None]


class Component(Protocol):
    """A part of the runtime that is started, watched and stopped as one.

    The supervisor calls these methods from one thread: ``start`` once for every life, then
    ``check`` from time to time and ``receive`` for every event, then ``stop``. None of them may
    block for long. After ``stop`` or a failure ``start`` may be called again.
    """

    @property
    def name(self) -> str:
        """The name, unique in its supervisor: in logs, events and errors."""

    def start(self, context: ComponentContext) -> None:
        """Begin to work; whatever it raises means that it could not start.

        Args:
            context: Configuration, logging, messages to the other components, the time.
        """

    def check(self) -> State:
        """Return STARTING, READY, DEGRADED or FAILED: how it is now."""

    def receive(self, event: ComponentEvent) -> None:
        """Take note of what another component or the supervisor tells."""

    def stop(self) -> None:
        """End and give everything back; stopping what never started is allowed."""
