"""Which entries of debug information define functions, found without reading all the others.

Debug information of C++ holds hundreds of thousands of entries, nearly all of them inside of
classes and functions. What an abbreviation says of an entry is enough to step over it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_FUNCTION: Final = "DW_TAG_subprogram"
_SCOPE: Final = "DW_TAG_namespace"
_NOT_DEFINED_HERE: Final = {"DW_AT_declaration", "DW_AT_inline"}

_BYTES: Final = {
    **dict.fromkeys(("flag_present", "implicit_const"), 0),
    **dict.fromkeys(("data1", "ref1", "flag", "strx1", "addrx1"), 1),
    **dict.fromkeys(("data2", "ref2", "strx2", "addrx2"), 2),
    **dict.fromkeys(("strx3", "addrx3"), 3),
    **dict.fromkeys(("data4", "ref4", "strx4", "addrx4", "ref_sup4"), 4),
    **dict.fromkeys(("data8", "ref8", "ref_sig8", "ref_sup8"), 8),
    "data16": 16,
}
"""Sizes of attributes by their form."""

_OFFSETS: Final = {"sec_offset", "strp", "line_strp", "strp_sup", "ref_addr"}
_NUMBERS: Final = {"udata", "sdata", "ref_udata", "strx", "addrx", "loclistx", "rnglistx"}
_BLOCKS: Final = {"block", "exprloc"}

_NUMBER: Final = -1
"""A step over a number of any length."""
_BLOCK: Final = -2
"""A step over a number and as many bytes as it says."""


class _Shape:
    """What an abbreviation says of its entries.

    Attributes:
        steps: How to get over the attributes: numbers of bytes, and steps of any length; None if
            one of them has a form that is not known here.
        sibling: Bytes from the first attribute to where the next sibling is; negative if that is
            not said.
        has_children: Whether entries follow that are inside of it.
        is_definition: Whether it defines a function.
        is_scope: Whether functions may be defined inside of it.
    """

    __slots__ = ("has_children", "is_definition", "is_scope", "sibling", "steps")

    def __init__(self, abbreviation: Any, offset_size: int, address_size: int) -> None:
        names = {each.name for each in abbreviation["attr_spec"]}
        tag = abbreviation["tag"]
        self.has_children: bool = abbreviation.has_children()
        self.is_definition = tag == _FUNCTION and not names & _NOT_DEFINED_HERE
        self.is_scope = tag == _SCOPE
        self.sibling = -1
        steps: list[int] | None = []
        for each in abbreviation["attr_spec"]:
            form = str(each.form).removeprefix("DW_FORM_")
            if each.name == "DW_AT_sibling" and form == "ref4" and steps is not None:
                self.sibling = sum(steps) if min(steps, default=0) >= 0 else -1
            step = _step(form, offset_size, address_size)
            steps = None if step is None or steps is None else [*steps, step]
        self.steps = None if steps is None else _joined(steps)


def _step(form: str, offset_size: int, address_size: int) -> int | None:
    if form in _OFFSETS:
        return offset_size
    if form in _NUMBERS:
        return _NUMBER
    if form in _BLOCKS:
        return _BLOCK
    return address_size if form == "addr" else _BYTES.get(form)


def _joined(steps: list[int]) -> tuple[int, ...]:
    """Add up sizes that follow each other."""
    joined: list[int] = []
    for step in steps:
        if step >= 0 and joined and joined[-1] >= 0:
            joined[-1] += step
        elif step:
            joined.append(step)
    return tuple(joined)


def definitions(unit: Any) -> Iterator[Any]:
    """Yield the entries that define functions outside of classes, in order.

    Args:
        unit: A compile unit, as pyelftools has it.
    """
    data = unit.get_top_DIE().stream.getvalue()
    shapes: dict[int, _Shape] = {}
    table, structs = unit.get_abbrev_table(), unit.structs
    position, level, within = unit.cu_die_offset, 0, 0
    while True:
        begin = position
        code, position = _number(data, position)
        if code == 0:
            level -= 1
            within = min(within, level)
            if level <= 0:
                return
            continue
        shape = shapes.get(code)
        if shape is None:
            shape = shapes[code] = _Shape(
                table.get_abbrev(code), structs.dwarf_format // 8, structs.address_size
            )
        wanted = level == within
        if wanted and shape.is_definition:
            yield unit.get_DIE_from_refaddr(begin)
        is_entered = wanted and (level == 0 or shape.is_scope)
        if shape.has_children and not is_entered and shape.sibling >= 0:
            field = data[position + shape.sibling : position + shape.sibling + 4]
            away = int.from_bytes(field, "little" if structs.little_endian else "big")
            position = unit.cu_offset + away
            continue
        position = _after(data, position, shape, unit, begin)
        if shape.has_children:
            level += 1
            within += is_entered
        elif level == 0:
            return


def _after(data: bytes, position: int, shape: _Shape, unit: Any, begin: int) -> int:
    """Return where an entry ends whose attributes begin at a position."""
    if shape.steps is None:
        return begin + int(unit.get_DIE_from_refaddr(begin).size)
    for step in shape.steps:
        if step >= 0:
            position += step
        elif step == _NUMBER:
            while data[position] > 0x7F:
                position += 1
            position += 1
        else:
            size, position = _number(data, position)
            position += size
    return position


def _number(data: bytes, position: int) -> tuple[int, int]:
    """Return an unsigned LEB128 number, and where it ends."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while byte > 0x7F:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
    return value, position + 1
