"""Components of a node: what a package registers as ``sapwood.components``."""

from sapwood.environment.component import (
    Component,
    ComponentAction,
    ComponentContext,
    ComponentEvent,
    ComponentView,
)
from sapwood.environment.lifecycle import State

__all__ = [
    "Component",
    "ComponentAction",
    "ComponentContext",
    "ComponentEvent",
    "ComponentView",
    "State",
]
