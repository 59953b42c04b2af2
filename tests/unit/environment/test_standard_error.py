"""Standard error that is slow, full or closed."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

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


@pytest.mark.slow
def test_a_second_wait_for_what_is_blocked_returns_at_once(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_error, "FLUSH_TIMEOUT", 0.05)
    shown = Slow()
    monkeypatch.setattr(sys, "stderr", shown)
    writer.write("first\n")
    assert shown.asked.wait(PATIENCE)
    assert not writer.flush(0.05)
    waits: list[float] = []
    monkeypatch.setattr(writer._changed, "wait_for", lambda _done, seconds: waits.append(seconds))
    assert not writer.flush(0.05)
    assert waits == []
    monkeypatch.undo()
    shown.may_go_on.set()


def test_slow_standard_error_that_takes_text_is_waited_for(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # as some programs leave the terminal that they share
    stream = os.fdopen(writing, "w", encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", stream)
    text = "".join(f"{number}\n" for number in range(100_000))  # more than a pipe holds
    writer.write(text)
    assert not writer.flush(0.0)
    received = bytearray()

    def read() -> None:
        while len(received) < len(text):
            received.extend(os.read(reading, 1 << 14))

    thread = threading.Thread(target=read)
    thread.start()
    assert writer.flush(PATIENCE)
    thread.join(PATIENCE)
    assert received.decode() == text
    stream.close()
    os.close(reading)


PAUSED = """
import sys
from sapwood.environment.standard_error import stderr_writer
stderr_writer.write("x" * 500_000 + "\\n")
assert not stderr_writer.flush(0.1)
"""


@pytest.mark.slow
def test_a_process_ends_while_standard_error_is_blocked() -> None:
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(
        [sys.executable, "-c", PAUSED], stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.wait(30) == 0  # the pipe is never read; Python waits for its lock


def test_a_file_does_not_grow_beyond_its_bound(
    writer: StandardErrorWriter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "output.log"
    file.write_text("of a process before: 32 bytes..\n")
    with file.open("a", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        writer.limit(50)
        for number in range(100):
            writer.write(f"line {number}..\n")
        assert writer.flush(PATIENCE)
    assert file.read_text("utf-8").splitlines() == [
        "of a process before: 32 bytes..",
        "line 0..",
        "line 1..",
        "sapwood: later output is not kept: the file has reached its bound",
    ]
