"""Following a run to its end: a progress display on stderr, and Ctrl-C that cancels the run."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run import Run
from sapwood.activity.run_record import VERSION, WorkStatistics, continued
from sapwood.cli import present
from sapwood.cli.answer_file import replace_file
from sapwood.cli.interrupts import noted_interrupts
from sapwood.core import typed
from sapwood.environment.logs import logger

_log = logger("cli")

POLL_SECONDS = 0.1
"""Seconds between two looks at a run, and at whether Ctrl-C was pressed."""

CANCEL_SECONDS = 0.7
"""Longest wait for a cancelled run to end."""


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


WORK_INTERVAL = 0.5
"""Seconds between two times that who did what is written."""

WORK_SHARE = 0.005
"""Of the time of a run that this may take: with many agents, it is written less often."""

LINE_INTERVAL = 2.0
"""Seconds between two plain lines."""

BAR_WIDTH = 24
MIN_BAR = 8
GAP = 2


class Display(Protocol):
    """A receiver of periodic progress, between start and stop."""

    def show(self, progress: RunInfo) -> None:
        """Show a snapshot."""

    def close(self) -> None:
        """Give the terminal back."""


class SilentDisplay:
    """Shows nothing."""

    def show(self, progress: RunInfo) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Nothing to give back."""


class RecordDisplay:
    """Files with the newest snapshots, for detached runs.

    A record of the same program that a process before this one left is continued. A
    write that fails, on a full disk for example, is repeated later, and the run continues.

    Args:
        file: The file of the progress.
        work: The file of who did what.
        record: Returns who did what.
    """

    def __init__(self, file: Path, work: Path, record: Callable[[], WorkStatistics]) -> None:
        self._file = file
        self._last: RunInfo | None = None
        self._work = work
        self._record = record
        self._former = _former(work)
        self._due = 0.0
        self._failed = False

    def show(self, progress: RunInfo) -> None:
        """Write a snapshot, unless it is the last one."""
        try:
            self._write(progress)
        except OSError as error:
            if not self._failed:
                _log.warning("record of the run not written", reason=str(error))
            self._failed = True
        else:
            self._failed = False

    def _write(self, progress: RunInfo) -> None:
        if progress != self._last:
            replace_file(self._file, msgspec.json.encode(progress))
            self._last = progress
        if progress.state.final or time.monotonic() >= self._due:
            began = time.monotonic()
            self._due = began + WORK_INTERVAL  # also where it cannot be written
            replace_file(self._work, msgspec.json.encode(self._whole(self._record())))
            ended = time.monotonic()
            self._due = ended + max(WORK_INTERVAL, (ended - began) / WORK_SHARE)

    def _whole(self, now: WorkStatistics) -> WorkStatistics:
        former = self._former
        if former is None or former.program != now.program:
            return now
        if now.hash and now.hash != former.hash:
            return now
        return continued(former, now)

    def close(self) -> None:
        """Nothing to give back."""


def _former(work: Path) -> WorkStatistics | None:
    """Return what a process before this one has left; None where that is nothing, or damaged."""
    try:
        found = typed.json_reader(WorkStatistics)(work.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("record of the run not used", file=str(work), reason=str(error))
        return None
    return found if found.version == VERSION else None


class LiveDisplay:
    """At most three lines that redraw in place; for a terminal."""

    def __init__(self, program: str, console: Console) -> None:
        self._program = program
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, progress: RunInfo) -> None:
        """Redraw."""
        self._live.update(self._rendered(progress), refresh=True)

    def _rendered(self, progress: RunInfo) -> RenderableType:
        return render_progress(self._program, progress, self._live.console.width)

    def close(self) -> None:
        """Remove the lines and give the terminal back."""
        self._live.stop()


class LineDisplay:
    """Periodic plain lines, for files and logs."""

    def __init__(self, program: str, console: Console) -> None:
        self._program = program
        self._console = console
        self._next = 0.0
        self._state: RunState | None = None

    def show(self, progress: RunInfo) -> None:
        """Print a line if the last one is long enough ago, or the run has come to another state."""
        if progress.seconds >= self._next or progress.state is not self._state:
            self._state = progress.state
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


def render_progress(program: str, progress: RunInfo, width: int = 80) -> RenderableType:
    """Return a snapshot as lines that fit: a bar, the program's metrics, the speed.

    Args:
        program: The program's name.
        progress: The snapshot.
        width: Columns of the terminal; the bar takes what the rest leaves, and goes first.
    """
    begun = progress.state not in {RunState.BUILDING, RunState.PREPARING}
    what = f"iteration {_iterations(progress)}" if begun else str(progress.state)
    seconds = present.seconds(progress.seconds)
    name = program[: max(8, width - len(what) - len(seconds) - 2 * GAP)]
    parts = [Text(name, style="bold", no_wrap=True), Text(what, no_wrap=True)]
    room = width - sum(len(part.plain) + GAP for part in parts) - len(seconds) - GAP
    bar = ProgressBar(
        total=progress.iterations,
        completed=progress.iteration,
        width=min(BAR_WIDTH, room),
        pulse=progress.iterations is None,
    )
    head = Table.grid(padding=(0, GAP))
    head.add_row(*parts, *[bar] * (room >= MIN_BAR and begun), Text(seconds, no_wrap=True))
    if not begun:
        return head
    return Group(head, _line(_metrics(progress), width), _line(_speed(progress), width))


def progress_line(program: str, progress: RunInfo) -> str:
    """Return a snapshot as one line of text."""
    seconds = present.seconds(progress.seconds)
    if progress.state in {RunState.BUILDING, RunState.PREPARING}:
        return f"{program}: {progress.state}, {seconds}"
    head = f"{program}: {progress.state}, iteration {_iterations(progress)}"
    if progress.state is RunState.DONE:
        head = f"{program}: done after {iterations_text(progress.iteration)}"
    facts = [*_metrics(progress), *_speed(progress), seconds]
    return ", ".join([head, *facts])


def iterations_text(count: int) -> str:
    """Return a number of iterations in words.

    Example:
        >>> iterations_text(1), iterations_text(20)
        ('1 iteration', '20 iterations')
    """
    return f"{count} iteration{'' if count == 1 else 's'}"


def _iterations(progress: RunInfo) -> str:
    if progress.iterations is None:
        return str(progress.iteration)
    return f"{progress.iteration}/{progress.iterations}"


def _metrics(progress: RunInfo) -> list[str]:
    return [f"{name} {present.metric(value)}" for name, value in progress.metrics.items()]


def _speed(progress: RunInfo) -> list[str]:
    facts = [f"{progress.agents} agent{'' if progress.agents == 1 else 's'}"]
    if progress.iteration:
        facts.append(f"{present.seconds(progress.seconds_per_iteration)}/iteration")
        facts.append(f"{present.count(progress.items_per_second)} items/s")
    return facts


def _line(facts: list[str], width: int) -> Text:
    """Return as many facts as fit; the last one that does not is left out as a whole."""
    text = ""
    for fact in facts:
        longer = f"{text}   {fact}" if text else f"  {fact}"
        if len(longer) > width and text:
            text += " …" * (len(text) + 2 <= width)
            break
        text = longer
    return Text(text, overflow="ellipsis", no_wrap=True)
