"""Holds a command that must not outlive the process which started it.

It runs as a separate process, by the text of this file, so it may use the standard library only.
The command ends (``SIGTERM``) when standard input ends, which is when the client closes it or is
killed, and when this process is killed itself.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading

PATIENCE = 1.0
"""Seconds that the command may take to end, and again after ``SIGTERM``. A granted ``salloc``
ends unasked: its own command reads the same standard input."""

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run the command of the arguments; return its exit code."""
    holder = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def end_with_holder() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != holder:
            os._exit(1)

    # There is one thread yet, and this one starts the command: it lives as long as the process.
    command = subprocess.Popen(sys.argv[1:], stdin=0, preexec_fn=end_with_holder)  # noqa: PLW1509

    def watch() -> None:
        while os.read(0, 4096):
            pass
        for end in (command.terminate, command.kill):
            with contextlib.suppress(subprocess.TimeoutExpired):
                command.wait(PATIENCE)
            end()

    threading.Thread(target=watch, daemon=True).start()
    return command.wait()


if __name__ == "__main__":
    status = main()
    os._exit(status if status >= 0 else 128 - status)
