"""What the end of a runner process means."""

import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sapwood.contexts.process import describe_status
from sapwood.core.errors import MemoryLimitError, RunnerCrashError, SapwoodError

if TYPE_CHECKING:
    from sapwood.code.call_record import BadAccess

ATTEMPTS = 3
"""How often a call is started before it fails, if its runner is killed each time."""

KILLS = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP, -signal.SIGINT})
"""Exit statuses by signals that others send: operators, supervisors, a kernel without memory.

User code can send them to itself, and the status does not show the sender. So a call is given
up after :data:`ATTEMPTS`.
"""


_LEAVING = "return from the function or raise an exception; exit() and os._exit() end the process"


def crash_error(
    function: str, status: int, texts: Mapping[str, str], *, memory_limited: bool, kills: int = 1
) -> SapwoodError:
    """Return the error for a runner that ended in the middle of a call.

    Args:
        function: What it ran.
        status: Exit code, or minus the signal's number.
        texts: What it left behind, by title: its output, its backtrace.
        memory_limited: Whether its memory had a limit.
        kills: How many runners were killed in this call, this one included.
    """
    access, texts = _access(texts)
    details = {title: _users_part(text) for title, text in texts.items() if text.strip()}
    times = f", {kills} times in a row" if kills > 1 else ""
    if status == -signal.SIGKILL and memory_limited:
        return MemoryLimitError(
            f"the runner was killed in {function}{times}, probably for its memory", details=details
        )
    if access is not None:
        ended = describe_status(status)
        return RunnerCrashError(
            f"{access.what}; its runner {ended if status >= 0 else f'was {ended}'}",
            where="" if "backtrace" in details else access.where,  # that has the very line
            hint=access.hint,
            details=details,
        )
    return RunnerCrashError(
        f"{function} ended its process with status {status}"
        if status >= 0
        else f"the runner was {describe_status(status)} in {function}{times}",
        hint=_hint(status, memory_limited=memory_limited),
        details=details,
    )


def _access(texts: Mapping[str, str]) -> tuple["BadAccess | None", dict[str, str]]:
    """Take from the texts what the crash handler says of an access to memory, if it does."""
    from sapwood.code.call_record import take_access  # noqa: PLC0415 - ctypes, only after a crash

    found: BadAccess | None = None
    rest = dict(texts)
    for title, text in texts.items():
        one, rest[title] = take_access(text)
        found = found or one
    return found, rest


def _users_part(text: str) -> str:
    """Cut off the frames of a Python stack that belong to the runner itself."""
    folder = os.path.dirname(__file__)  # noqa: PTH120 - agents are spared pathlib
    head, found, _ = text.partition(f'  File "{folder}/child.py"')
    return head.rstrip() + "\n" if found else text


def _hint(status: int, *, memory_limited: bool) -> str:
    hints = {
        -signal.SIGSEGV: "an access outside an array, or a pointer that is not valid",
        -signal.SIGABRT: "abort() or a failed assert; the output below says more",
        -signal.SIGKILL: "a user or the kernel (out of memory) killed it",
        -signal.SIGFPE: "an integer division by zero",
    }
    hint = hints.get(status, _LEAVING if status >= 0 else "user code ended the process")
    if memory_limited and status in (-signal.SIGSEGV, -signal.SIGABRT):
        hint += "; or limits.memory is reached, and malloc returned NULL or new threw"
    return hint
