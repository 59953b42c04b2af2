"""Types that are nothing but numbers of one kind, one after the other.

``float3`` and ``float[3]`` are the same in memory, and so are the targets of pointers to them and
to ``float``: programs use one in place of the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, Final

from sapwood_lizard.layout import CType
from sapwood_lizard.structures import field_types

_FLOATS: Final = "fdg"
_BOOLS: Final = "?"
_INTEGERS: Final = "bBhHiIlLqQcu"

Number = tuple[str, int]
"""Kind and bytes of a number."""


def same_numbers(c: CType, declared: Any) -> bool:
    """Say whether a type of C and one of ctypes consist of the same numbers.

    One of them may be a single number: a pointer to it steps from number to number.
    """
    found, sizes = _numbers_of_c(c), {c.size, ctypes.sizeof(declared)}
    if found is None or found != _numbers_of_ctypes(declared):
        return False
    return len(sizes) == 1 or found[1] in sizes


def simple_kind(declared: Any) -> str:
    """Return ``int``, ``float``, ``bool`` or ``pointer`` for a simple type of ctypes.

    Example:
        >>> simple_kind(ctypes.c_short), simple_kind(ctypes.c_void_p)
        ('int', 'pointer')
    """
    code = getattr(declared, "_type_", None)
    if not isinstance(code, str):
        return "pointer"
    if code in _FLOATS:
        return "float"
    if code in _BOOLS:
        return "bool"
    return "int" if code in _INTEGERS else "pointer"


def _numbers_of_c(c: CType) -> Number | None:
    if c.kind == "array":
        return _numbers_of_c(c.target) if c.target is not None else None
    if c.kind == "struct":
        members = [(m.offset, m.type.size, _numbers_of_c(m.type)) for m in c.members]
        return _only_kind(members, c.size)
    return (_number(c.kind), c.size) if c.kind in {"int", "float", "bool"} else None


def _numbers_of_ctypes(declared: Any) -> Number | None:
    if issubclass(declared, ctypes.Array):
        return _numbers_of_ctypes(declared._type_)
    if issubclass(declared, (ctypes.Structure, ctypes.Union)):
        members = [
            (getattr(declared, name).offset, ctypes.sizeof(kind), _numbers_of_ctypes(kind))
            for name, kind in field_types(declared)
        ]
        return _only_kind(members, ctypes.sizeof(declared))
    kind = simple_kind(declared)
    return None if kind == "pointer" else (_number(kind), ctypes.sizeof(declared))


def _only_kind(members: Iterable[tuple[int, int, Number | None]], size: int) -> Number | None:
    """Return the kind of all members if there is one and they leave no gap."""
    kinds, end = set(), 0
    for offset, length, kind in sorted(members, key=lambda member: member[:2]):
        if offset > end:
            return None
        end = max(end, offset + length)
        kinds.add(kind)
    return kinds.pop() if len(kinds) == 1 and end == size else None


def _number(kind: str) -> str:
    return "int" if kind == "bool" else kind
