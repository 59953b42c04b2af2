"""Standard error that is slow, full or closed."""

import io
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from sapwood.environment import standard_error
from sapwood.environment.standard_error import StandardErrorWriter

PATIENCE = 10.0


class Slow(io.StringIO):
    """Takes nothing until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go_on = threading.Event()
        self.asked = threading.Event()

    def write(self, text: str) -> int:
        self.asked.set()
        assert self.may_go_on.wait(PATIENCE)
        return super().write(text)


@pytest.fixture
def writer(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandardErrorWriter]:
    monkeypatch.setattr(standard_error, "IDLE", 0.0)  # the thread ends with its last text
    made = StandardErrorWriter()
    yield made
    assert made.flush(PATIENCE)


def test_text_is_written_in_order(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    for number in range(100):
        writer.write(f"{number}\n")
    assert writer.flush(PATIENCE)
    assert shown.getvalue() == "".join(f"{number}\n" for number in range(100))


def test_slow_output_delays_nobody_and_what_is_dropped_is_counted(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_error, "MAX_QUEUED", 40)
    shown = Slow()
    monkeypatch.setattr(sys, "stderr", shown)
    writer.write("first\n")
    assert shown.asked.wait(PATIENCE)
    for number in range(10):
        writer.write(f"line {number}..\n")  # ten characters: four find room
    assert not writer.flush(0.0)
    shown.may_go_on.set()
    assert writer.flush(PATIENCE)
    lines = shown.getvalue().splitlines()
    assert lines[:5] == ["first", *(f"line {number}.." for number in range(4))]
    assert lines[5:] == ["sapwood: 6 lines were not shown: standard error took no more"]


@pytest.mark.parametrize("kind", ["full", "closed", "none", "pipe"])
def test_what_cannot_be_written_is_lost_and_nothing_else(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    if kind == "pipe":
        reading, writing = os.pipe()
        os.close(reading)
        stream = os.fdopen(writing, "w")
    else:
        stream = open("/dev/full", "w")  # noqa: SIM115, PTH123 - closed below
    if kind == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", None if kind == "none" else stream)
    writer.write("lost\n")
    assert writer.flush(PATIENCE)
    monkeypatch.setattr(sys, "stderr", shown := io.StringIO())
    writer.write("shown\n")
    assert writer.flush(PATIENCE)
    assert shown.getvalue() == "shown\n"
    try:
        stream.close()
    except OSError:
        assert kind in {"full", "pipe"}


def test_a_forked_process_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_error, "IDLE", 0.0)
    shown = Slow()
    monkeypatch.setattr(sys, "stderr", shown)
    made = StandardErrorWriter()
    made.write("of the parent\n")
    assert shown.asked.wait(PATIENCE)
    thread = made._thread
    made.forget()  # as os.register_at_fork has it done
    assert made.flush(0.0)
    shown.may_go_on.set()
    assert thread is not None
    thread.join(PATIENCE)
