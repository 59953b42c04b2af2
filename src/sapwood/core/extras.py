"""The packages that Sapwood works without, and the command that installs each.

What most users never load is a separate package. An error about such a package has the command of
:func:`install` as its hint.
"""

from __future__ import annotations

from typing import Final

PACKAGES: Final = {"lizard": "sapwood_lizard"}
"""The extras that are packages of Sapwood's own, and the module of each."""


def install(extra: str) -> str:
    """Return the command that installs an extra.

    Example:
        >>> install("server")
        "pip install 'sapwood[server]'"
    """
    return f"pip install 'sapwood[{extra}]'"


def is_own(module: str) -> bool:
    """Whether a module is Sapwood's own, or of one of its extra packages.

    Example:
        >>> is_own("sapwood.core.errors"), is_own("sapwood_lizard.program"), is_own("sapwoods")
        (True, True, False)
    """
    package = module.partition(".")[0]
    return package == "sapwood" or package in PACKAGES.values()
