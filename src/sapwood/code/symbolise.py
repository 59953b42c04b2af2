"""Native backtraces made readable: function, file and line for each address."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

_CODE = {"DW_TAG_subprogram", "DW_TAG_inlined_subroutine", "DW_TAG_lexical_block"}
_SCOPES = {"DW_TAG_namespace", *_CODE}
_ORIGINS = ("DW_AT_abstract_origin", "DW_AT_specification")


class DebugTable:
    """What a debug file says of addresses."""

    def __init__(self, elf: Any) -> None:
        self._elf = elf
        self._dwarf = elf.get_dwarf_info()

    @classmethod
    def open(cls, path: Path) -> DebugTable | None:
        """Return the table of a file; None when it has no debug information."""
        from elftools.common.exceptions import (  # noqa: PLC0415 - agents import this module
            ELFError,
        )
        from elftools.elf.elffile import ELFFile  # noqa: PLC0415 - as above

        try:
            elf = ELFFile(BytesIO(path.read_bytes()))
        except (OSError, ELFError):
            return None
        return cls(elf) if elf.has_dwarf_info(strict=True) else None

    @cached_property
    def symbols(self) -> dict[str, int]:
        """Address of every named function."""
        section = self._elf.get_section_by_name(".symtab")
        if section is None:
            return {}
        return {symbol.name: symbol["st_value"] for symbol in section.iter_symbols()}

    def describe(self, address: int) -> str:
        """Return function, file and line of an address; empty when it is not known.

        A function that the compiler inlined is named first, then the one that it is part of.
        """
        for unit in self._dwarf.iter_CUs():
            names = self._functions_at(unit.get_top_DIE(), address)
            if names:
                line = self._line_at(unit, address)
                text = ", inlined in ".join(reversed(names))
                return f"{text} ({line})" if line else text
        return ""

    def _functions_at(self, scope: Any, address: int) -> list[str]:
        for die in scope.iter_children():
            if die.tag not in _SCOPES:
                continue
            if die.tag != "DW_TAG_namespace" and not self._contains(die, address):
                continue
            inner = self._functions_at(die, address)
            own = [_name(die)] if die.tag in _CODE - {"DW_TAG_lexical_block"} else []
            if inner or own:
                return own + inner
        return []

    def _contains(self, die: Any, address: int) -> bool:
        return any(low <= address < high for low, high in self._ranges(die))

    def _ranges(self, die: Any) -> Iterator[tuple[int, int]]:
        attributes = die.attributes
        low = attributes.get("DW_AT_low_pc")
        high = attributes.get("DW_AT_high_pc")
        if low is not None and high is not None:
            # An address or, in another form, a size.
            absolute = high.form == "DW_FORM_addr"
            yield low.value, high.value if absolute else low.value + high.value
        elif "DW_AT_ranges" in attributes:
            base = die.cu.get_top_DIE().attributes.get("DW_AT_low_pc")
            start = base.value if base is not None else 0
            lists = self._dwarf.range_lists()
            for entry in lists.get_range_list_at_offset(attributes["DW_AT_ranges"].value, die.cu):
                if hasattr(entry, "base_address"):
                    start = entry.base_address
                    continue
                shift = 0 if entry.is_absolute else start
                yield entry.begin_offset + shift, entry.end_offset + shift

    def _line_at(self, unit: Any, address: int) -> str:
        program = self._dwarf.line_program_for_CU(unit)
        if program is None:
            return ""
        before = None
        for entry in program.get_entries():
            state = entry.state
            if state is None:
                continue
            if before is not None and before.address <= address < state.address:
                first = 0 if program.header["version"] >= 5 else 1
                file = program.header["file_entry"][before.file - first].name
                return f"{file.decode('utf-8', 'replace')}:{before.line}"
            before = None if state.end_sequence else state
        return ""


def _name(die: Any) -> str:
    while "DW_AT_name" not in die.attributes:
        key = next((key for key in _ORIGINS if key in die.attributes), None)
        if key is None:
            return "(function without name)"
        die = die.get_DIE_from_attribute(key)
    return str(die.attributes["DW_AT_name"].value.decode("utf-8", "replace"))


_FRAME = re.compile(
    r"^(?P<path>[^()\n]*)\((?P<symbol>[^()+]*)(?:\+0x(?P<offset>[0-9a-f]+))?\)\s*(?:\[0x[0-9a-f]+\])?$"
)


def symbolise(text: str, debug_files: Mapping[str, Path]) -> str:
    """Return a backtrace with function, file and line where they are known.

    Args:
        text: Lines as glibc's ``backtrace_symbols_fd`` writes them. The first frame is where
            the signal struck, the others are return addresses.
        debug_files: The file with debug information of each library, by the library's path, or by
            the name of its file alone.

    Example:
        >>> symbolise("./a.out(+0x1139) [0x55d2]", {})
        './a.out(+0x1139) [0x55d2]'
    """
    tables: dict[str, DebugTable | None] = {}
    lines = []
    frames = 0
    for line in text.splitlines():
        match = _FRAME.match(line.strip())
        frames += match is not None
        known = _describe(match, debug_files, tables, exact=frames == 1) if match else ""
        lines.append(known or line)
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def _describe(
    match: re.Match[str],
    debug_files: Mapping[str, Path],
    tables: dict[str, DebugTable | None],
    *,
    exact: bool,
) -> str:
    path = match["path"].strip()
    debug_file = debug_files.get(path) or debug_files.get(path.rpartition("/")[2])
    if debug_file is None:
        return ""
    if path not in tables:
        tables[path] = DebugTable.open(debug_file)
    table = tables[path]
    if table is None:
        return ""
    offset = int(match["offset"] or "0", 16)
    address = table.symbols.get(match["symbol"], 0) + offset if match["symbol"] else offset
    # A return address may be the first one of the next line: its call ends one byte before.
    return table.describe(address if exact else address - 1)
