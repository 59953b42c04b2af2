"""Sizes of work-groups that kernels of OpenCL C require; runners read them without a parser."""

from __future__ import annotations

import re
from typing import Final

_GROUP: Final = re.compile(r"reqd_work_group_size\s*\(\s*(\w+)\s*,\s*(\w+)\s*,\s*(\w+)\s*\)")
_DEFINE: Final = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\d+)\)?[ \t]*$",
    re.MULTILINE,
)


def group_sizes(text: str) -> dict[str, tuple[int, ...]]:
    """Return the work-group size that each kernel requires, of those that do.

    Example:
        >>> group_sizes("__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void f() {}")
        {'f': (64, 1, 1)}
    """
    macros: dict[str, str] = dict(_DEFINE.findall(text))
    found: dict[str, tuple[int, ...]] = {}
    for match in _GROUP.finditer(text):
        kernel = re.search(r"\bvoid\b[^({;]*?(\w+)\s*\(", text[match.end() :])
        words: list[str] = list(match.groups())
        sizes = [macros.get(word, word) for word in words]
        if kernel is not None and all(size.isdigit() for size in sizes):
            found[kernel[1]] = tuple(map(int, sizes))
    return found
