"""The display of progress while a build takes time."""

from __future__ import annotations

import io
import itertools
import threading

from sapwood.cli.build import passing_seconds

PATIENCE = 30.0


class Terminal(io.StringIO):
    """A stream that tells when it has been written to so many times."""

    def __init__(self, times: int, *, terminal: bool = True) -> None:
        super().__init__()
        self.written = threading.Semaphore(0)
        self.times = times
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.written.release()

    def wait(self) -> None:
        for _ in range(self.times):
            assert self.written.acquire(timeout=PATIENCE)


def test_seconds_pass_on_a_terminal_and_the_line_goes_away() -> None:
    stream = Terminal(3)
    clock = itertools.count()
    with passing_seconds(
        "building a", stream, why="slow", patience=0, tick=0.001, now=lambda: float(next(clock))
    ):
        stream.wait()
    lines = stream.getvalue().split("\r\x1b[K")
    assert lines[1:4] == [f"building a: {second} s (slow)" for second in (1, 2, 3)]
    assert lines[-1] == ""


def test_elsewhere_it_is_a_line_where_there_is_something_to_explain() -> None:
    stream = Terminal(1, terminal=False)
    with passing_seconds("building a", stream, why="slow", patience=0):
        stream.wait()
    assert stream.getvalue() == "building a (slow)\n"
    quiet = Terminal(0, terminal=False)
    with passing_seconds("building a", quiet, patience=0):
        pass
    assert quiet.getvalue() == ""


def test_what_is_soon_over_shows_nothing() -> None:
    stream = Terminal(0)
    with passing_seconds("building a", stream, patience=PATIENCE):
        pass
    assert stream.getvalue() == ""
