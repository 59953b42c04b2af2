"""Watching a run to its end: progress on the display, Ctrl-C noted instead of thrown."""

from __future__ import annotations

import typer

from sapwood.activity.run import Run
from sapwood.cli.interrupts import noted_interrupts
from sapwood.cli.live import Display

POLL_SECONDS = 0.1
"""Seconds between two looks at a run, and at whether Ctrl-C was pressed."""

CANCEL_SECONDS = 0.7
"""Longest wait for a cancelled run to end by itself."""


def follow(run: Run, display: Display) -> bool:
    """Show a run's progress until it ends; return False when Ctrl-C or SIGTERM ended it.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed again while the run was being cancelled.
    """
    with noted_interrupts() as interrupted:
        try:
            display.show(run.progress)
            while not run.wait(POLL_SECONDS) and not interrupted():
                display.show(run.progress)
            display.show(run.progress)
        finally:
            display.close()
        if not interrupted():
            return True
        typer.echo(
            "sapwood: interrupted, cancelling the run; Ctrl-C again to stop at once", err=True
        )
        run.cancel()
        run.wait(CANCEL_SECONDS)
        return False
