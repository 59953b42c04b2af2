"""How a library lays out what its functions take: from debug information, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 6
"""How far pointers and structures are followed."""

_SKIPPED = {
    "DW_TAG_typedef",
    "DW_TAG_const_type",
    "DW_TAG_volatile_type",
    "DW_TAG_restrict_type",
    "DW_TAG_atomic_type",
}
_POINTERS = {"DW_TAG_pointer_type", "DW_TAG_reference_type", "DW_TAG_rvalue_reference_type"}
_STRUCTURES = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}
_KINDS: Final[dict[int, str]] = {
    0x02: "bool",
    0x04: "float",
    0x05: "int",
    0x06: "int",
    0x07: "int",
    0x08: "int",
    0x10: "int",
}
_ORIGINS = ("DW_AT_abstract_origin", "DW_AT_specification")


class CType(msgspec.Struct, frozen=True, omit_defaults=True):
    """A type of C.

    Attributes:
        kind: ``int``, ``float``, ``bool``, ``pointer``, ``struct``, ``array``, ``void`` or
            ``other``.
        text: The type as C text.
        size: Bytes; 0 where it is not known.
        target: What a pointer points to, or an array holds.
        members: Members of a structure.
        place: File and line of its definition.
    """

    kind: str
    text: str
    size: int = 0
    target: CType | None = None
    members: tuple[StructMember, ...] = ()
    place: str = ""


class StructMember(msgspec.Struct, frozen=True):
    """A member of a structure; the offset is in bytes."""

    name: str
    offset: int
    type: CType


class EntryPoint(msgspec.Struct, frozen=True):
    """A function that a library exports under its own name.

    Attributes:
        parameters: The types that it takes.
        place: File and line of its definition.
    """

    parameters: tuple[CType, ...]
    place: str


def read_entry_points(debug: Path, names: set[str]) -> dict[str, EntryPoint]:
    """Return those of some functions that a library defines under exactly these names."""
    from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - runners import this module

    from sapwood.plugins.builds import definitions  # noqa: PLC0415 - as above

    found: dict[str, EntryPoint] = {}
    with debug.open("rb") as file:
        for unit in ELFFile(file).get_dwarf_info().iter_CUs():
            files = _files(unit)
            for die in definitions(unit):
                name = _text(die, "DW_AT_name")
                if name in names and _text(die, "DW_AT_linkage_name") in {"", name}:
                    parameters = tuple(_type(_target(each), files, 0) for each in _formals(die))
                    found[name] = EntryPoint(parameters, _place(die, files))
    return found


def _formals(die: Any) -> Iterator[Any]:
    origin = _origin(die)
    own = [each for each in die.iter_children() if each.tag == "DW_TAG_formal_parameter"]
    if origin is None:
        return iter(own)
    declared = list(_formals(origin))
    return iter(declared if len(declared) >= len(own) else own)


def _type(die: Any, files: list[str], depth: int) -> CType:
    name = ""
    while die is not None and die.tag in _SKIPPED:
        if die.tag == "DW_TAG_typedef":
            name = name or _text(die, "DW_AT_name")
        die = _target(die)
    if die is None:
        return CType("void", name or "void")
    name = name or _text(die, "DW_AT_name")
    size = _number(die, "DW_AT_byte_size")
    if die.tag in _POINTERS:
        target = _type(_target(die), files, depth + 1) if depth < MAX_DEPTH else None
        return CType("pointer", f"{target.text if target else 'void'} *", size or 8, target)
    if die.tag == "DW_TAG_base_type":
        return CType(_KINDS.get(_number(die, "DW_AT_encoding"), "other"), name, size)
    if die.tag == "DW_TAG_enumeration_type":
        return CType("int", name or "enum", size)
    if die.tag == "DW_TAG_array_type":
        return _array(die, files, depth)
    if die.tag in _STRUCTURES and "DW_AT_declaration" not in die.attributes:
        members = tuple(_members(die, files, depth)) if depth < MAX_DEPTH else ()
        kind = "other" if die.tag == "DW_TAG_union_type" else "struct"
        return CType(kind, name or "struct", size, None, members, _place(die, files))
    return CType("other", name or "a type without name", size)


def _members(die: Any, files: list[str], depth: int) -> Iterator[StructMember]:
    for child in die.iter_children():
        static = "DW_AT_external" in child.attributes
        if child.tag == "DW_TAG_inheritance":
            base = _target(child)
            start = _number(child, "DW_AT_data_member_location")
            for member in _members(base, files, depth):
                yield StructMember(member.name, start + member.offset, member.type)
        elif child.tag == "DW_TAG_member" and not static:
            offset = _number(child, "DW_AT_data_member_location")
            yield StructMember(
                _text(child, "DW_AT_name"), offset, _type(_target(child), files, depth + 1)
            )


def _array(die: Any, files: list[str], depth: int) -> CType:
    element = _type(_target(die), files, depth)
    count = 1
    for child in die.iter_children():
        if child.tag == "DW_TAG_subrange_type":
            bound = _number(child, "DW_AT_upper_bound", -1) + 1
            count *= _number(child, "DW_AT_count", bound)
    return CType("array", f"{element.text}[{count}]", element.size * count, element)


def _target(die: Any) -> Any:
    holder = die
    while holder is not None and "DW_AT_type" not in holder.attributes:
        holder = _origin(holder)
    return holder.get_DIE_from_attribute("DW_AT_type") if holder is not None else None


def _origin(die: Any) -> Any:
    key = next((key for key in _ORIGINS if key in die.attributes), None)
    return die.get_DIE_from_attribute(key) if key else None


def _text(die: Any, key: str) -> str:
    while die is not None and key not in die.attributes:
        die = _origin(die)
    return die.attributes[key].value.decode("utf-8", "replace") if die is not None else ""


def _number(die: Any, key: str, default: int = 0) -> int:
    attribute = die.attributes.get(key)
    value = attribute.value if attribute is not None else default
    return value if isinstance(value, int) else default


def _place(die: Any, files: list[str]) -> str:
    while die is not None and "DW_AT_decl_line" not in die.attributes:
        die = _origin(die)
    if die is None:
        return ""
    index, line = _number(die, "DW_AT_decl_file", -1), _number(die, "DW_AT_decl_line")
    return f"{files[index]}:{line}" if 0 <= index < len(files) else ""


def _files(unit: Any) -> list[str]:
    """Return names of files by the index that debug information uses, without folders."""
    program = unit.dwarfinfo.line_program_for_CU(unit)
    if program is None:
        return []
    names = [entry.name.decode("utf-8", "replace") for entry in program.header["file_entry"]]
    bare = [name.rpartition("/")[2] for name in names]
    return bare if program.header["version"] >= 5 else ["", *bare]
