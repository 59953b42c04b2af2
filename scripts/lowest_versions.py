"""Print constraints for pip that hold the lowest versions that Sapwood and its packages declare.

``make lowest`` installs them and runs the unit tests: a bound that is too low fails there.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

EXTRAS = ("cluster", "server", "watch")
"""The extras whose packages are held, besides what is always installed."""

_BOUND = re.compile(r"(?P<package>[\w.-]+)>=(?P<version>[\d.]+)")


def requirements() -> Iterator[str]:
    """Yield the requirements of Sapwood, of these extras, and of the packages in ``extras/``."""
    for file in (ROOT / "pyproject.toml", *sorted((ROOT / "extras").glob("*/pyproject.toml"))):
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        yield from project["dependencies"]
        for extra in EXTRAS:
            yield from project.get("optional-dependencies", {}).get(extra, ())


def constraints() -> list[str]:
    """Return one constraint for each package; of a version, the last patch counts."""
    found = map(_BOUND.match, requirements())
    return sorted(f"{one['package']}=={one['version']}.*" for one in found if one is not None)


if __name__ == "__main__":
    print("\n".join(constraints()))
