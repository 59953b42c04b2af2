"""Notifying agents that all have joined."""

from __future__ import annotations

from collections.abc import Callable

from sapwood.session.interface import StreamInterface
from sapwood.session.options import PlacesChanged


class ReadinessNews:
    """Notifies every agent that all have joined, without waiting for answers; new ones, too.

    Args:
        stream: The stream to all agents; it follows the tree.
        seconds: How long the start of the session took.
        agents: Returns how many agents there are.
        is_closed: Says whether the session is closed.
    """

    def __init__(
        self,
        stream: StreamInterface,
        seconds: float,
        agents: Callable[[], int],
        is_closed: Callable[[], bool],
    ) -> None:
        self._stream = stream
        self._seconds = seconds
        self._agents = agents
        self._is_closed = is_closed
        self._tell()

    def _tell(self) -> None:
        self._stream.broadcast({"agents": self._agents(), "seconds": self._seconds})

    def changed(self, change: PlacesChanged) -> None:
        """Notify new processes."""
        is_new = change.added or (change.back and not change.disconnected)
        if is_new and not self._is_closed():
            self._tell()
