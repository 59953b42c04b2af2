"""``sapwood run --watch``: each edit is built and runs; a run that has begun keeps its version."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

COMMAND = [sys.executable, "-c", "from sapwood.cli.main import main; main()"]
PATIENCE = 60.0
EXPECTED = float((np.arange(1000.0) ** 2).sum())


class Watched:
    """A ``sapwood run --watch`` under way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def answer(self) -> dict[str, Any]:
        """Return the next run's answer, or its error."""
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def hears(self, text: str) -> None:
        """Read stderr until a line has a text."""
        assert self.process.stderr is not None
        while text not in (line := self.process.stderr.readline()):
            assert line, f"it ended without {text!r}"

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=PATIENCE)
        return self.process.returncode


Start = Callable[..., Watched]
Edit = Callable[[Path, str], None]


@pytest.fixture
def start(squares: Path, environment: dict[str, str]) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*options: str) -> Watched:
        process = subprocess.Popen(
            [*COMMAND, "run", str(squares), "--agents", "2", "--watch", "--json", *options],
            env={**environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(process)
        return Watched(process)

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.row("A-CODE-2")
def test_an_edit_is_built_and_runs_again(start: Start, squares: Path, edit: Edit) -> None:
    source = squares / "squares.c"
    text = source.read_text()
    watched = start()
    assert watched.answer()["result"] == {"total": EXPECTED}
    watched.hears("waiting for an edit")
    edit(source, text.replace("+= x[i]", "+= 2 * x[i]"))
    assert watched.answer()["result"] == {"total": 2 * EXPECTED}
    watched.hears("waiting for an edit")
    edit(source, text.replace("x[i] * x[i];", "y;"))
    failed = watched.answer()
    assert failed["error"]["code"] == "SW122"
    assert "squares.c" in failed["error"]["where"]
    watched.hears("waiting for an edit")
    edit(source, text.replace("+= x[i]", "+= 3 * x[i]"))
    assert watched.answer()["result"] == {"total": 3 * EXPECTED}
    assert watched.interrupt() == 130


@pytest.mark.row("A-CODE-2")
def test_a_run_that_has_begun_keeps_its_version(
    start: Start, squares: Path, tmp_path: Path, edit: Edit
) -> None:
    gate, entered = tmp_path / "gate", tmp_path / "entered"
    os.mkfifo(entered)
    head = "#include <fcntl.h>\n#include <sys/stat.h>\n#include <unistd.h>\n"
    waits = (
        "struct stat s; int f;\n"
        f'while (stat("{gate}", &s)) {{\n'
        f'  if ((f = open("{entered}", O_WRONLY | O_NONBLOCK)) >= 0) write(f, "x", 1), close(f);\n'
        "  usleep(1000);\n}\n*total = 0;"
    )
    source = squares / "squares.c"
    text = source.read_text()
    source.write_text(head + text.replace("*total = 0;", waits))
    watched = start()
    with entered.open() as told:
        assert told.read(1)  # an agent is inside the map of the first version
    edit(source, text.replace("+= x[i]", "+= 2 * x[i]"))
    edit(squares / "squares.py", (squares / "squares.py").read_text() + "# edited\n")
    gate.touch()
    assert watched.answer()["result"] == {"total": EXPECTED}
    assert watched.answer()["result"] == {"total": 2 * EXPECTED}
    assert watched.interrupt() == 130
