"""Groups of nodes on the command line: ``@NAME``, ``@slurm:PARTITION`` and ``@./FILE``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.hostset import split_hosts
from sapwood.core.shown import shown
from sapwood.environment.configuration import SITE_FILE, user_file

SLURM_TIMEOUT: Final = 30.0
"""Seconds in which Slurm says which nodes a partition has."""

GROUPS: Final = "groups"
"""Name of the files of groups, beside the files of settings."""


def without_groups(text: str) -> str:
    """Return a set of nodes with the nodes of each group in the group's place.

    Args:
        text: The set: names, patterns and groups, such as ``n[1-3],@gpu``.

    Raises:
        ConfigurationError: A group is unknown, contains itself, or its file cannot be read.
        ResourceError: Slurm does not answer.

    Example:
        >>> without_groups("n[1-3,7],login")
        'n[1-3,7],login'
    """
    return ",".join(_members(text, ()))


def _members(text: str, inside: tuple[str, ...]) -> Iterator[str]:
    for part in split_hosts(text):
        if not part.startswith("@"):
            yield part
            continue
        name = part[1:]
        if name in inside:
            raise ConfigurationError(
                f"the group {shown(name)} contains itself", where=" and ".join(inside)
            )
        yield from _members(_group(name), (*inside, name))


def _group(name: str) -> str:
    kind, _, partition = name.partition(":")
    if kind == "slurm":
        return _nodes_of_slurm(partition)
    if "/" in name:
        return ",".join(_lines(Path(name)))
    files = [path for path in _files() if path.is_file()]
    known: dict[str, str] = {}
    for path in files:
        for line in _lines(path):
            group, _, nodes = line.partition(":")
            known.setdefault(group.strip(), nodes)
    if name not in known:
        places = " or ".join(map(str, _files()))
        raise ConfigurationError(
            f"the group {shown(name)} is unknown",
            where="a set of nodes",
            hint=f"groups are {', '.join(sorted(known))}"
            if known
            else f"write `{name}: n1,n2` into {places}, or name a file as @./FILE",
        )
    return known[name]


def _files() -> list[Path]:
    """Return where groups are written down; the user's come first."""
    found = [user_file(os.environ), SITE_FILE]
    return [path.with_name(GROUPS) for path in found if path is not None]


def _lines(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:  # ValueError: it is not text
        reason = getattr(error, "strerror", "") or "it is not text"
        raise ConfigurationError(
            f"the file of nodes cannot be read: {reason}", where=str(path)
        ) from error
    words = [line.partition("#")[0].strip() for line in lines]
    return [word for word in words if word]


def _nodes_of_slurm(partition: str) -> str:
    words = ["sinfo", "--noheader", "--format=%N"]
    words += [f"--partition={partition}"] if partition else []
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SLURM_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ResourceError(
            f"Slurm does not answer: {error}", where="sinfo", hint="is Slurm installed here?"
        ) from error
    found = ",".join(done.stdout.split())
    if done.returncode or not found:
        said = done.stderr.strip().rpartition("\n")[2] or "it names no nodes"
        raise ConfigurationError(
            f"Slurm has no nodes of the partition {shown(partition)}: {said}"
            if partition
            else f"Slurm has no nodes: {said}",
            where="sinfo",
            hint="`sinfo` lists the partitions",
        )
    return found
