"""Native backtraces made readable: function, file and line for each address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sapwood.code.debug_table import DebugTable

_FRAME = re.compile(
    r"^(?P<path>[^()\n]*)\((?P<symbol>[^()+]*)(?:\+0x(?P<offset>[0-9a-f]+))?\)\s*(?:\[0x[0-9a-f]+\])?$"
)


def symbolise(text: str, debug_files: Mapping[str, Path]) -> str:
    """Return a backtrace with function, file and line where they are known.

    Args:
        text: Lines as glibc's ``backtrace_symbols_fd`` writes them. The first frame is where
            the signal struck, the others are return addresses.
        debug_files: The file with debug information of each library, by the library's path.

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
    if path not in debug_files:
        return ""
    if path not in tables:
        tables[path] = DebugTable.open(debug_files[path])
    table = tables[path]
    if table is None:
        return ""
    offset = int(match["offset"] or "0", 16)
    address = table.symbols.get(match["symbol"], 0) + offset if match["symbol"] else offset
    # A return address may be the first one of the next line: its call ends one byte before.
    return table.describe(address if exact else address - 1)
