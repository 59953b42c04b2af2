"""Other Pythons of this machine, for tests of nodes whose Python has another minor version."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from sapwood.nodes.joining import OLDEST_PYTHON
from sapwood.nodes.starting import NEWEST_PYTHON

MINORS = range(OLDEST_PYTHON[1], NEWEST_PYTHON[1] + 1)

LIBRARIES = Path(__file__).parents[1] / "build" / "libraries"
"""A build cache where libraries of other Pythons stay from one run of the tests to the next."""


def find_python(minor: int) -> str:
    """Return an interpreter of version 3.``minor``; empty if there is none."""
    for path in _places(minor):
        told = "import sys; print(*sys.version_info[:2])"
        done = subprocess.run([path, "-c", told], capture_output=True, text=True, check=False)
        if done.stdout.split() == ["3", str(minor)]:
            return path
    return ""


def other_python() -> str:
    """Return the newest interpreter of another minor version than this one; empty if none is."""
    others = (minor for minor in reversed(MINORS) if minor != sys.version_info.minor)
    return next(filter(None, map(find_python, others)), "")


def _places(minor: int) -> Iterator[str]:
    found = shutil.which(f"python3.{minor}")
    if found is not None:
        yield found
    versions = Path("~/.pyenv/versions").expanduser()
    yield from (str(path) for path in sorted(versions.glob(f"3.{minor}.*/bin/python3")))
