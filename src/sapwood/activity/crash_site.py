"""Names the functions and lines in the backtrace of a crash."""

from collections.abc import Mapping
from pathlib import Path

from sapwood.code.symbolise import symbolise
from sapwood.core.errors import RunnerCrashError

BACKTRACE = "backtrace"
"""Title of the detail that holds the backtrace."""

_CALLERS = ("libffi.so", "/_ctypes.")
"""Where a native backtrace leaves the user's code."""


def name_crash_site(error: BaseException, debug_files: Mapping[str, Path]) -> None:
    """Put function, file and line into the backtrace of an error that has one.

    Args:
        error: Any error; only crashes of runners in native code are changed.
        debug_files: The file with debug information of each library, by the library's path.
    """
    if not isinstance(error, RunnerCrashError) or not debug_files:
        return
    native = _frames_of_user(error.details.get(BACKTRACE, ""))
    if not native:
        return
    named = symbolise("\n".join(native), debug_files).splitlines()
    error.details[BACKTRACE] = "\n".join(named)
    place = named[0].rpartition("(")[2].rstrip(")")
    if ":" in place:
        error.where = f"{place}, {error.where}" if error.where else place


def _frames_of_user(backtrace: str) -> list[str]:
    """Return the native frames above the one that called them from Python."""
    frames: list[str] = []
    for line in backtrace.splitlines():
        if any(caller in line for caller in _CALLERS):
            return frames
        frames.append(line)
    return []
