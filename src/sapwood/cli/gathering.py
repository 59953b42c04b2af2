"""Whole outputs of ``sapwood exec``: equal ones once, what differs, and a file for each node."""

from __future__ import annotations

import difflib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from sapwood.cli.exec_views import Ends, ExecView, write_all
from sapwood.core.errors import ConfigurationError, ResourceError
from sapwood.core.hostset import fold_hosts
from sapwood.core.terminal_text import TerminalFilter
from sapwood.nodes.commands import NodeExit, NodeOutput

MAX_GATHERED: Final = 256 * 2**20
"""Bytes of output of all nodes that are kept in memory."""


class Gathered:
    """Shows outputs when the command has ended on all nodes: equal ones once, with their nodes.

    Args:
        names: The nodes.
        diff: Whether to show of each output only how it differs from the most frequent one.
        raw: Whether terminals get escape sequences of the nodes, too.
    """

    patience: float | None = None

    def __init__(self, names: Sequence[str], *, diff: bool, raw: bool) -> None:
        self._diff = diff
        self._raw = raw
        self._ends = Ends(always=len(names) > 1)
        self._size = 0
        self._outputs = {
            stream: {name: bytearray() for name in names} for stream in ("stdout", "stderr")
        }

    def wrote(self, output: NodeOutput) -> None:
        """Keep what it wrote.

        Raises:
            ResourceError: All outputs together are too large.
        """
        self._size += len(output.data)
        if self._size > MAX_GATHERED:
            raise ResourceError(
                f"the outputs of all nodes are larger than {MAX_GATHERED // 2**20} MiB",
                where="--diff" if self._diff else "--fold",
                hint="write them into files: --outdir DIR, without this option",
            )
        self._outputs[output.stream][output.node] += output.data

    def ended(self, end: NodeExit) -> None:
        """Note how it has ended on a node."""
        self._ends.add(end)

    def show_due(self) -> None:
        """Do nothing: all is shown at the end."""

    def close(self, status: int) -> None:
        """Show all outputs, and who failed."""
        del status
        for name, stream in (("stdout", sys.stdout.buffer), ("stderr", sys.stderr.buffer)):
            write_all(stream, b"".join(self._text(self._outputs[name], stream)))
        self._ends.write()

    def _text(self, outputs: dict[str, bytearray], stream: BinaryIO) -> Iterator[bytes]:
        clean = stream.isatty() and not self._raw
        nodes_of: dict[bytes, list[str]] = {}
        for node, written in outputs.items():
            data = bytes(written)
            if clean:
                cleaned = TerminalFilter(colours=False, returns=False)
                data = cleaned.take(data) + cleaned.rest()
            nodes_of.setdefault(data, []).append(node)
        if not any(nodes_of):
            return
        if not self._diff:
            for data, nodes in nodes_of.items():
                if data:
                    yield _title(nodes)
                    yield _ended(data)
            return
        usual = Counter({data: len(nodes) for data, nodes in nodes_of.items()}).most_common(1)[0][0]
        yield _title(nodes_of[usual])
        yield _ended(usual)
        for data, nodes in nodes_of.items():
            if data != usual:
                yield from _difference(usual, nodes_of[usual], data, nodes)


class OutputFiles:
    """Writes the outputs of each node into two files, besides what another view shows.

    Args:
        folder: Where ``NODE.out`` and ``NODE.err`` are made.
        names: The nodes.
        view: The other view.

    Raises:
        ConfigurationError: The files cannot be written.
    """

    def __init__(self, folder: Path, names: Sequence[str], view: ExecView) -> None:
        self._view = view
        self._folder = folder
        self._files: dict[tuple[str, str], BinaryIO] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name in names:
                for stream, ending in (("stdout", "out"), ("stderr", "err")):
                    path = folder / f"{name.replace('/', '_')}.{ending}"
                    self._files[name, stream] = path.open("wb", buffering=0)
        except OSError as error:
            self._close()
            raise self._unwritable(error) from error

    @property
    def patience(self) -> float | None:
        """As the other view has it."""
        return self._view.patience

    def wrote(self, output: NodeOutput) -> None:
        """Write what it wrote on a node, and show it.

        Raises:
            ConfigurationError: The file cannot be written.
        """
        try:
            write_all(self._files[output.node, output.stream], output.data)
        except OSError as error:
            raise self._unwritable(error) from error
        self._view.wrote(output)

    def ended(self, end: NodeExit) -> None:
        """Show that it ended on a node."""
        self._view.ended(end)

    def show_due(self) -> None:
        """Show what has waited long enough."""
        self._view.show_due()

    def close(self, status: int) -> None:
        """Close the files, and show the rest."""
        self._close()
        self._view.close(status)

    def _close(self) -> None:
        for file in self._files.values():
            file.close()

    def _unwritable(self, error: OSError) -> ConfigurationError:
        return ConfigurationError(
            f"outputs cannot be written: {error.strerror}",
            where=f"--outdir {self._folder}",
            hint="name a folder that you may write to, with enough room",
        )


def _title(nodes: Sequence[str]) -> bytes:
    return f"--- {fold_hosts(nodes)}\n".encode("utf-8", "surrogateescape")


def _ended(data: bytes) -> bytes:
    return data if data.endswith(b"\n") or not data else data + b"\n"


def _difference(
    usual: bytes, usual_nodes: Sequence[str], data: bytes, nodes: Sequence[str]
) -> Iterator[bytes]:
    """Yield how an output differs from the usual one, as ``diff -u`` shows it."""
    lines = difflib.diff_bytes(
        difflib.unified_diff,
        usual.splitlines(keepends=True),
        data.splitlines(keepends=True),
        fold_hosts(usual_nodes).encode("utf-8", "surrogateescape"),
        fold_hosts(nodes).encode("utf-8", "surrogateescape"),
    )
    return map(_ended, lines)
