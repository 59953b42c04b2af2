"""How much memory this process may still take: the machine's, or its control group's if less."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

UNLIMITED = 1 << 60
"""Bytes: control groups write "no limit" as a number larger than any machine."""


def available_memory(root: Path = Path("/")) -> int:
    """Return the bytes that this process can take before the kernel says no.

    Args:
        root: Where ``/proc`` and ``/sys`` are found (tests give their own folder).
    """
    free = _meminfo(root).get("MemAvailable", UNLIMITED)
    for limit, used in _group_limits(root):
        free = min(free, max(0, limit - used))
    return free


def total_memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory of the machine, or the limit of the control group if less."""
    total = _meminfo(root).get("MemTotal", UNLIMITED)
    for limit, _used in _group_limits(root):
        total = min(total, limit)
    return total


def group_folders(controller: str, root: Path = Path("/")) -> Iterator[Path]:
    """Yield the control-group folders that bind this process, innermost first.

    Args:
        controller: ``"memory"``, ``"cpu"`` or another controller, for version 1 hierarchies.
        root: Where ``/proc`` and ``/sys`` are found.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if not controllers:
            top = base
        elif controller in controllers.split(","):
            top = base / controllers
        else:
            continue
        folder = top / path.lstrip("/")
        while True:
            # In a container the path may be the host's: then only the top exists.
            if folder.is_dir():
                yield folder
            if folder == top:
                break
            folder = folder.parent


def _group_limits(root: Path) -> Iterator[tuple[int, int]]:
    for folder in group_folders("memory", root):
        for limit_name, used_name in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            limit = _number(folder / limit_name)
            if limit is None or limit >= UNLIMITED:
                continue
            used = _number(folder / used_name) or 0
            yield limit, max(0, used - _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    """Return the bytes of file cache in a control group: the kernel drops them when it must."""
    try:
        lines = (folder / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    stats = dict(line.split(maxsplit=1) for line in lines if " " in line)
    return int(stats.get("total_inactive_file", stats.get("inactive_file", "0")))


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _meminfo(root: Path) -> dict[str, int]:
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return {}
    values: dict[str, int] = {}
    for line in lines:
        name, _colon, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            values[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return values
