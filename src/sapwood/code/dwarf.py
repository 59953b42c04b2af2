"""Functions of a built library and their C and C++ types, from its debug information (DWARF)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from sapwood.code.dwarf_scan import definitions
from sapwood.code.interface import (
    ElementType,
    FieldType,
    FunctionSignature,
    Interface,
    ParameterSignature,
    Role,
    UnboundFunction,
)
from sapwood.core.errors import BuildError

MAX_DEPTH: Final = 32
"""How deep structs may be nested in each other."""

_QUALIFIERS: Final = {
    "DW_TAG_volatile_type",
    "DW_TAG_restrict_type",
    "DW_TAG_atomic_type",
}
_STRUCTS: Final = {"DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"}

_ENCODINGS: Final[dict[int, str]] = {
    0x02: "b",  # boolean
    0x03: "c",  # complex float
    0x04: "f",  # float
    0x05: "i",  # signed
    0x06: "i",  # signed char
    0x07: "u",  # unsigned
    0x08: "u",  # unsigned char
    0x10: "u",  # UTF character
}
_SIZES: Final[dict[str, set[int]]] = {
    "b": {1},
    "c": {8, 16},
    "f": {2, 4, 8},
    "i": {1, 2, 4, 8},
    "u": {1, 2, 4, 8},
}


class UnbindableError(Exception):
    """A type that cannot be passed from Python; the text is the reason."""


class Pointer:
    """A pointer to a type.

    Attributes:
        element: What it points to.
        const: Whether it may not be written through.
    """

    __slots__ = ("const", "element")

    def __init__(self, element: ElementType, *, const: bool) -> None:
        self.element = element
        self.const = const


def parameter_type(die: Any) -> ElementType | Pointer:
    """Return the type of a parameter: a number, or a pointer to numbers or structs.

    Raises:
        UnbindableError: It is anything else.
    """
    resolved, name, _ = _resolve(_type_of(die))
    if resolved is None:
        raise UnbindableError("a parameter of type void")
    if resolved.tag == "DW_TAG_pointer_type":
        return _pointer(resolved)
    element = value_type(resolved, name)
    if element.fields:
        raise UnbindableError(f"{element.c} is passed by value; pass a pointer")
    if element.dtype[1:] == "f2" or element.dtype[1:2] == "c":
        raise UnbindableError(f"{element.c} is passed by value; pass a pointer")
    return element


def return_type(die: Any) -> ElementType | None:
    """Return the type of a function's value; None for void.

    Raises:
        UnbindableError: It is not a number.
    """
    resolved, name, _ = _resolve(_type_of(die))
    if resolved is None:
        return None
    if resolved.tag == "DW_TAG_pointer_type":
        raise UnbindableError("it returns a pointer, which does not say who owns it or how long")
    element = value_type(resolved, name)
    if element.fields or element.dtype[1:] == "f2" or element.dtype[1:2] == "c":
        raise UnbindableError(f"it returns {element.c} by value; write it through a pointer")
    return element


def value_type(die: Any, name: str, depth: int = 0) -> ElementType:
    """Return the type of a number, an enumeration, a struct or an array of them.

    Args:
        die: The type, with qualifiers and typedefs already followed.
        name: The name that the source uses for it; empty for its own name.
        depth: How many structs it is inside of.

    Raises:
        UnbindableError: It is anything else.
    """
    tag = die.tag
    if tag == "DW_TAG_base_type":
        return _number(die, name)
    if tag == "DW_TAG_enumeration_type":
        return _enumeration(die, name)
    if tag in _STRUCTS:
        return _struct(die, name, depth)
    if tag == "DW_TAG_array_type":
        return _array(die, depth)
    raise UnbindableError(_REASONS.get(tag, f"a type that debug information calls {tag}"))


_REASONS: Final[dict[str, str]] = {
    "DW_TAG_reference_type": "a C++ reference; pass a pointer",
    "DW_TAG_rvalue_reference_type": "a C++ reference; pass a pointer",
    "DW_TAG_pointer_type": "a pointer to a pointer; pass one flat array",
    "DW_TAG_subroutine_type": "a pointer to a function",
    "DW_TAG_ptr_to_member_type": "a pointer to a member",
    "DW_TAG_unspecified_type": "a type that only C++ knows",
}


def _pointer(die: Any) -> Pointer:
    target, name, const = _resolve(_type_of(die))
    if target is None:
        raise UnbindableError("a void pointer, which does not say what its elements are")
    return Pointer(value_type(target, name), const=const)


def _type_of(die: Any) -> Any:
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def _resolve(die: Any) -> tuple[Any, str, bool]:
    """Follow qualifiers and typedefs: the type, the name the source uses, whether it is const."""
    name, const = "", False
    while die is not None:
        if die.tag == "DW_TAG_typedef":
            name = name or _name(die)
        elif die.tag == "DW_TAG_const_type":
            const = True
        elif die.tag not in _QUALIFIERS:
            if die.tag == "DW_TAG_array_type":  # const elements make a const array
                const = const or _resolve(_type_of(die))[2]
            return die, name, const
        die = _type_of(die)
    return None, name, const


def _number(die: Any, name: str) -> ElementType:
    c_name = name or _name(die)
    size = die.attributes["DW_AT_byte_size"].value
    kind = _ENCODINGS.get(die.attributes["DW_AT_encoding"].value)
    if kind is None or size not in _SIZES[kind]:
        raise UnbindableError(f"{c_name} ({8 * size} bits), which numpy does not have")
    order = "|" if size == 1 else "<" if die.cu.structs.little_endian else ">"
    return ElementType(c=c_name, dtype=f"{order}{kind}{size}", size=size)


def _enumeration(die: Any, name: str) -> ElementType:
    own = f"enum {_name(die)}" if _name(die) else "enum"
    under, _, _ = _resolve(_type_of(die))
    if under is not None:
        base = _number(under, "")
    else:
        signed = any(
            child.attributes["DW_AT_const_value"].value < 0
            for child in die.iter_children()
            if "DW_AT_const_value" in child.attributes
        )
        size = die.attributes["DW_AT_byte_size"].value
        order = "<" if die.cu.structs.little_endian else ">"
        base = ElementType(c="", dtype=f"{order}{'i' if signed else 'u'}{size}", size=size)
    return ElementType(c=name or own, dtype=base.dtype, size=base.size)


def _struct(die: Any, name: str, depth: int) -> ElementType:
    word = "union" if die.tag == "DW_TAG_union_type" else "struct"
    c_name = name or f"{word} {_name(die) or '(without name)'}"
    if word == "union":
        raise UnbindableError(f"{c_name}: a union does not say which member it holds")
    if "DW_AT_declaration" in die.attributes:
        raise UnbindableError(f"{c_name} is declared but not defined")
    if depth > MAX_DEPTH:
        raise UnbindableError(f"{c_name} is nested more than {MAX_DEPTH} deep")
    fields: list[FieldType] = []
    for child in die.iter_children():
        if child.tag == "DW_TAG_inheritance":
            raise UnbindableError(f"{c_name} inherits from another class")
        if child.tag == "DW_TAG_subprogram" and "DW_AT_virtuality" in child.attributes:
            raise UnbindableError(f"{c_name} has virtual functions")
        if child.tag == "DW_TAG_member" and "DW_AT_external" not in child.attributes:
            fields.append(_member(child, c_name, depth))
    if not fields:
        raise UnbindableError(f"{c_name} has no members")
    size = die.attributes["DW_AT_byte_size"].value
    return ElementType(c=c_name, size=size, fields=tuple(fields))


def _member(die: Any, owner: str, depth: int) -> FieldType:
    name = _name(die)
    attributes = die.attributes
    if {"DW_AT_bit_size", "DW_AT_data_bit_offset"} & attributes.keys():
        raise UnbindableError(f"{owner} has the bit-field {name}")
    if not name:
        raise UnbindableError(f"{owner} has a member without name")
    if name.startswith("_vptr"):
        raise UnbindableError(f"{owner} has virtual functions")
    offset = attributes.get("DW_AT_data_member_location")
    resolved, type_name, _ = _resolve(_type_of(die))
    if resolved.tag == "DW_TAG_pointer_type":
        raise UnbindableError(f"{owner} has the pointer {name}")
    element = value_type(resolved, type_name, depth + 1)
    return FieldType(name, 0 if offset is None else int(offset.value), element)


def _array(die: Any, depth: int) -> ElementType:
    resolved, name, _ = _resolve(_type_of(die))
    if resolved is None or resolved.tag == "DW_TAG_pointer_type":
        raise UnbindableError("an array of pointers; pass one flat array")
    element = value_type(resolved, name, depth)
    extents = tuple(
        _extent(child) for child in die.iter_children() if child.tag == "DW_TAG_subrange_type"
    )
    return ElementType(
        c=element.c,
        dtype=element.dtype,
        size=element.size,
        fields=element.fields,
        shape=extents + element.shape,
    )


def _extent(die: Any) -> int:
    for key, more in (("DW_AT_count", 0), ("DW_AT_upper_bound", 1)):
        attribute = die.attributes.get(key)
        if attribute is not None and isinstance(attribute.value, int):
            if attribute.form in {"DW_FORM_ref4", "DW_FORM_ref8", "DW_FORM_ref_udata"}:
                break
            return attribute.value + more
    raise UnbindableError("an array of variable extent; declare a pointer and annotate it @array")


def _name(die: Any) -> str:
    attribute = die.attributes.get("DW_AT_name")
    return attribute.value.decode("utf-8", "replace") if attribute is not None else ""


_ORIGINS: Final = ("DW_AT_abstract_origin", "DW_AT_specification")


def read_interface(library: Path, debug: Path, sources: set[str]) -> Interface:
    """Return the functions that a library exports, with parameter names and exact types.

    Args:
        library: A shared library.
        debug: The file with its debug information; may be the library itself.
        sources: Names of the sources it was built from: C++ functions of these that are not
            ``extern "C"`` are listed as not callable; those of libraries are left out.

    Raises:
        BuildError: It holds no debug information.
    """
    with library.open("rb") as library_file, debug.open("rb") as file:
        exported = exported_functions(_open(library_file, library))
        elf = _open(file, debug)
        _require_debug_information(elf, library)
        functions: dict[str, FunctionSignature] = {}
        unbound: dict[str, UnboundFunction] = {}
        for unit in elf.get_dwarf_info().iter_CUs():
            files = _file_names(unit)
            for die in definitions(unit):
                _add(die, files, exported, sources, functions, unbound)
    return Interface(
        functions=tuple(sorted(functions.values(), key=_by_line)),
        unbound=tuple(sorted(unbound.values(), key=_by_line)),
    )


def _by_line(each: FunctionSignature | UnboundFunction) -> tuple[str, int, str]:
    return each.file, each.line, each.name


def exported_functions(elf: ELFFile) -> dict[str, int]:
    """Return the address of every function that a library exports."""
    table = elf.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return {}
    return {
        symbol.name: symbol["st_value"]
        for symbol in table.iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC"
        and symbol["st_shndx"] != "SHN_UNDEF"
        and symbol["st_info"]["bind"] in {"STB_GLOBAL", "STB_WEAK"}
    }


def _open(file: BinaryIO, library: Path) -> ELFFile:
    try:
        return ELFFile(file)
    except ELFError as error:
        raise BuildError(
            f"the compiler did not make a library: {error}", where=str(library)
        ) from error


def _require_debug_information(elf: ELFFile, library: Path) -> None:
    if not elf.has_dwarf_info(strict=True):
        raise BuildError(
            "the library holds no debug information, by which its functions are found",
            where=str(library),
            hint="remove -s, -g0 and -gsplit-dwarf from CFLAGS, CXXFLAGS and LDFLAGS",
        )


def _add(
    die: Any,
    files: list[str],
    exported: dict[str, int],
    sources: set[str],
    functions: dict[str, FunctionSignature],
    unbound: dict[str, UnboundFunction],
) -> None:
    chain = _origins(die)
    if not any("DW_AT_external" in each.attributes for each in chain):
        return
    name = _text(chain, "DW_AT_name")
    file, line = _place(chain, files)
    mangled = _text(chain, "DW_AT_linkage_name")
    if mangled and mangled != name:
        if mangled in exported and file in sources:
            reason = 'it is not extern "C", so its name in the library is mangled'
            unbound[mangled] = UnboundFunction(name, reason, file, line)
        return
    if name not in exported:
        return
    try:
        functions[name] = _signature(chain, name, file, line)
    except UnbindableError as error:
        unbound[name] = UnboundFunction(name, str(error), file, line)


def _signature(chain: list[Any], name: str, file: str, line: int) -> FunctionSignature:
    parameters = []
    for index, formal in enumerate(_formals(chain)):
        if formal.tag == "DW_TAG_unspecified_parameters":
            raise UnbindableError("it takes a variable number of arguments")
        origins = _origins(formal)
        parameter = _text(origins, "DW_AT_name")
        if not parameter:
            raise UnbindableError(f"its parameter {index + 1} has no name")
        try:
            found = parameter_type(_with(origins, "DW_AT_type"))
        except UnbindableError as error:
            raise UnbindableError(f"parameter {parameter}: {error}") from None
        parameters.append(_parameter(parameter, found))
    with_type = _with(chain, "DW_AT_type")
    return FunctionSignature(
        name=name,
        parameters=tuple(parameters),
        returns=return_type(with_type),
        file=file,
        line=line,
    )


def _parameter(name: str, found: Any) -> ParameterSignature:
    if not isinstance(found, Pointer):
        return ParameterSignature(name=name, c=found.c, element=found)
    element = found.element
    star = "*" if not element.shape else f"(*)[{']['.join(map(str, element.shape))}]"
    return ParameterSignature(
        name=name,
        c=f"{'const ' if found.const else ''}{element.c} {star}",
        element=element,
        role=Role.INPUT if found.const else Role.OUTPUT,
    )


def _formals(chain: list[Any]) -> list[Any]:
    """Return the parameters, of the deepest origin that names them all.

    A definition whose calls were inlined may leave some out; a declaration may not name them.
    """
    tags = {"DW_TAG_formal_parameter", "DW_TAG_unspecified_parameters"}
    best: list[Any] = []
    for die in chain:
        found = [child for child in die.iter_children() if child.tag in tags]
        named = all(
            _text(_origins(child), "DW_AT_name")
            for child in found
            if child.tag == "DW_TAG_formal_parameter"
        )
        if found and (named or not best):
            best = found
    return best


def _origins(die: Any) -> list[Any]:
    chain = [die]
    while True:
        key = next((key for key in _ORIGINS if key in chain[-1].attributes), None)
        if key is None:
            return chain
        chain.append(chain[-1].get_DIE_from_attribute(key))


def _with(chain: list[Any], key: str) -> Any:
    """Return the first DIE of a chain that has an attribute, or the last."""
    return next((die for die in chain if key in die.attributes), chain[-1])


def _text(chain: list[Any], key: str) -> str:
    attribute = _with(chain, key).attributes.get(key)
    return attribute.value.decode("utf-8", "replace") if attribute is not None else ""


def _place(chain: list[Any], files: list[str]) -> tuple[str, int]:
    attributes = _with(chain, "DW_AT_decl_line").attributes
    line = attributes["DW_AT_decl_line"].value if "DW_AT_decl_line" in attributes else 0
    index = attributes["DW_AT_decl_file"].value if "DW_AT_decl_file" in attributes else -1
    return (files[index] if 0 <= index < len(files) else ""), line


def _file_names(unit: Any) -> list[str]:
    """Return the unit's files by the index that DW_AT_decl_file uses, relative to its folder."""
    program = unit.dwarfinfo.line_program_for_CU(unit)
    if program is None:
        return []
    header = program.header
    folders = [_decode(folder) for folder in header["include_directory"]]
    first = 0 if header["version"] >= 5 else 1
    names = [""] * first
    for entry in header["file_entry"]:
        name = _decode(entry.name)
        index = entry.dir_index - first
        folder = folders[index] if 0 <= index < len(folders) else "."
        if header["version"] >= 5 and index == 0:
            folder = "."
        names.append(_join(folder, name))
    return names


def _join(folder: str, name: str) -> str:
    if name.startswith("/") or folder in {"", "."}:
        return name.removeprefix("./")
    return f"{folder.removeprefix('./')}/{name}"


def _decode(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
