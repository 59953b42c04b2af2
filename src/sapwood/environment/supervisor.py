"""Starts components, watches them, restarts the dead and tells the others.

The supervisor has no thread. On an event loop, :meth:`Supervisor.attend` lets it look
by itself. Else whoever owns it calls :meth:`Supervisor.poll` when the time that it returned has
passed: so do tests with virtual time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from sapwood.comm.loop import Loop, Timer
from sapwood.core.clock import Clock, MonotonicClock
from sapwood.core.errors import ConfigurationError, InputError
from sapwood.core.suggest import suggestion
from sapwood.environment.component import (
    Component,
    ComponentAction,
    ComponentContext,
    ComponentEvent,
    ComponentView,
)
from sapwood.environment.lifecycle import TRANSITIONS, Lifecycle, State
from sapwood.environment.logs import logger
from sapwood.environment.restart import RestartBudget
from sapwood.environment.settings import Settings

CHECK_INTERVAL = 0.5
"""Seconds between two looks at components that are well."""

START_INTERVAL = 0.01
"""Seconds between two looks while a component is starting."""

STATE_CHANGED = "component.state"
"""Topic: a component changed its state; the value is the step."""

RESTART_PLANNED = "component.restart"
"""Topic: a dead component will be restarted; the value is the wait in seconds."""

GIVEN_UP = "component.given-up"
"""Topic: a dead component used up its restarts; the value is why it died."""

ALL_READY = "all.ready"
"""Topic: every component is ready; the value is how long that took, in seconds."""

ASKED = "at a user's request"
"""Why a component stops or starts that a user stopped or started."""

_RUNNING = frozenset({State.STARTING, State.READY, State.DEGRADED})

Refusals = Mapping[str, Mapping[ComponentAction, str]]
"""What users may not do with which component, and what to do instead."""


class _Watched:
    """A component with its life cycle, its budget of restarts, and whether it receives events."""

    __slots__ = (
        "budget",
        "component",
        "due",
        "life",
        "listening",
        "processes",
        "restarts",
        "started",
    )

    def __init__(self, component: Component, clock: Clock, settings: Settings) -> None:
        self.component = component
        self.life = Lifecycle(component.name, clock)
        self.budget = RestartBudget(settings.restart)
        self.started = 0.0
        self.due: float | None = None
        self.listening = False
        self.processes: set[int] = set()
        self.restarts = 0


class Supervisor:
    """Keeps components alive; a context manager that starts and stops them.

    Args:
        components: In the order in which they start; they stop in the reverse order.
        settings: The configuration they get; ``restart`` and ``cluster.ready_timeout`` are
            used here.
        clock: The time.
        refusals: What users may not do with some components, and what to do instead.

    Raises:
        InputError: Two components have the same name.
    """

    def __init__(
        self,
        components: Sequence[Component],
        settings: Settings | None = None,
        clock: Clock | None = None,
        refusals: Refusals = MappingProxyType({}),
    ) -> None:
        self._settings = settings or Settings()
        self._refusals = refusals
        self._clock = clock or MonotonicClock()
        self._watched = {
            component.name: _Watched(component, self._clock, self._settings)
            for component in components
        }
        if len(self._watched) != len(components):
            raise InputError(
                "two components have the same name",
                where=", ".join(component.name for component in components),
            )
        self._subscribers: list[Callable[[ComponentEvent], None]] = []
        self._queue: deque[ComponentEvent] = deque()
        self._delivering = False
        self._not_ready_since: float | None = None
        self._was_ready = False
        self._loop: Loop | None = None
        self._timer: Timer | None = None
        self._log = logger("supervisor")

    @property
    def states(self) -> Mapping[str, State]:
        """The state of every component by name."""
        return MappingProxyType({name: one.life.state for name, one in self._watched.items()})

    @property
    def processes(self) -> set[int]:
        """The processes that components have said to be theirs."""
        return {pid for one in self._watched.values() for pid in one.processes}

    def views(self) -> list[ComponentView]:
        """Return all components as they are now."""
        return [self.view(name) for name in self._watched]

    def state_of(self, name: str) -> State:
        """Return the state of a component.

        Raises:
            InputError: There is none of that name.
        """
        return self._find(name).life.state

    def view(self, name: str) -> ComponentView:
        """Return a component as it is now.

        Raises:
            InputError: There is none of that name.
        """
        one = self._find(name)
        state, since, reason = one.life.state, 0.0, ""
        if one.life.steps:
            step = one.life.steps[-1]
            since = time.time() - (self._clock.now() - step.at)
            plain = step.reason == TRANSITIONS[step.before].get(state)
            reason = "" if plain else step.reason
        return ComponentView(
            name=name, state=state.value, since=since, reason=reason, restarts=one.restarts
        )

    def _find(self, name: str) -> _Watched:
        found = self._watched.get(name)
        if found is None:
            raise InputError(
                f"unknown component '{name}'",
                hint=suggestion(name, self._watched, kind="components"),
            )
        return found

    def story(self, name: str) -> str:
        """Return what a component went through, one step a line."""
        return self._watched[name].life.story()

    def subscribe(self, listener: Callable[[ComponentEvent], None]) -> Callable[[], None]:
        """Tell a function every event from now on.

        Returns:
            A function that ends the subscription.
        """
        self._subscribers.append(listener)
        return lambda: self._subscribers.remove(listener)

    def start(self, since: float | None = None) -> None:
        """Start all components; :meth:`poll` then follows them until they are ready.

        Args:
            since: From when on the time until all are ready counts; by default from now on.
        """
        self._not_ready_since = self._clock.now() if since is None else since
        for one in self._watched.values():
            self._start(one)
        self._look_at_all()

    def attend(self, loop: Loop) -> None:
        """Look at the components on a loop from now on, until :meth:`stop`; on its thread."""
        self._loop = loop
        self.look()

    def detach(self) -> None:
        """Look no more on a loop."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Look at all components now, and then when it is time; for a supervisor on a loop."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wait = self.poll()
        if self._loop is not None and wait is not None:
            self._timer = self._loop.call_later(wait, self.look)

    def act(self, name: str, action: ComponentAction) -> ComponentView:
        """Do with a component what a user wants.

        Starting a running component, or stopping a stopped one, changes nothing. A started one gets
        its whole budget of restarts again.

        Returns:
            How it is then; it may still be starting.

        Raises:
            InputError: There is none of that name.
            ConfigurationError: This one may not be stopped, or not be restarted.
        """
        one = self._find(name)
        instead = self._refusals.get(name, {}).get(action)
        if instead is not None:
            raise ConfigurationError(
                f"the component '{name}' cannot be {_PAST[action]} alone", hint=instead
            )
        if action is not ComponentAction.START:
            self._stop_one(one)
        if one.life.state not in _RUNNING and action is not ComponentAction.STOP:
            one.due, one.budget = None, RestartBudget(self._settings.restart)
            self._start(one, ASKED)
        self.look()
        return self.view(name)

    def when_settled(self, name: str, function: Callable[[ComponentView], None]) -> None:
        """Have a function called, once, when a component is not starting any more."""
        if self._find(name).life.state is not State.STARTING:
            function(self.view(name))
            return

        def heard(event: ComponentEvent) -> None:
            if event.source == name and self._watched[name].life.state is not State.STARTING:
                end()
                function(self.view(name))

        end = self.subscribe(heard)

    def tell(self, topic: str, value: Any) -> None:
        """Tell all components and subscribers something."""
        self._tell(topic, "", value)

    def _stop_one(self, one: _Watched) -> None:
        """Stop a component, if it runs or will be restarted."""
        one.due = None
        if one.life.state in _RUNNING:
            self._move(one, State.STOPPING, ASKED)
            if reason := self._stop_quietly(one):
                self._move(one, State.FAILED, reason)
            self._move(one, State.STOPPED, reason or ASKED)
        elif one.life.state is State.FAILED:
            self._move(one, State.STOPPED, ASKED)

    def poll(self) -> float | None:
        """Look at every component, restart what is due.

        Returns:
            Seconds after which to call again; None if nothing is left to watch.
        """
        now = self._clock.now()
        for one in self._watched.values():
            state = one.life.state
            if state is State.FAILED and one.due is not None and now >= one.due:
                one.due = None
                one.restarts += 1
                self._start(one)
            elif state in _RUNNING:
                self._check(one)
        self._look_at_all()
        return self._next_look()

    def stop(self) -> tuple[str, ...]:
        """Stop all components, the last one first.

        Returns:
            The names of those that raised an error while stopping; it is in the log.
        """
        failed = []
        self.detach()
        for name, one in reversed(self._watched.items()):
            one.due = None
            if one.life.state in _RUNNING:
                self._move(one, State.STOPPING)
                if reason := self._stop_quietly(one):
                    failed.append(name)
                    self._move(one, State.FAILED, reason)
            if one.life.state is not State.STOPPED:
                self._move(one, State.STOPPED)
        return tuple(failed)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def _start(self, one: _Watched, reason: str = "") -> None:
        self._move(one, State.STARTING, reason)
        one.started = self._clock.now()
        name = one.component.name
        context = ComponentContext(
            settings=self._settings,
            logger=logger(name),
            publish=lambda topic, value: self._tell(topic, name, value),
            clock=self._clock,
            own=one.processes.add,
        )
        try:
            one.component.start(context)
        except Exception as error:  # noqa: BLE001 - a component's failure is the supervisor's work
            self._fail(one, f"{type(error).__name__}: {error}")
        else:
            one.listening = True
            self._check(one)

    def _check(self, one: _Watched) -> None:
        try:
            found = one.component.check()
        except Exception as error:  # noqa: BLE001 - a component's failure is the supervisor's work
            self._fail(one, f"{type(error).__name__}: {error}")
            return
        if found is State.FAILED:
            self._fail(one, "it reported a failure")
        elif found is not one.life.state:
            if found in TRANSITIONS[one.life.state] and found is not State.STOPPING:
                self._move(one, found)
            else:
                self._fail(one, f"it was {one.life.state.value} and says it is {found.value}")
        elif found is State.STARTING:
            limit = self._settings.cluster.ready_timeout
            if self._clock.now() - one.started >= limit:
                self._fail(one, f"it was not ready within {limit:g} s")

    def _fail(self, one: _Watched, reason: str) -> None:
        self._move(one, State.FAILED, reason)
        self._stop_quietly(one)
        now = self._clock.now()
        wait = one.budget.next_wait(now)
        if wait is None:
            self._move(one, State.STOPPED, f"given up: {reason}")
            self._tell(GIVEN_UP, one.component.name, reason)
        else:
            one.due = now + wait
            self._tell(RESTART_PLANNED, one.component.name, wait)

    def _stop_quietly(self, one: _Watched) -> str:
        """Stop a component; return what went wrong, or nothing."""
        one.listening = False
        try:
            one.component.stop()
        except Exception as error:  # noqa: BLE001 - the others must be stopped all the same
            self._log.exception("component does not stop", name=one.component.name)
            return f"{type(error).__name__}: {error}"
        finally:
            one.processes.clear()
        return ""

    def _look_at_all(self) -> None:
        """Tell everybody, once, when all components have become ready."""
        if self._not_ready_since is None:
            return
        if all(one.life.state is State.READY for one in self._watched.values()):
            seconds = self._clock.now() - self._not_ready_since
            self._not_ready_since = None
            self._was_ready = True
            self._tell(ALL_READY, "", seconds)

    def _next_look(self) -> float | None:
        now = self._clock.now()
        waits = []
        for one in self._watched.values():
            if one.due is not None:
                waits.append(max(0.0, one.due - now))
            elif one.life.state is State.STARTING:
                waits.append(START_INTERVAL)
            elif one.life.state in {State.READY, State.DEGRADED}:
                waits.append(CHECK_INTERVAL)
        return min(waits, default=None)

    def _move(self, one: _Watched, state: State, reason: str = "") -> None:
        step = one.life.move(state, reason)
        if state is not State.READY and self._not_ready_since is None:
            self._not_ready_since = step.at
        log = self._log.info
        if state is State.FAILED:
            log = self._log.warning
        elif not self._was_ready or state in {State.STARTING, State.STOPPING}:
            log = self._log.debug  # a start without trouble is one line: that all are ready
        log("component " + state.value, name=one.component.name, reason=step.reason)
        self._tell(STATE_CHANGED, one.component.name, step)

    def _tell(self, topic: str, source: str, value: Any) -> None:
        """Notify all but the source; notices that they publish meanwhile follow, in order."""
        self._queue.append(ComponentEvent(self._clock.now(), topic, source, value))
        if self._delivering:
            return
        self._delivering = True
        try:
            while self._queue:
                self._deliver(self._queue.popleft())
        finally:
            self._delivering = False

    def _deliver(self, event: ComponentEvent) -> None:
        listeners: list[Callable[[ComponentEvent], None]] = [
            one.component.receive
            for name, one in self._watched.items()
            if one.listening and name != event.source
        ]
        listeners += self._subscribers
        for listener in listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - one deaf listener must not silence the others
                self._log.exception("a listener failed", topic=event.topic)


_PAST = {
    ComponentAction.START: "started",
    ComponentAction.STOP: "stopped",
    ComponentAction.RESTART: "restarted",
}
