"""How many cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from sapwood.environment.memory import group_folders


def usable_cores(root: Path = Path("/")) -> int:
    """Return how many cores this process may use: affinity, and the control group's quota.

    Args:
        root: Where ``/proc`` and ``/sys`` are found (tests give their own folder).

    Example:
        >>> usable_cores() >= 1
        True
    """
    cores = float(len(os.sched_getaffinity(0)))
    for folder in group_folders("cpu", root):
        quota, period = _quota(folder)
        if quota > 0 and period > 0:
            cores = min(cores, quota / period)
    return max(1, int(cores))


def _quota(folder: Path) -> tuple[int, int]:
    """Return the time that a control group may run per period, microseconds; (0, 0): no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, _space, period = (folder / "cpu.max").read_text().strip().partition(" ")
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
    except OSError:
        return 0, 0
    return (int(quota), int(period)) if quota.isdigit() and period.isdigit() else (0, 0)
