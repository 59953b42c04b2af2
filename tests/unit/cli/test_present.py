from __future__ import annotations

import io
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.cli import present
from sapwood.cli.present import answers_alone, print_json


class Terminal(io.StringIO):
    """Standard output on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("columns", [60, 160])
def test_tables_are_as_wide_as_the_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert present.output_console().width == 80
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    made = present.FittingTable("", ("name", "errors"), [("x" * 90, "1")], ("errors",))
    present.write(made)
    assert ("columns hidden: errors" in terminal.getvalue()) == (columns == 60)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 µs"),
        (0.00042, "420 µs"),
        (0.0009996, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.99951, "1.00 s"),
        (59.94, "59.9 s"),
        (100, "1 min 40 s"),
        (3599.6, "1 h 00 min"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert present.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.25, "0.25"), (999, "999"), (999.6, "1.00 k"), (8_123_456, "8.12 M")],
)
def test_count(value: float, text: str) -> None:
    assert present.count(value) == text


@given(st.floats(0, 1e17))
@pytest.mark.slow
def test_a_count_is_short_and_within_half_a_percent(value: float) -> None:
    text = present.count(value)
    match = re.fullmatch(r"([\d.]+)(?: ([kMGTP]))?", text)
    assert match is not None
    number, suffix = match.groups()
    factor = 1000 ** " kMGTP".index(suffix or " ")
    assert len(text) <= 7
    assert float(number) * factor == pytest.approx(value, rel=0.006, abs=0.006)


def test_only_answers_are_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with answers_alone():
        sys.stdout.write("said\n")
        print_json({"a": 1}, one_line=True)
    print_json([2], one_line=True)
    sys.stdout.write("told\n")
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ('{"a":1}\n[2]\ntold\n', "said\n")
