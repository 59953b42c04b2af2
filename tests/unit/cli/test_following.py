"""Following a run: its progress is shown, Ctrl-C cancels it, whenever it comes."""

import signal
from typing import cast

import pytest

from sapwood.activity.progress import Progress, RunState
from sapwood.activity.run import Run
from sapwood.cli.following import follow


class ARun:
    """A run that lasts a number of waits; a signal comes in one of them."""

    def __init__(self, waits: int, signal_at: int | None = None) -> None:
        self._waits = waits
        self._signal_at = signal_at
        self.waited = 0
        self.cancelled = False
        self.progress = Progress(state=RunState.RUNNING)

    def wait(self, timeout: float) -> bool:
        """One more wait is over."""
        if self.waited == self._signal_at:
            signal.raise_signal(signal.SIGINT)
        self.waited += 1
        return self.cancelled or self.waited >= self._waits

    def cancel(self) -> bool:
        """Note it."""
        self.cancelled = True
        return True


class ADisplay:
    """Counts what it was shown."""

    def __init__(self) -> None:
        self.shown = 0
        self.closed = False

    def show(self, progress: Progress) -> None:
        """Count."""
        self.shown += 1

    def close(self) -> None:
        """Note it."""
        self.closed = True


def test_a_run_is_shown_until_it_ends() -> None:
    run, display = ARun(waits=3), ADisplay()
    assert follow(cast("Run", run), display)
    assert display.shown == run.waited + 1
    assert display.closed
    assert not run.cancelled


def test_ctrl_c_cancels_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    run, display = ARun(waits=1000, signal_at=2), ADisplay()
    assert not follow(cast("Run", run), display)
    assert run.cancelled
    assert display.closed
    assert "interrupted, cancelling the run" in capsys.readouterr().err


def test_ctrl_c_in_the_last_moment_is_not_lost() -> None:
    """Who watches sources would run the next version otherwise."""
    run = ARun(waits=1, signal_at=0)
    assert not follow(cast("Run", run), ADisplay())
