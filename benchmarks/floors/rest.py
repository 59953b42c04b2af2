"""Waiting until a machine is at rest, so that a floor is not measured with what ended before it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

LOOK = 0.05
"""Seconds over which the cores are looked at."""

BUSY = 0.2
"""Cores that may be at work, of all together: the machine's own housekeeping."""

LIMIT = 1.0
"""Seconds after which a machine is taken to have other work, too."""


def wait_for_rest() -> None:
    """Wait until next to nothing runs, and say so if it does not come to that.

    Sessions that have ended a run give memory back and note what came for some tenths of a second.
    """
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        before = _worked()
        time.sleep(LOOK)
        if _worked() - before <= BUSY * LOOK:
            return
    print("the machine is not at rest: floors take longer, ratios look better", file=sys.stderr)


def _worked() -> float:
    """Return the seconds that all cores together have been at work since the machine's start."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    user, nice, system, _idle, _waiting, irq, soft = map(int, words[1:8])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")
