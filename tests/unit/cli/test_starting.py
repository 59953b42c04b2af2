from __future__ import annotations

import io
import subprocess
import sys

import pytest

from sapwood.cli import starting


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_one_line_that_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    starting.begin(["run", "examples/pi"])
    starting.say("starting 4 agents")
    starting.clear()
    starting.clear()
    first, second, rest = terminal.getvalue().split("\r\x1b[K")[1:]
    assert (first, second, rest) == ("sapwood: starting …", "sapwood: starting 4 agents …", "")


def test_with_verbose_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    starting.begin(["lizard", "run", "folder", "-v"])
    starting.say("loading")
    starting.clear()
    assert shown.getvalue() == "sapwood: starting\nsapwood: loading\n"


@pytest.mark.parametrize(
    "words", [[], ["--help"], ["build", "x"], ["run", "x", "--json"], ["run", "x", "-q"]]
)
def test_other_commands_show_nothing(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    starting.begin(words)
    starting.say("loading")
    starting.clear()
    assert terminal.getvalue() == ""


def test_nothing_large_is_imported_before_the_first_line() -> None:
    code = (
        "import sys; from sapwood.cli import entry, starting\n"
        "print(sorted({'typer', 'rich', 'numpy', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
