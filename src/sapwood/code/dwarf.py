"""Functions of a built library, found in its debug information."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO, Final

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from sapwood.code.dwarf_scan import definitions
from sapwood.code.dwarf_types import (
    Pointer,
    UnbindableError,
    parameter_type,
    return_type,
)
from sapwood.code.interface import (
    FunctionSignature,
    Interface,
    ParameterSignature,
    Role,
    UnboundFunction,
)
from sapwood.core.errors import BuildError

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
