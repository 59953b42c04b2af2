"""Ends all processes that carry a mark in their environment: what a command began ends with it.

A process may leave its group and its session, but it hands its environment on. This module imports
nothing of Sapwood: it also runs as a separate process, which outlives a daemon that is killed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

VARIABLE = "SAPWOOD_COMMAND"
"""The variable that has the mark; a command within a command has the marks of both."""

PATIENCE = 5.0
"""Seconds after which processes that cannot be killed are left to the kernel."""

PAUSE = 0.005
"""Seconds between two looks at what is left."""


def marked(mark: str, session: int = 0) -> list[int]:
    """Return the processes that live and carry a mark.

    Args:
        mark: Part of the variable's value.
        session: The processes of this session count as well; 0 for none.
    """
    wanted = mark.encode()
    variable = b"\0" + VARIABLE.encode() + b"="
    found: list[int] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - there are thousands
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            state, _, owner = _state(name)
            if state in "ZX":
                continue
            if session and owner == session:
                found.append(int(name))
                continue
            with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123 - as above
                environment = b"\0" + file.read()
        except (OSError, IndexError, ValueError):  # it is gone, or another user's
            continue
        _, _, rest = environment.partition(variable)
        if wanted in rest.partition(b"\0")[0]:
            found.append(int(name))
    return found


def sweep(mark: str, session: int = 0) -> None:
    """Kill all processes that carry a mark, and wait until they are gone.

    Those that became children of this process are reaped, except the leader of the session.
    """
    end = time.monotonic() + PATIENCE
    killed: set[int] = set()
    while (found := marked(mark, session)) and time.monotonic() < end:
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(PAUSE)
    for pid in killed.union(_zombies(session)) - {session}:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _zombies(session: int) -> list[int]:
    """Return the children of this process that have ended and were of a session."""
    found: list[int] = []
    for name in os.listdir("/proc") if session else ():  # noqa: PTH208 - as above
        if name.isdecimal():
            with contextlib.suppress(OSError, IndexError, ValueError):
                if _state(name) == ("Z", os.getpid(), session):
                    found.append(int(name))
    return found


def main() -> None:
    """Wait until standard input ends, then end all processes with the mark in the arguments."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep(sys.argv[1])


def _state(name: str) -> tuple[str, int, int]:
    """Return the state of a process, its parent, and the session that it is in."""
    with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as above
        fields = file.read().rpartition(")")[2].split()
    return fields[0], int(fields[1]), int(fields[3])


if __name__ == "__main__":
    main()
