"""What this machine offers and what it lacks, with the way to get it: ``sapwood node check``."""

from __future__ import annotations

import html
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import msgspec

from sapwood.code.installed_tools import Found, compiler_items, library_items
from sapwood.code.machine_kind import processor_model
from sapwood.environment.cores import usable_cores
from sapwood.environment.memory import available_memory, total_memory
from sapwood.environment.settings import Settings
from sapwood.environment.units import describe_size

Status = Literal["ok", "warning", "missing"]

MIN_MEMORY = 512 * 2**20
"""Bytes of free memory below which a small cluster already is at risk."""

MIN_DISK = 512 * 2**20
"""Bytes of free disk below which builds are at risk."""

MIN_FILES = 1024
"""Open files below which a cluster of a few hundred agents does not fit."""

MIN_PROCESSES = 512
"""Processes below which a cluster of a hundred agents does not fit."""


class PlatformItem(msgspec.Struct, frozen=True):
    """One thing that was looked at.

    Attributes:
        group: What it belongs to, for example ``"memory"``.
        name: What it is.
        value: The finding, for people.
        status: ``ok``; ``warning``: works, but may not be enough; ``missing``: something that
            Sapwood can use is not there.
        hint: What to do about it; empty when it is ok.
    """

    group: str
    name: str
    value: str
    status: Status = "ok"
    hint: str = ""


class PlatformReport(msgspec.Struct, frozen=True):
    """All that was looked at, in the order in which it is shown."""

    items: tuple[PlatformItem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is missing; warnings may remain."""
        return all(item.status != "missing" for item in self.items)

    def find(self, group: str, name: str) -> PlatformItem | None:
        """Return an item by group and name; None if it was not looked at."""
        return next((i for i in self.items if (i.group, i.name) == (group, name)), None)

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in msgspec.structs.astuple(i))
            for i in self.items
        )
        return f"<table>{rows}</table>"


def check_platform(
    settings: Settings | None = None, devices: Callable[[], Iterable[Found]] = tuple
) -> PlatformReport:
    """Look at this machine as this process may use it.

    Args:
        settings: The configuration; the folder of the build cache is looked at.
        devices: Looks for GPUs; a room above this one knows how.

    Returns:
        The report. A machine without a GPU is in order.
    """
    settings = settings or Settings()
    looks: list[Callable[[], list[PlatformItem]]] = [
        _processor,
        _memory,
        lambda: [_disk("build cache", settings.cache.path())],
        lambda: [PlatformItem("compiler", *found) for found in compiler_items()],
        lambda: [PlatformItem("gpu", *found) for found in devices()],
        _limits,
        lambda: [PlatformItem("python", *found) for found in library_items()],
    ]
    return PlatformReport(tuple(item for look in looks for item in look()))


def _processor() -> list[PlatformItem]:
    cores, there = usable_cores(), os.cpu_count() or 1
    text = f"{cores} of {there}" if cores < there else str(cores)
    return [
        PlatformItem("processor", "architecture", os.uname().machine),
        PlatformItem("processor", "model", processor_model()),
        PlatformItem("processor", "usable cores", text),
        PlatformItem("processor", "kernel", f"{os.uname().sysname} {os.uname().release}"),
    ]


def _memory() -> list[PlatformItem]:
    free = available_memory()
    low = free < MIN_MEMORY
    return [
        PlatformItem("memory", "total", describe_size(total_memory())),
        PlatformItem(
            "memory",
            "available",
            describe_size(free),
            "warning" if low else "ok",
            "end other programs, or use fewer agents" if low else "",
        ),
        _disk("/dev/shm", Path("/dev/shm"), group="memory"),  # noqa: S108 - looked at, not written
    ]


def _disk(name: str, path: Path, group: str = "disk") -> PlatformItem:
    folder = path
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        status = os.statvfs(folder)
    except OSError as error:
        return PlatformItem(group, name, f"{path}: {error.strerror}", "warning", "check the path")
    free = status.f_bavail * status.f_frsize
    value = f"{describe_size(free)} free at {path}"
    if not os.access(folder, os.W_OK):
        return PlatformItem(group, name, value, "warning", f"{folder} is not writable")
    if free < MIN_DISK:
        return PlatformItem(group, name, value, "warning", "free space there")
    return PlatformItem(group, name, value)


def _limits() -> list[PlatformItem]:
    import resource  # noqa: PLC0415 - only this check needs it

    looks = (
        ("open files", resource.RLIMIT_NOFILE, MIN_FILES, "ulimit -n 4096"),
        ("processes", resource.RLIMIT_NPROC, MIN_PROCESSES, "ulimit -u 4096"),
    )
    items = []
    for name, which, enough, command in looks:
        soft, hard = resource.getrlimit(which)
        low = soft != resource.RLIM_INFINITY and soft < enough
        items.append(
            PlatformItem(
                "limits",
                name,
                f"{_limit_text(soft)} (at most {_limit_text(hard)})",
                "warning" if low else "ok",
                f"{command}; more than {enough} are needed for large clusters" if low else "",
            )
        )
    return items


def _limit_text(limit: int) -> str:
    return "unlimited" if limit < 0 or limit >= sys.maxsize else str(limit)
