"""Live pictures in notebooks: the output below a cell is updated in place.

A kernel of IPython shows them by its own messages (``display_data``, then
``update_display_data`` with the same id), so no widgets and no scripts are needed. Elsewhere there
are none.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any, Final, Protocol

from sapwood.core.failures import start_thread

INTERVAL: Final = 0.5
"""Seconds between two updates of a picture."""

SHARE: Final = 0.01
"""Of the time since a picture began, after which it is updated again: old ones change seldom."""

LONGEST: Final = 10.0
"""Seconds between two updates, of the oldest ones."""

PER_CELL: Final = 8
"""Pictures that appear automatically below one cell; a loop of many runs would fill a notebook."""


class Pictured(Protocol):
    """What a picture shows: it changes until it has ended."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for its end; return whether it has ended."""

    def done(self) -> bool:
        """Whether it has ended."""

    def _repr_html_(self) -> str: ...


class LivePicture:
    """A picture below a cell, which a thread keeps up to date.

    Args:
        pictured: What it shows.
    """

    def __init__(self, pictured: Pictured) -> None:
        self._pictured = pictured
        self._id = uuid.uuid4().hex
        self._cell = contextvars.copy_context()
        self._lock = threading.Lock()
        self._ended = False
        self._shown = False
        _publish(pictured, self._id, update=False)
        if pictured.done():
            self.end()
        else:
            start_thread("sapwood-notebook", self._follow)

    def end(self) -> None:
        """Show how it has ended; whoever waited for the end calls this, too.

        A cell that waited says it once more on its own behalf, before it is over: what runs
        notebooks without a browser listens to the cell that it executes, and to no other.
        """
        waited = threading.current_thread() is threading.main_thread()
        cell = contextvars.copy_context() if waited else self._cell.copy()
        with self._lock:
            if self._shown if waited else self._ended:
                return
            self._ended, self._shown = True, self._shown or waited
            cell.run(_publish, self._pictured, self._id, update=True)

    def _follow(self) -> None:
        """Update the picture until its end, on behalf of the cell that it is below."""
        began = time.monotonic()
        pause = INTERVAL
        while not self._pictured.wait(pause):
            with self._lock:
                if self._ended:
                    return
                self._cell.copy().run(_publish, self._pictured, self._id, update=True)
            pause = min(LONGEST, max(INTERVAL, SHARE * (time.monotonic() - began)))
        self.end()


class _Cell:
    """The pictures below the cell that is executed."""

    def __init__(self) -> None:
        self.number = -1
        self.shown: set[int] = set()

    def at(self, number: int) -> _Cell:
        if number != self.number:
            self.number, self.shown = number, set()
        return self


_cell = _Cell()
_lock = threading.Lock()


def show_by_itself(pictured: Pictured) -> LivePicture | None:
    """Show something that has begun, if this is a notebook; return its picture."""
    kernel = _kernel()
    if kernel is None:
        return None
    with _lock:
        cell = _cell.at(kernel.execution_count)
        if len(cell.shown) >= PER_CELL:
            return None
        cell.shown.add(id(pictured))
    return LivePicture(pictured)


def show(pictured: Pictured) -> LivePicture | None:
    """Show what a cell ends with; nothing if its picture is below that cell already.

    Raises:
        NotImplementedError: This is not a notebook; IPython shows the text then.
    """
    kernel = _kernel()
    if kernel is None:
        raise NotImplementedError
    with _lock:
        cell = _cell.at(kernel.execution_count)
        if id(pictured) in cell.shown:
            return None
        cell.shown.add(id(pictured))
    return LivePicture(pictured)


def follow_cells(begins: Callable[[], object], ends: Callable[[], object]) -> Callable[[], None]:
    """Have functions called when cells of this notebook begin and end, if this is one.

    Args:
        begins: Called in the context of a cell that begins.
        ends: Called in the context of a cell that ends, before its end is reported.

    Returns:
        A function that ends this.
    """
    kernel = _kernel()
    if kernel is None:
        return _nothing
    wanted = (
        ("pre_run_cell", lambda _info: begins()),
        ("post_run_cell", lambda _result: ends()),
    )
    for event, function in wanted:
        kernel.events.register(event, function)

    def leave() -> None:
        for event, function in wanted:
            with contextlib.suppress(ValueError):  # the notebook has removed it
                kernel.events.unregister(event, function)

    return leave


def _nothing() -> None:
    pass


def _kernel() -> Any | None:
    """Return the shell of the notebook that this process is, if it is one."""
    module = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell if getattr(shell, "kernel", None) is not None else None


def _publish(pictured: Pictured, display_id: str, *, update: bool) -> None:
    from IPython import display  # noqa: PLC0415 - notebooks have it

    publish: Callable[..., None] = display.publish_display_data
    publish(
        {"text/plain": repr(pictured), "text/html": pictured._repr_html_()},
        transient={"display_id": display_id},
        update=update,
    )
