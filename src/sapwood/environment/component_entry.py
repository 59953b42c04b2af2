"""A component that a third-party package provides, by its entry point."""

from __future__ import annotations

from sapwood.core.errors import ConfigurationError
from sapwood.core.suggest import suggestion
from sapwood.environment.component import GROUP, Component, ComponentContext, ComponentEvent
from sapwood.environment.lifecycle import State


class EntryComponent:
    """A component under the name of its entry point; it is made anew for each life.

    A package that is not installed, or cannot be imported, is a failure of this component only.

    Args:
        name: Of the entry point.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._made: Component | None = None

    def start(self, context: ComponentContext) -> None:
        """Find the package, make the component and start it.

        Raises:
            ConfigurationError: No package here has it.
        """
        self._made = None
        self._made = self._find()
        self._made.start(context)

    def check(self) -> State:
        """Return how it is."""
        assert self._made is not None  # noqa: S101 - start() comes first
        return self._made.check()

    def receive(self, event: ComponentEvent) -> None:
        """Pass an event on."""
        if self._made is not None:
            self._made.receive(event)

    def stop(self) -> None:
        """End it, if it was made."""
        made, self._made = self._made, None
        if made is not None:
            made.stop()

    def _find(self) -> Component:
        from importlib.metadata import (  # noqa: PLC0415 - slow, and few nodes have any
            entry_points,
        )

        points = entry_points(group=GROUP)
        for point in points.select(name=self.name):
            made: Component = point.load()()
            return made
        raise ConfigurationError(
            f"no package here brings a component '{self.name}'",
            hint=suggestion(self.name, points.names, kind="components that are installed"),
        )
