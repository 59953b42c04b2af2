from __future__ import annotations

import errno
import io
import signal
from pathlib import Path
from typing import cast

import msgspec
import pytest
from rich.console import Console

from sapwood.activity.progress import RunInfo, RunState
from sapwood.activity.run import Run
from sapwood.activity.run_record import Move, WorkStatistics
from sapwood.cli.progress import (
    LineDisplay,
    LiveDisplay,
    RecordDisplay,
    SilentDisplay,
    follow,
    open_display,
    render_progress,
)
from sapwood.core import typed

SNAPSHOT = RunInfo(
    state=RunState.RUNNING,
    iteration=7,
    iterations=20,
    seconds=1.4,
    seconds_per_iteration=0.2,
    items=273_280,
    items_per_second=1_366_400.0,
    agents=4,
    metrics={"inertia": 1234567.891},
)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_three_lines_with_everything() -> None:
    console = terminal()
    console.print(render_progress("quantize", SNAPSHOT))
    lines = text_of(console).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:3] == ["quantize", "iteration", "7/20"]
    assert lines[0].rstrip().endswith("1.40 s")
    assert lines[1].rstrip() == "  inertia 1234568"
    assert lines[2].rstrip() == "  4 agents   200 ms/iteration   1.37 M items/s"


def test_a_long_name_and_many_metrics_stay_within_three_lines() -> None:
    console = terminal()
    many = {f"metric_{number}": 1.0 for number in range(20)}
    snapshot = RunInfo(state=RunState.RUNNING, iteration=1, seconds=1.0, agents=1, metrics=many)
    console.print(render_progress("x" * 100, snapshot))
    lines = text_of(console).splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [20, 40, 60, 80])
def test_everything_fits_into_narrow_terminals(width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    for snapshot in (SNAPSHOT, msgspec.structs.replace(SNAPSHOT, state=RunState.BUILDING)):
        console.print(render_progress("quantize", snapshot, width))
    lines = [line.rstrip() for line in text_of(console).splitlines()]
    assert len(lines) == 4
    assert max(map(len, lines)) <= width
    assert lines[0].endswith("1.40 s")
    if width >= 40:
        assert lines[0].startswith("quantize  iteration 7/20")
        assert lines[2].startswith("  4 agents   200 ms/iteration")
        assert lines[3] == "quantize  building  1.40 s"


def test_what_is_built_and_prepared_is_said() -> None:
    console = Console(file=io.StringIO(), width=200)
    display = LineDisplay("quantize", console)
    for state in (RunState.BUILDING, RunState.BUILDING, RunState.PREPARING, RunState.RUNNING):
        display.show(RunInfo(state=state))
    lines = text_of(console).splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "quantize: building",
        "quantize: preparing",
        "quantize: running",
    ]


def test_live_display_leaves_the_terminal_as_it_was() -> None:
    console = terminal()
    display = LiveDisplay("quantize", console)
    display.show(SNAPSHOT)
    display.close()
    text = text_of(console)
    assert "7/20" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1


def test_lines_are_rare_except_the_last() -> None:
    console = Console(file=io.StringIO(), width=200)
    display = LineDisplay("quantize", console)
    for tenth in range(50):
        display.show(RunInfo(state=RunState.RUNNING, iteration=tenth, seconds=tenth / 10))
    display.show(RunInfo(state=RunState.DONE, iteration=50, seconds=5.0))
    lines = text_of(console).splitlines()
    assert [line.split(",")[-1] for line in lines] == [" 0 µs", " 2.00 s", " 4.00 s", " 5.00 s"]
    assert lines[-1].startswith("quantize: done after 50 iterations, ")


def test_a_file_gets_nothing_unless_asked() -> None:
    assert isinstance(open_display("x", quiet=False, verbose=False), SilentDisplay)
    assert isinstance(open_display("x", quiet=False, verbose=True), LineDisplay)
    assert isinstance(open_display("x", quiet=True, verbose=True), SilentDisplay)


class ARun:
    """A run that lasts a number of waits; a signal comes in one of them."""

    def __init__(self, waits: int, signal_at: int | None = None) -> None:
        self._waits = waits
        self._signal_at = signal_at
        self.waited = 0
        self.cancelled = False
        self.progress = RunInfo(state=RunState.RUNNING)

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

    def show(self, progress: RunInfo) -> None:
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


def record(program: str = "mean", hash_: str = "a") -> WorkStatistics:
    move = Move(at=1.0, iteration=2, source=1, target=2, items=3, reason="")
    return WorkStatistics(run="r-1", program=program, hash=hash_, began=1.0, moves=(move,))


@pytest.mark.parametrize(
    ("left", "moves"),
    [
        (msgspec.json.encode(record()), 2),
        (msgspec.json.encode(record())[:-5], 1),
        (b"", 1),
        (msgspec.json.encode(record("median")), 1),
        (msgspec.json.encode(record(hash_="b")), 1),
        (msgspec.json.encode(msgspec.structs.replace(record(), version=99)), 1),
        (None, 1),
    ],
    ids=["whole", "torn", "empty", "other program", "other sources", "other layout", "none"],
)
def test_the_record_of_a_process_before_goes_on(
    tmp_path: Path, left: bytes | None, moves: int
) -> None:
    work = tmp_path / "work.json"
    if left is not None:
        work.write_bytes(left)
    display = RecordDisplay(tmp_path / "progress.json", work, record)
    display.show(SNAPSHOT)
    display.show(msgspec.structs.replace(SNAPSHOT, state=RunState.DONE))
    found = typed.json_reader(WorkStatistics)(work.read_bytes())
    assert len(found.moves) == moves


def test_a_record_that_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    display = RecordDisplay(folder / "progress.json", folder / "work.json", record)
    display.show(SNAPSHOT)  # there is no such folder: as a full disk, it raises OSError
    folder.mkdir()
    display.show(SNAPSHOT)
    found = typed.json_reader(RunInfo)((folder / "progress.json").read_bytes())
    assert found == SNAPSHOT
    display.show(msgspec.structs.replace(SNAPSHOT, state=RunState.DONE))
    assert len(typed.json_reader(WorkStatistics)((folder / "work.json").read_bytes()).moves) == 1


def test_half_a_record_does_not_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Path, data: bytes) -> int:
        with file.open("wb") as half:
            half.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    display = RecordDisplay(tmp_path / "progress.json", tmp_path / "work.json", record)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        display.show(SNAPSHOT)
    assert list(tmp_path.iterdir()) == []
