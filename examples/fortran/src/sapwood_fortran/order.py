"""The order in which sources have to be compiled: a module before those that use it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MODULE = re.compile(r"^\s*module\s+(?!procedure\b)(\w+)\s*$", re.IGNORECASE | re.MULTILINE)
_USE = re.compile(r"^\s*use\b[\s,:]*(?:non_intrinsic\s*::)?\s*(\w+)", re.IGNORECASE | re.MULTILINE)


def in_order_of_use(texts: Mapping[str, str]) -> list[str]:
    """Return the names of sources so that modules come before those that use them.

    Example:
        >>> in_order_of_use({"a.f90": "use b", "b.f90": "module b"})
        ['b.f90', 'a.f90']
    """
    makers = {
        module.lower(): name for name, text in texts.items() for module in _MODULE.findall(text)
    }
    ordered: list[str] = []

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in ordered or name in above:
            return  # done, or a circle, which the compiler explains best
        for module in _USE.findall(texts[name]):
            if module.lower() in makers:
                add(makers[module.lower()], (*above, name))
        ordered.append(name)

    for name in sorted(texts):
        add(name, ())
    return ordered
