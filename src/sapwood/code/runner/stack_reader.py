"""An agent reads the stack of its runner, whatever that does: Python frames by a signal.

The runner's handler of the signal is faulthandler's, in C: it writes also while native code holds
the interpreter. While the handler runs, the kernel blocks the signal in that thread, so the agent
sees in ``/proc`` when all has been written. Nothing is sent to a process that would die of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from sapwood.comm.loop import Loop, Timer
from sapwood.core.failures import log_failure

if TYPE_CHECKING:
    from sapwood.code.runner.output import OutputCapture

STACK_SIGNAL: Final = signal.SIGRTMAX - 4
"""What a runner writes its stack for; programs hardly use it."""

SAMPLE_SIGNAL: Final = signal.SIGRTMAX - 5
"""What a runner writes the stack of one thread for. Reading the frames of another thread that
executes Python may fail, and samples are read often."""

STACK: Final = "stack"
"""Title of the detail of a ``TimeLimitError`` that says where user code was."""

PATIENCE: Final = 1.0
"""Seconds that a runner has to write its stack."""

LOOK: Final = 0.002
"""Seconds between two looks at whether it has."""

QUIET: Final = 0.05
"""Seconds without further output, where another thread than the main one may have the signal."""

ENDED: Final = "its runner has ended"
"""Why a stack cannot be read."""


class StackText(NamedTuple):
    """What a runner wrote.

    Attributes:
        text: Native frames, and the Python frames of each thread, as far as they arrived.
        problem: Why it is not all; empty if it is.
        state: ``stopped`` or ``silent`` if the runner did not answer, else empty.
    """

    text: str
    problem: str = ""
    state: str = ""


OnStack = Callable[[StackText], None]


class ProcessSignals(NamedTuple):
    """What the kernel says of a process, as far as it matters here.

    Attributes:
        state: One letter, as ``ps`` shows it.
        is_caught: Whether it has a handler for the signal.
        is_pending: Whether the signal has not been delivered.
        is_blocked: Whether its main thread blocks the signal: the handler runs, for example.
    """

    state: str
    is_caught: bool
    is_pending: bool
    is_blocked: bool


def signals_of(pid: int, number: int = STACK_SIGNAL) -> ProcessSignals | None:
    """Return what the kernel says of a process; None if it is gone.

    Args:
        pid: The process.
        number: The signal.
    """
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - agents have no pathlib
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None

    def value(name: str) -> str:
        _, _, rest = text.partition(f"\n{name}:\t")  # a dictionary of all lines takes longer
        return rest.partition("\n")[0]

    sets = {name: int(value(name) or "0", 16) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigCgt")}
    bit = 1 << (number - 1)
    return ProcessSignals(
        value("State")[:1] or "?",
        bool(sets["SigCgt"] & bit),
        bool((sets["SigPnd"] | sets["ShdPnd"]) & bit),
        bool(sets["SigBlk"] & bit),
    )


class StackReader:
    """Reads the stack of one runner at a time.

    Args:
        loop: Event loop of the agent.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiting: list[OnStack] = []
        self._timer: Timer | None = None
        self._on_sample: OnStack | None = None
        self._after_sample: Callable[[], object] = _nothing
        self._resume: Callable[[], object] = _nothing

    def sample(self, pid: int, capture: OutputCapture, on_sample: OnStack) -> None:
        """Have a runner write the stack of its main thread, unless it is writing one.

        Args:
            pid: The runner.
            capture: Reads what it writes to its pipe for crashes.
            on_sample: Gets the stack, within :data:`PATIENCE`.
        """
        if self._waiting or self._on_sample is not None:
            return
        self._on_sample = on_sample
        capture.pause()
        self._resume = capture.resume
        self._look(_Reading(pid, capture, self._loop.time() + PATIENCE, SAMPLE_SIGNAL))

    def read(self, pid: int, capture: OutputCapture, on_stack: OnStack) -> None:
        """Have a runner write its stack; callers in the meantime get the same one.

        Args:
            pid: The runner.
            capture: Reads what it writes to its pipe for crashes.
            on_stack: Gets the stack, within :data:`PATIENCE`.
        """
        self._waiting.append(on_stack)
        if len(self._waiting) == 1:
            begin = partial(self._begin, pid, capture)
            if self._on_sample is not None:
                self._after_sample = begin
            else:
                begin()

    def _begin(self, pid: int, capture: OutputCapture) -> None:
        reading = _Reading(pid, capture, self._loop.time() + PATIENCE)
        self._timer = self._loop.call_later(0.0, self._look, reading)

    def runner_ended(self) -> None:
        """Answer whoever waits: the runner is gone."""
        self._on_sample, self._after_sample = None, _nothing
        if self._waiting or self._timer is not None:
            self._finish(StackText("", ENDED))

    def _look(self, reading: _Reading) -> None:
        try:
            found = reading.look(self._loop.time())
        except Exception as error:  # noqa: BLE001 - a call that is too long is killed in any case
            log_failure("reading the stack of a runner", error)
            found = StackText("", "reading it failed")
        if found is None:
            self._timer = self._loop.call_later(LOOK, self._look, reading)
        else:
            self._finish(found)

    def _finish(self, found: StackText) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._on_sample is not None:
            on_sample, self._on_sample = self._on_sample, None
            self._resume()
            begin, self._after_sample = self._after_sample, _nothing
            on_sample(found)
            begin()
            return
        waiting, self._waiting = self._waiting, []
        for on_stack in waiting:
            on_stack(found)


class _Reading:
    """A stack that is being written."""

    def __init__(
        self, pid: int, capture: OutputCapture, until: float, number: int = STACK_SIGNAL
    ) -> None:
        self._pid = pid
        self._number = number
        self._capture = capture
        self._until = until
        self._sent = self._is_blocked_anyway = False
        self._size = 0
        self._since = 0.0

    def look(self, now: float) -> StackText | None:
        """Return the stack if it is there, or why it will not be; None if that is not known."""
        found = signals_of(self._pid, self._number)
        if found is None or found.state == "Z":
            return StackText("", ENDED)
        self._capture.drain()
        if self._sent and self._is_over(found, now):
            return self._taken()
        if found.state in "Tt":
            return self._taken("the process is stopped: kill -CONT PID continues it", "stopped")
        if now >= self._until:
            return self._taken(self._why_late(found), "silent" if self._sent else "")
        if not self._sent and found.is_caught:  # a runner that was forked just now has no handler
            return self._send(found)
        return None

    def _send(self, found: ProcessSignals) -> StackText | None:
        self._capture.begin()
        self._is_blocked_anyway = found.is_blocked
        try:
            os.kill(self._pid, self._number)
        except OSError as error:
            return StackText("", f"its runner cannot be sent a signal: {error.strerror}")
        self._sent = True
        return None

    def _is_over(self, found: ProcessSignals, now: float) -> bool:
        """Whether all has been written and read."""
        size = self._capture.size
        if found.is_pending or not size:
            return False
        if not self._is_blocked_anyway:
            return not found.is_blocked
        if size != self._size:
            self._size, self._since = size, now
        return now - self._since >= QUIET

    def _why_late(self, found: ProcessSignals) -> str:
        if not self._sent:
            return f"user code has replaced the handler of signal {self._number}"
        if found.state == "D":
            return "it is in a system call that cannot be interrupted, such as one for a disk"
        return f"it did not write its stack within {PATIENCE:g} s"

    def _taken(self, problem: str = "", state: str = "") -> StackText:
        text = self._capture.text()
        rest = without_sample(text) if self._number == SAMPLE_SIGNAL else ""
        self._capture.begin(rest)  # a later crash does not show it; one just now is kept
        return StackText(text, problem, state)


def _nothing() -> None:
    """Do nothing after a sample."""


def without_sample(text: str) -> str:
    r"""Return what a runner wrote before it crashed, without the sample that it wrote before.

    Example:
        >>> sample = "/lib/a.so(f+0x1)[0x7f]\nStack (most recent call first):\n  File one\n"
        >>> without_sample(sample + "Fatal Python error: Aborted\n\nStack (most recent call)")
        'Fatal Python error: Aborted\n\nStack (most recent call)'
    """
    lines = text.splitlines(keepends=True)
    at = next((at for at, line in enumerate(lines) if line.startswith("Stack (most ")), len(lines))
    if any("Fatal Python error" in line for line in lines[:at]):
        return text
    rest = at + 1
    while rest < len(lines) and lines[rest].startswith("  "):
        rest += 1
    return "".join(lines[rest:]) if at < len(lines) else text
