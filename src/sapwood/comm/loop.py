"""What the places of a tree need of an event loop; ``reactor.py``, asyncio and uvloop have it."""

from collections.abc import Callable
from typing import Any, Protocol


class Timer(Protocol):
    """Something that is due at a time."""

    def cancel(self) -> None:
        """Let it not happen."""


class Loop(Protocol):
    """Descriptors and timers of one thread."""

    def time(self) -> float:
        """Return the time, seconds."""

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Any:
        """Call a function after what is being done now."""

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        """Call a function after a time, seconds."""

    def add_reader(self, fd: int, callback: Callable[[], Any]) -> Any:
        """Call a function whenever a descriptor can be read."""

    def remove_reader(self, fd: int) -> Any:
        """Stop that."""

    def add_writer(self, fd: int, callback: Callable[[], Any]) -> Any:
        """Call a function whenever a descriptor can be written."""

    def remove_writer(self, fd: int) -> Any:
        """Stop that."""
