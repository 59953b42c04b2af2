"""How ``sapwood exec`` shows what a command does: to people, and as lines of JSON."""

from __future__ import annotations

import base64
import select
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Protocol

from sapwood.cli.folding import LineFolder, LineSplitter
from sapwood.cli.present import json_bytes
from sapwood.core.hostset import fold_hosts
from sapwood.core.terminal_text import TerminalFilter, printable
from sapwood.nodes.commands import NodeExit, NodeOutput


class ExecView(Protocol):
    """Shows what a command does."""

    def wrote(self, output: NodeOutput) -> None:
        """Show what it wrote."""

    def ended(self, end: NodeExit) -> None:
        """Show that it ended on a node."""

    @property
    def patience(self) -> float | None:
        """Seconds after which something is to be shown; None if nothing waits."""

    def show_due(self) -> None:
        """Show what has waited long enough."""

    def close(self, status: int) -> None:
        """Show the rest; the exit code is known."""


class Ends:
    """Why a command failed on nodes; equal reasons are one line.

    Args:
        always: Whether an exit code is a reason, too.
    """

    def __init__(self, *, always: bool) -> None:
        self._always = always
        self._nodes: dict[str, list[str]] = {}

    def add(self, end: NodeExit) -> None:
        """Note how the command has ended on a node."""
        if end.reason:
            self._nodes.setdefault(printable(end.reason), []).append(end.node)
        elif end.status and self._always:
            self._nodes.setdefault(f"exit code {end.status}", []).append(end.node)

    def write(self) -> None:
        """Write a line for each reason to standard error."""
        for reason, nodes in self._nodes.items():
            line = f"sapwood: {fold_hosts(nodes)}: {reason}\n"
            write_all(sys.stderr.buffer, line.encode())


class Terminal:
    """Shows output as people read it.

    Where a stream is a terminal, escape sequences of nodes do not reach it. Other streams get what
    the nodes wrote.

    Args:
        names: The nodes.
        label: Whether the node stands before each line.
        raw: Whether terminals get what the nodes wrote, too.
    """

    def __init__(self, names: Sequence[str], *, label: bool, raw: bool = False) -> None:
        self._streams: dict[str, BinaryIO] = {
            "stdout": sys.stdout.buffer,
            "stderr": sys.stderr.buffer,
        }
        self._folders = {
            name: LineFolder(names, partial(write_all, stream))
            for name, stream in self._streams.items()
            if label
        }
        self._whole_lines = len(names) > 1
        self._filters = {
            (node, name): TerminalFilter(colours=not self._whole_lines, returns=not label)
            for name, stream in self._streams.items()
            for node in names
            if stream.isatty() and not raw
        }
        self._splitters: dict[tuple[str, str], LineSplitter] = {}
        self._ends = Ends(always=self._whole_lines)

    def wrote(self, output: NodeOutput) -> None:
        """Show what it wrote: as it came, by lines, or labelled."""
        cleaned = self._filters.get((output.node, output.stream))
        data = output.data if cleaned is None else cleaned.take(output.data)
        self._show(output.node, output.stream, data)

    def _show(self, node: str, name: str, data: bytes) -> None:
        stream = self._streams[name]
        if self._folders:
            self._folders[name].take(node, data)
        elif self._whole_lines:
            splitter = self._splitters.setdefault((node, name), LineSplitter())
            write_all(stream, _text(splitter.lines(data)))
        else:
            write_all(stream, data)

    def ended(self, end: NodeExit) -> None:
        """Show its last words, and note why it failed."""
        for name in self._streams:
            cleaned = self._filters.get((end.node, name))
            if cleaned is not None and (rest := cleaned.rest()):
                self._show(end.node, name, rest)
        for folder in self._folders.values():
            folder.end(end.node)
        for name, stream in self._streams.items():
            splitter = self._splitters.pop((end.node, name), None)
            if splitter is not None:
                write_all(stream, _text(splitter.rest()))
        self._ends.add(end)

    @property
    def patience(self) -> float | None:
        """Seconds until a line has waited long enough."""
        found = [folder.patience for folder in self._folders.values()]
        return min((one for one in found if one is not None), default=None)

    def show_due(self) -> None:
        """Show lines that have waited long enough for the same line of other nodes."""
        for folder in self._folders.values():
            folder.show_due()

    def close(self, status: int) -> None:
        """Show the rest, and who failed."""
        del status
        for folder in self._folders.values():
            folder.close()
        self._ends.write()


class JsonLines:
    """Shows events as lines of JSON.

    Args:
        stream: Where to.
    """

    patience: float | None = None

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._tails: dict[tuple[str, str], bytes] = {}

    def wrote(self, output: NodeOutput) -> None:
        """Show output: as text if it is UTF-8, else in base 64."""
        key = output.node, output.stream
        data = self._tails.pop(key, b"") + output.data
        tail = incomplete(data)
        if tail:
            self._tails[key] = data[-tail:]
            data = data[:-tail]
        self._show(output.node, output.stream, data)

    def ended(self, end: NodeExit) -> None:
        """Show the end on a node."""
        for stream in ("stdout", "stderr"):
            self._show(end.node, stream, self._tails.pop((end.node, stream), b""))
        event: dict[str, Any] = {"event": "ended", "node": end.node, "status": end.status}
        self._line(event | ({"reason": end.reason} if end.reason else {}))

    def show_due(self) -> None:
        """Do nothing: nothing waits."""

    def close(self, status: int) -> None:
        """Show the exit code."""
        self._line({"event": "exit", "status": status})

    def _show(self, node: str, stream: str, data: bytes) -> None:
        if not data:
            return
        event: dict[str, Any] = {"event": "output", "node": node, "stream": stream}
        try:
            event["data"] = data.decode()
        except UnicodeDecodeError:
            event["base64"] = base64.b64encode(data).decode()
        self._line(event)

    def _line(self, event: Mapping[str, Any]) -> None:
        write_all(self._stream, json_bytes(event) + b"\n")


def incomplete(data: bytes) -> int:
    """Return how many bytes at the end are the beginning of a character in UTF-8.

    Example:
        >>> incomplete("µ".encode()), incomplete("µ".encode()[:1]), incomplete(b"a")
        (0, 1, 0)
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < length else 0
        if byte < 0x80:
            return 0
    return 0


def _text(lines: Sequence[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def write_all(stream: BinaryIO, data: bytes) -> None:
    """Write all bytes and keep none: what an interrupt leaves unwritten must not delay the end."""
    raw = getattr(stream, "raw", None)
    if raw is None:
        stream.write(data)
        stream.flush()
        return
    rest = memoryview(data)
    while rest:
        written = raw.write(rest)
        if written is None:  # another process has made it non-blocking
            select.select([], [raw], [])
        else:
            rest = rest[written:]
