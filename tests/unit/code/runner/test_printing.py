"""Standard output and error of user code: whether there may be something to flush."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

import pytest

from sapwood.code.runner.printing import Printing, PrintStream


class Pipe:
    """What a stream writes to, as its reader sees it."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe2(os.O_NONBLOCK)

    def read(self) -> bytes:
        """Return what came, if anything."""
        try:
            return os.read(self.read_end, 4096)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Return a pipe."""
    made = Pipe()
    yield made
    os.close(made.read_end)
    os.close(made.write_end)


@pytest.fixture
def printing(pipe: Pipe) -> Iterator[Printing]:
    """Return streams, of which the output goes to a pipe."""
    made = Printing()
    made.output = PrintStream(pipe.write_end, made)
    yield made
    with contextlib.suppress(ValueError):  # a test has taken it apart
        made.output.close()


def test_nothing_is_pending_before_something_is_printed(printing: Printing) -> None:
    assert not printing.pending


def test_what_is_printed_is_pending_until_it_is_flushed(printing: Printing, pipe: Pipe) -> None:
    print("the begin of a line", end="", file=printing.output)
    assert (printing.pending, pipe.read()) == (True, b"")
    printing.flush()
    assert (printing.pending, pipe.read()) == (False, b"the begin of a line")


def test_lines_arrive_at_once(printing: Printing, pipe: Pipe) -> None:
    printing.output.writelines(["one\n", "two\n", "thr"])
    assert pipe.read() == b"one\ntwo\n"
    assert printing.pending


def test_who_has_the_binary_stream_may_write_at_any_time(printing: Printing, pipe: Pipe) -> None:
    binary = printing.output.buffer
    printing.flush()
    binary.write(b"later")
    assert printing.pending
    printing.flush()
    assert (printing.pending, pipe.read()) == (True, b"later")


def test_a_stream_that_is_taken_apart_may_be_written_to(printing: Printing) -> None:
    binary = printing.output.detach()
    assert printing.pending
    binary.close()


def test_other_streams_in_their_place_are_flushed(
    printing: Printing, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(io.StringIO):
        flushed = 0

        def flush(self) -> None:
            self.flushed += 1

    other = Counting()
    monkeypatch.setattr(sys, "stderr", other)
    printing.flush()
    assert other.flushed == 1


def test_whatever_is_in_their_place_is_no_error(
    printing: Printing, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    print("not lost", end="", file=printing.output)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", None)
        patched.delattr(sys, "stderr")
        printing.flush()
    assert pipe.read() == b"not lost"


def test_letters_that_have_no_encoding_are_replaced(printing: Printing, pipe: Pipe) -> None:
    print("\ud800", file=printing.output)
    assert pipe.read() == b"?\n"


def test_half_a_line_ends_with_its_call(
    printing: Printing, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", printing.output)
    monkeypatch.setattr(sys, "stderr", printing.error)
    sys.stdout.write("half a line")
    printing.end_call()
    assert pipe.read() == b"half a line\n"
    sys.stdout.write("whole\n")
    printing.end_call()
    assert pipe.read() == b"whole\n"
    assert not printing.pending


def test_streams_that_a_call_replaced_or_closed_are_restored(
    printing: Printing, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(sys, "stderr", None)
    printing.end_call()
    assert sys.stdout is printing.output
    assert sys.stderr is printing.error
    sys.stdout.close()
    sys.stdout.write("after close\n")
    assert pipe.read() == b"after close\n"
