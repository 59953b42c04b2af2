import contextvars
import io
import sys
import threading

import pytest

from sapwood.client.output import MAX_LINE, OutputPrinter


def test_lines_are_shown_whole_with_their_agent(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter()
    printer.take(1, b"one\ntw")
    printer.take(2, b"other\n")
    printer.take(1, b"o\n")
    shown = capsys.readouterr()
    assert shown.err == "agent 1: one\nagent 2: other\nagent 1: two\n"
    assert shown.out == ""


def test_a_line_without_end_is_shown_in_parts_of_bounded_length(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = OutputPrinter()
    printer.take(1, b"x" * (MAX_LINE + 1))
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "agent 1: " + "x" * MAX_LINE


def test_bytes_that_are_no_text_are_shown_as_well_as_they_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    OutputPrinter().take(1, b"\xff\xfe ok\n")
    assert capsys.readouterr().err.endswith(" ok\n")


def test_lines_belong_to_the_context_of_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = contextvars.ContextVar("cell", default="none")

    class Notebook(io.StringIO):
        def write(self, text: str) -> int:
            return super().write(f"[{cell.get()}] {text}")

    shown = Notebook()
    monkeypatch.setattr(sys, "stderr", shown)
    printer = OutputPrinter()

    def call_in(name: str) -> None:
        cell.set(name)
        printer.follow()

    for name in ("first", "second"):
        contextvars.copy_context().run(call_in, name)
        thread = threading.Thread(target=printer.take, args=(1, b"hello\n"))  # as the loop's is
        thread.start()
        thread.join()
    assert shown.getvalue() == "[first] agent 1: hello\n[second] agent 1: hello\n"
