"""What a run shows on stderr while it lasts: a display that redraws, or plain lines."""

from __future__ import annotations

import sys
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sapwood.activity.progress import Progress
from sapwood.cli import figures

LINE_INTERVAL = 2.0
"""Seconds between two plain lines."""

BAR_WIDTH = 24


class Display(Protocol):
    """Something that is told of progress now and then, between start and stop."""

    def show(self, progress: Progress) -> None:
        """Show a snapshot."""

    def close(self) -> None:
        """Give the terminal back."""


class SilentDisplay:
    """Shows nothing."""

    def show(self, progress: Progress) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing to give back."""


class LiveDisplay:
    """Three lines that redraw in place; for a terminal."""

    def __init__(self, program: str, console: Console) -> None:
        self._program = program
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, progress: Progress) -> None:
        """Redraw."""
        self._live.update(render_progress(self._program, progress), refresh=True)

    def close(self) -> None:
        """Remove the lines and give the terminal back."""
        self._live.stop()


class LineDisplay:
    """A plain line now and then; for files and logs."""

    def __init__(self, program: str, console: Console) -> None:
        self._program = program
        self._console = console
        self._next = 0.0

    def show(self, progress: Progress) -> None:
        """Print a line if the last one is long enough ago or the run has ended."""
        if progress.seconds >= self._next or progress.state.final:
            self._next = progress.seconds + LINE_INTERVAL
            self._console.print(Text(progress_line(self._program, progress)))

    def close(self) -> None:
        """Nothing to give back."""


def open_display(program: str, *, quiet: bool, verbose: bool) -> Display:
    """Return the display that fits stderr: live on a terminal, else lines if asked for."""
    console = Console(file=sys.stderr, soft_wrap=True)
    if quiet:
        return SilentDisplay()
    if console.is_terminal and not verbose:
        return LiveDisplay(program, console)
    return LineDisplay(program, console) if verbose else SilentDisplay()


def render_progress(program: str, progress: Progress) -> RenderableType:
    """Return a snapshot as three lines: a bar, the program's metrics, the speed."""
    head = Table.grid(padding=(0, 2))
    bar = ProgressBar(
        total=progress.iterations,
        completed=progress.iteration,
        width=BAR_WIDTH,
        pulse=progress.iterations is None,
    )
    head.add_row(
        Text(program, style="bold", overflow="ellipsis", no_wrap=True),
        Text(f"iteration {_iterations(progress)}", no_wrap=True),
        bar,
        Text(figures.seconds(progress.seconds), no_wrap=True),
    )
    return Group(head, _line(_metrics(progress)), _line(_speed(progress)))


def progress_line(program: str, progress: Progress) -> str:
    """Return a snapshot as one line of text."""
    head = f"{program}: {progress.state}, iteration {_iterations(progress)}"
    facts = [*_metrics(progress), *_speed(progress), figures.seconds(progress.seconds)]
    return ", ".join([head, *facts])


def _iterations(progress: Progress) -> str:
    if progress.iterations is None:
        return str(progress.iteration)
    return f"{progress.iteration}/{progress.iterations}"


def _metrics(progress: Progress) -> list[str]:
    return [f"{name} {figures.metric(value)}" for name, value in progress.metrics.items()]


def _speed(progress: Progress) -> list[str]:
    facts = [f"{progress.agents} agent{'' if progress.agents == 1 else 's'}"]
    if progress.iteration:
        facts.append(f"{figures.seconds(progress.seconds_per_iteration)}/iteration")
        facts.append(f"{figures.count(progress.items_per_second)} items/s")
    return facts


def _line(facts: list[str]) -> Text:
    return Text("  " + "   ".join(facts), overflow="ellipsis", no_wrap=True)
