"""How much memory processes really take: proportional set sizes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def pss(pid: int) -> int:
    """Return the proportional set size of a process in bytes.

    Pages that several processes share count by their share, so sums over processes are right.
    """
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/{pid}/smaps_rollup has no Pss line")


def total_pss(pids: Iterable[int]) -> int:
    """Return the proportional set size of several processes together, in bytes."""
    return sum(pss(pid) for pid in pids)


def descendants(pid: int | None = None) -> list[int]:
    """Return the ids of all living processes below a process (this one by default)."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                # The name in parentheses may hold spaces; the parent's id stands after it.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while we looked
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    pending = [pid or os.getpid()]
    while pending:
        below = parents.get(pending.pop(), [])
        found += below
        pending += below
    return found
