"""Which machine this is: what decides whether two processes can map each other's memory."""

import os
from pathlib import Path


def boot_id() -> str:
    """Return a text that is equal for all processes on one machine since its last start."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def machine_id() -> str:
    """Return a text that is equal for two processes that can share memory.

    Same kernel boot, same process-id namespace (so that ``/proc/<pid>`` means the same), same
    user.
    """
    namespace = Path("/proc/self/ns/pid").readlink()
    return f"{boot_id()}/{namespace}/{os.geteuid()}"
