"""The stack of a runner by py-spy, if that is installed: native frames of all libraries.

It reads the memory of the process from outside, so it needs no signal and nothing of the runner.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from sapwood.comm.loop import Loop

PATIENCE: Final = 3.0
"""Seconds that it has: it reads the symbols of all libraries."""

LOOK: Final = 0.01
"""Seconds between two looks at whether it has ended."""

MAX_BYTES: Final = 4 * 2**20
"""Bytes of its answer that are read."""

MAX_PROBLEM: Final = 200
"""Characters of its error message that are kept."""

OnAnswer = Callable[[bytes, str], None]
"""Gets the answer, or nothing and why there is none."""


def installed() -> str:
    """Return the command, of this interpreter's environment or on the path; empty without it."""
    beside = os.path.dirname(sys.executable)  # noqa: PTH120 - agents have no pathlib
    path = os.pathsep.join((beside, os.environ.get("PATH", os.defpath)))
    return shutil.which("py-spy", path=path) or ""


class PySpy:
    """One dump of a process.

    Args:
        command: The file of py-spy.
        pid: The process.
        loop: Event loop of the agent.
        on_answer: Gets the answer within :data:`PATIENCE`.
    """

    def __init__(self, command: str, pid: int, loop: Loop, on_answer: OnAnswer) -> None:
        self._loop = loop
        self._on_answer = on_answer
        self._until = loop.time() + PATIENCE
        self._output, self._errors = os.memfd_create("output"), os.memfd_create("errors")
        words = [command, "dump", "--native", "--json", "--pid", str(pid)]
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._errors
            )
        except OSError as error:
            self._answer(b"", f"{command} cannot be started: {error.strerror}")
            return
        loop.call_later(LOOK, self._look)

    def _look(self) -> None:
        status = self._process.poll()
        if status is None and self._loop.time() < self._until:
            self._loop.call_later(LOOK, self._look)
        elif status is None:
            self._process.kill()
            self._process.wait()
            self._answer(b"", f"py-spy took longer than {PATIENCE:g} s")
        elif status:
            said = os.pread(self._errors, 4096, 0).decode("utf-8", "replace")
            self._answer(b"", _why(said, status))
        else:
            self._answer(os.pread(self._output, MAX_BYTES, 0), "")

    def _answer(self, data: bytes, problem: str) -> None:
        os.close(self._output)
        os.close(self._errors)
        self._on_answer(data, problem)


def _why(said: str, status: int) -> str:
    """Return why it has failed, by what it wrote and its exit status."""
    if "Permission denied" in said or "Operation not permitted" in said:
        return "py-spy may not read the process (ptrace is not permitted)"
    lines = (line.partition("Error: ")[2] or line for line in said.split("\n") if line.strip())
    return f"py-spy failed: {next(lines, f'it ended with status {status}').strip()[:MAX_PROBLEM]}"
