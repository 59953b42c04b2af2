"""An agent reads the stack of its runner, whatever that does: Python frames by a signal.

The runner's handler of the signal is faulthandler's, in C: it writes also while native code holds
the interpreter. While the handler runs, the kernel blocks the signal in that thread, so the agent
sees in ``/proc`` when all has been written. Nothing is sent to a process that would die of it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from sapwood.comm.loop import Loop, Timer
from sapwood.core.failures import log_failure

if TYPE_CHECKING:
    from sapwood.code.runner.output import OutputCapture

STACK_SIGNAL: Final = signal.SIGRTMAX - 4
"""What a runner writes its stack for; programs hardly use it."""

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

_BIT: Final = 1 << (STACK_SIGNAL - 1)


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


def signals_of(pid: int) -> ProcessSignals | None:
    """Return what the kernel says of a process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - agents have no pathlib
            known = {name: value.strip() for name, _, value in (one.partition(":") for one in file)}
    except (FileNotFoundError, ProcessLookupError):
        return None
    sets = {
        name: int(known.get(name, "0"), 16) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigCgt")
    }
    return ProcessSignals(
        known.get("State", "?")[:1],
        bool(sets["SigCgt"] & _BIT),
        bool((sets["SigPnd"] | sets["ShdPnd"]) & _BIT),
        bool(sets["SigBlk"] & _BIT),
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

    def read(self, pid: int, capture: OutputCapture, on_stack: OnStack) -> None:
        """Have a runner write its stack; callers in the meantime get the same one.

        Args:
            pid: The runner.
            capture: Reads what it writes to its pipe for crashes.
            on_stack: Gets the stack, within :data:`PATIENCE`.
        """
        self._waiting.append(on_stack)
        if len(self._waiting) == 1:
            reading = _Reading(pid, capture, self._loop.time() + PATIENCE)
            self._timer = self._loop.call_later(0.0, self._look, reading)

    def runner_ended(self) -> None:
        """Answer whoever waits: the runner is gone."""
        if self._waiting:
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
        waiting, self._waiting = self._waiting, []
        for on_stack in waiting:
            on_stack(found)


class _Reading:
    """A stack that is being written."""

    def __init__(self, pid: int, capture: OutputCapture, until: float) -> None:
        self._pid = pid
        self._capture = capture
        self._until = until
        self._sent = self._is_blocked_anyway = False
        self._size = 0
        self._since = 0.0

    def look(self, now: float) -> StackText | None:
        """Return the stack if it is there, or why it will not be; None if that is not known."""
        found = signals_of(self._pid)
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
            os.kill(self._pid, STACK_SIGNAL)
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
            return f"user code has replaced the handler of signal {STACK_SIGNAL}"
        if found.state == "D":
            return "it is in a system call that cannot be interrupted, such as one for a disk"
        return f"it did not write its stack within {PATIENCE:g} s"

    def _taken(self, problem: str = "", state: str = "") -> StackText:
        text = self._capture.text()
        self._capture.begin()  # a later crash does not show it
        return StackText(text, problem, state)
