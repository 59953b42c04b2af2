"""What the end of a runner process means."""

import signal

from sapwood.contexts.process import describe_status
from sapwood.core.errors import MemoryLimitError, RunnerCrashError, SapwoodError


def crash_error(function: str, status: int, output: str, *, memory_limited: bool) -> SapwoodError:
    """Return the error for a runner that ended in the middle of a call.

    Args:
        function: What it ran.
        status: Exit code, or minus the signal's number.
        output: What it had printed in this call.
        memory_limited: Whether its memory had a limit.
    """
    details = {"output": output} if output.strip() else {}
    if status == -signal.SIGKILL and memory_limited:
        return MemoryLimitError(
            f"{function}: the runner was killed, probably for its memory", details=details
        )
    return RunnerCrashError(
        f"{function}: the runner {describe_status(status)}",
        hint=_hint(status),
        details=details,
    )


def _hint(status: int) -> str:
    hints = {
        -signal.SIGSEGV: "an access outside an array, or a pointer that is not valid",
        -signal.SIGABRT: "abort() or a failed assert; the output below says more",
        -signal.SIGKILL: "somebody, perhaps the kernel for want of memory, killed it",
        -signal.SIGFPE: "an integer division by zero",
    }
    return hints.get(status, "user code ended the process")
