"""Launchers, which start processes on machines.

``sapwood.testing.launchers`` has the suite that a launcher must pass.
"""

from sapwood.contexts.launchers.base import (
    AllocatingLauncher,
    ForwardingLauncher,
    Launcher,
    LimitedLauncher,
)

__all__ = [
    "AllocatingLauncher",
    "ForwardingLauncher",
    "Launcher",
    "LimitedLauncher",
]
