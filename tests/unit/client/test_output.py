import contextvars
import io
import sys
import threading

import pytest

from sapwood.client.output import MAX_LINE, OutputPrinter
from sapwood.environment.standard_error import stderr_writer


def test_lines_are_shown_whole_with_their_agent(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter()
    printer.take(1, b"one\ntw")
    printer.take(2, b"other\n")
    printer.take(1, b"o\n")
    printer.flush()
    shown = capsys.readouterr()
    assert shown.err == "agent 1: one\nagent 2: other\nagent 1: two\n"
    assert shown.out == ""


def test_a_line_without_end_is_shown_up_to_its_bound(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(1)
    for _ in range(40):
        printer.take(1, b"x" * MAX_LINE)
    printer.take(1, b"the end\nnext\n")
    printer.flush()
    cut, after = capsys.readouterr().err.splitlines()
    assert cut == "agent 1: " + "x" * (MAX_LINE - 1) + "…"
    assert after == "agent 1: next"


def test_of_a_progress_bar_the_last_state_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(1)
    for percent in range(101):
        printer.take(1, f"\r{percent:3} % {'#' * 300}".encode())
    printer.take(1, b"\r\n")
    printer.take(1, b"of Windows\r\n")
    printer.flush()
    assert capsys.readouterr().err == f"agent 1: 100 % {'#' * 300}\nagent 1: of Windows\n"


def test_letters_that_arrive_in_two_parts_are_whole(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(1)
    for byte in "Grüße 😀\n".encode():
        printer.take(1, bytes([byte]))
    printer.flush()
    assert capsys.readouterr().err == "agent 1: Grüße 😀\n"


def test_bytes_that_are_no_text_are_shown_as_well_as_they_can_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = OutputPrinter(1)
    printer.take(1, b"\xff\xfe ok\n")
    printer.flush()
    assert capsys.readouterr().err.endswith(" ok\n")


def test_lines_belong_to_the_context_of_the_last_call(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = contextvars.ContextVar("cell", default="none")

    class Notebook(io.StringIO):
        def write(self, text: str) -> int:
            return super().write(f"[{cell.get()}] {text}")

    shown = Notebook()
    monkeypatch.setattr(sys, "stderr", shown)
    printer = OutputPrinter(1)

    def call_in(name: str) -> None:
        cell.set(name)
        printer.follow()

    for name in ("first", "second"):
        contextvars.copy_context().run(call_in, name)
        thread = threading.Thread(target=printer.take, args=(1, b"hello\n"))  # as the loop's is
        thread.start()
        thread.join()
    printer.flush()
    assert shown.getvalue() == "[first] agent 1: hello\n[second] agent 1: hello\n"


def test_the_same_line_of_several_agents_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(4)
    for rank in (1, 2, 4):
        printer.take(rank, b"begin\nrank %d\nend\n" % rank)
    printer.take(3, b"begin\n")
    printer.take(5, b"begin\n")
    printer.take(0, b"begin\n")
    printer.flush()
    assert capsys.readouterr().err.splitlines() == [
        "client, agent[1-4], junction 5: begin",
        "agent 1: rank 1",
        "agent 1: end",
        "agent 2: rank 2",
        "agent 2: end",
        "agent 4: rank 4",
        "agent 4: end",
    ]


def test_the_lines_of_one_agent_stay_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    printer = OutputPrinter(2)
    printer.take(1, b"a\nb\na\n")
    printer.take(2, b"b\na\na\n")
    printer.flush()
    shown = capsys.readouterr().err.splitlines()
    for rank, lines in ((1, "aba"), (2, "baa")):
        mine = [line[-1] for line in shown if f"agent {rank}" in line or "agent[1-2]" in line]
        assert "".join(mine) == lines


def test_what_waits_is_shown_after_a_moment_and_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = OutputPrinter(2)
    printer.take(1, b"soon\n")
    timer = printer._timer
    assert timer is not None
    timer.join()
    assert stderr_writer.flush()
    assert capsys.readouterr().err == "agent 1: soon\n"
    printer.take(2, b"no end")
    printer.close()
    assert capsys.readouterr().err == "agent 2: no end\n"
