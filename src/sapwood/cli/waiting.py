"""What is shown on stderr while something takes its time and has no progress to tell."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

PATIENCE = 2.0
"""Seconds before anything is shown."""

TICK = 1.0
"""Seconds between two changes of the line."""


@contextmanager
def passing_seconds(
    text: str,
    stream: TextIO,
    *,
    why: str = "",
    patience: float = PATIENCE,
    tick: float = TICK,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[None]:
    """Show what goes on and for how long, once it has taken a while.

    On a terminal that is one line, which changes and goes away in the end; elsewhere a line that
    stays, and only where there is something to explain.

    Args:
        text: What goes on.
        stream: Where it is shown.
        why: Why it may take long.
        patience: Seconds before anything is shown.
        tick: Seconds between two changes.
        now: The clock.
    """
    over = threading.Event()
    begin = now()
    because = f" ({why})" if why else ""

    def show() -> None:
        if over.wait(patience):
            return
        if not stream.isatty():
            if why:
                stream.write(f"{text}{because}\n")
                stream.flush()
            return
        while True:
            stream.write(f"\r\x1b[K{text}: {now() - begin:.0f} s{because}")
            stream.flush()
            if over.wait(tick):
                break
        stream.write("\r\x1b[K")
        stream.flush()

    thread = threading.Thread(target=show, name="sapwood-waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
