"""Commands that other packages add: the entry points of the group ``sapwood.commands``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from sapwood.cli.lazy import LazyEntry
from sapwood.core.errors import InputError
from sapwood.core.extras import install

if TYPE_CHECKING:
    from importlib.metadata import Distribution

GROUP: Final = "sapwood.commands"
"""Plug-ins register here: the entry point is a function, or a :class:`typer.Typer`."""

PANEL: Final = "Commands of other packages"
"""The heading of these commands in ``sapwood --help``."""

OF_EXTRAS: Final = {"lizard": "lizard", "patch": "cuda-cpu"}
"""Commands of the packages in ``extras/``, and the extra that has each."""


class WithAdded(Mapping[str, LazyEntry]):
    """Commands by name; entry points are looked up when a name is not known.

    Args:
        own: The commands of this package.
    """

    def __init__(self, own: Mapping[str, LazyEntry]) -> None:
        self._own = own

    def __getitem__(self, name: str) -> LazyEntry:
        return self._own[name] if name in self._own else _added()[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in _added() if name not in self._own)

    def __len__(self) -> int:
        return len(set(self))


def check_installed(name: str, commands: Mapping[str, LazyEntry]) -> None:
    """Check that a command is available.

    Raises:
        InputError: It is a command of an extra that is not installed.
    """
    extra = OF_EXTRAS.get(name)
    if extra is not None and name not in commands:
        raise InputError(
            f"'sapwood {name}' needs the package sapwood-{extra}, which is not installed",
            hint=install(extra),
        )


@functools.cache
def _added() -> dict[str, LazyEntry]:
    from importlib.metadata import (  # noqa: PLC0415 - slow, and most commands do without
        entry_points,
    )

    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        package = point.dist.name if point.dist is not None else point.module
        found[point.name] = LazyEntry(
            point.value, _summary(point.dist), package=package, panel=PANEL
        )
    return found


def _summary(distribution: Distribution | None) -> str:
    """Return what a package says of itself; read by hand, because importing a parser is slow."""
    text = (distribution.read_text("METADATA") if distribution is not None else None) or ""
    lines = text.partition("\n\n")[0].splitlines()
    return next((line[9:] for line in lines if line.startswith("Summary: ")), "")
