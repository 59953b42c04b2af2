"""Names the functions and lines in the backtrace of a crash."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

from sapwood.code.runner.stack_reader import STACK
from sapwood.code.symbolise import symbolise
from sapwood.core.errors import RunnerCrashError, TimeLimitError
from sapwood.core.failures import log_failure

BACKTRACE = "backtrace"
"""Title of the detail that holds the backtrace."""

_CALLERS = ("libffi.so", "/_ctypes.")
"""Where a native backtrace leaves the user's code."""

_PYTHON = "Fatal Python error"
"""Begins what Python adds below the native frames."""


def name_crash_site(error: BaseException, debug_files: Mapping[str, Path]) -> None:
    """Put function, file and line into the native frames of an error that has some.

    Debug information may be damaged in any way; then the error stays as it is.

    Args:
        error: Any error; only crashes of runners in native code, and calls that took too long, are
            changed.
        debug_files: The file with debug information of each library, by the library's path.
    """
    if not isinstance(error, RunnerCrashError | TimeLimitError) or not debug_files:
        return
    try:
        if isinstance(error, RunnerCrashError):
            _name(error, debug_files)
        elif STACK in error.details:
            error.details[STACK] = symbolise(error.details[STACK], debug_files)
    except Exception as exception:  # noqa: BLE001 - whoever waits must get the error
        log_failure("naming the place of a crash", exception)


def _name(error: RunnerCrashError, debug_files: Mapping[str, Path]) -> None:
    native = _frames_of_user(error.details.get(BACKTRACE, ""))
    if not native:
        return
    named = symbolise("\n".join(native), debug_files).splitlines()
    # Frames above the user's own belong to the C library: abort() and the like.
    own = [new for old, new in zip(native, named, strict=True) if old != new]
    error.details[BACKTRACE] = "\n".join(_counted(named))
    site = own[0].rpartition("(")[2].rstrip(")") if own else ""
    if ":" in site:
        known = [part for part in error.where.split(", ") if part not in {"", site}]
        error.where = ", ".join([site, *known])


def _frames_of_user(backtrace: str) -> list[str]:
    """Return the native frames above the one that called them from Python.

    A thread of the user's has no such frame, and a deep recursion has too many before it.
    """
    frames: list[str] = []
    for line in backtrace.splitlines():
        if line.startswith(_PYTHON) or any(caller in line for caller in _CALLERS):
            return frames
        frames.append(line)
    return []


def _counted(frames: list[str]) -> Iterator[str]:
    """Yield each frame once, with the number of times that it comes one after the other."""
    for frame, same in itertools.groupby(frames):
        times = len(list(same))
        yield frame if times == 1 else f"{frame}, {times} times"
