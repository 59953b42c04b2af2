"""Lines of many nodes with the node before each; equal lines of several nodes are one line."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sapwood.core.hostset import fold_hosts

HOLD = 0.1
"""Seconds that a line waits for the same line of other nodes."""

MAX_HELD = 32 * 2**20
"""Bytes of lines that wait; beyond that the oldest come out at once."""

MAX_LINE = 256 * 1024
"""Bytes of a line without an end that are kept; a longer one comes out in pieces."""

LINE_COST = 64
"""Bytes that a line which waits costs beyond its own."""

MAX_LABELS = 1000
"""Sets of nodes whose folded names are kept."""


class LineSplitter:
    r"""Cuts bytes that come in pieces into lines.

    Example:
        >>> splitter = LineSplitter()
        >>> splitter.lines(b"one\ntw"), splitter.lines(b"o\n"), splitter.rest()
        ([b'one'], [b'two'], [])
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def lines(self, data: bytes) -> list[bytes]:
        """Take bytes in; return the lines that they complete, without their ends."""
        *lines, last = data.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self._size = [], 0
        if last:
            self._parts.append(last)
            self._size += len(last)
        if self._size > MAX_LINE:
            *pieces, last = _pieces(b"".join(self._parts))
            lines += pieces
            self._parts, self._size = [last], len(last)
        if any(len(line) > MAX_LINE for line in lines):
            return [piece for line in lines for piece in _pieces(line)]
        return lines

    def rest(self) -> list[bytes]:
        """Return the last line, if it has no end."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return [rest] if rest else []


def _pieces(line: bytes) -> Iterator[bytes]:
    for start in range(0, max(1, len(line)), MAX_LINE):
        yield line[start : start + MAX_LINE]


@dataclass(eq=False)
class _Batch:
    """Lines of a node that came at one time; those before ``at`` were shown."""

    node: str
    time: float
    lines: list[bytes]
    at: int = 0

    @property
    def is_shown(self) -> bool:
        return self.at == len(self.lines)


class LineFolder:
    r"""Labels lines, and folds equal lines of several nodes: ``n[1-4]: text``.

    Each node has a queue of lines. A line comes out when it has waited for :data:`HOLD`, when it is
    the first of all nodes, or when too many bytes wait, and with it the same line of all nodes that
    have it first. So each line comes out once, and the lines of a node stay in their order.

    Args:
        nodes: All nodes.
        write: Given the text.
        clock: Returns the time, seconds.

    Example:
        >>> shown = []
        >>> folder = LineFolder(["n1", "n2"], shown.append)
        >>> folder.take("n1", b"same\nmine\n")
        >>> folder.take("n2", b"same\n")
        >>> folder.close()
        >>> b"".join(shown)
        b'n[1-2]: same\nn1: mine\n'
    """

    def __init__(
        self,
        nodes: Sequence[str],
        write: Callable[[bytes], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._clock = clock
        self._order = {node: number for number, node in enumerate(nodes)}
        self._splitters = {node: LineSplitter() for node in nodes}
        self._queues: dict[str, deque[_Batch]] = {node: deque() for node in nodes}
        self._waiting: deque[_Batch] = deque()  # of all nodes, the oldest first
        self._first: dict[bytes, set[str]] = {}  # whose first line it is
        self._may_have = set(nodes)  # nodes that have lines, or may have some
        self._ended: set[str] = set()
        self._held = 0
        self._text: list[bytes] = []
        self._labels: dict[frozenset[str], bytes] = {}

    @property
    def held(self) -> int:
        """Bytes of lines that wait, with what each costs."""
        return self._held

    def take(self, node: str, data: bytes) -> None:
        """Take in what a node wrote."""
        self._add(node, self._splitters[node].lines(data))
        self._flush()

    def end(self, node: str) -> None:
        """Take in that a node writes no more."""
        if node in self._ended:
            return
        self._add(node, self._splitters[node].rest())
        self._ended.add(node)
        if not self._queues[node]:
            self._may_have.discard(node)
            self._show_common()
        self._flush()

    @property
    def patience(self) -> float | None:
        """Seconds until a line has waited long enough; None if none waits."""
        oldest = self._oldest()
        return None if oldest is None else max(0.0, oldest.time + HOLD - self._clock())

    def show_due(self) -> None:
        """Write what has waited long enough."""
        self._show_until(self._clock() - HOLD)
        self._flush()

    def close(self) -> None:
        """Write all that waits; lines without an end, too."""
        for node in self._splitters:
            self.end(node)
        self._show_until(float("inf"))
        self._flush()

    # --- queues --------------------------------------------------------------------------------

    def _add(self, node: str, lines: list[bytes]) -> None:
        if not lines:
            return
        batch = _Batch(node, self._clock(), lines)
        queue = self._queues[node]
        queue.append(batch)
        self._waiting.append(batch)
        self._held += _cost(lines)
        if len(queue) == 1:
            self._first.setdefault(lines[0], set()).add(node)
            self._show_common()
        while self._held > MAX_HELD and (oldest := self._oldest()) is not None:
            self._show_batch(oldest)

    def _oldest(self) -> _Batch | None:
        waiting = self._waiting
        while waiting and waiting[0].is_shown:
            waiting.popleft()
        return waiting[0] if waiting else None

    def _advance(self, node: str, count: int) -> None:
        """Take the first lines of a node, all of one batch, from its queue."""
        queue = self._queues[node]
        batch = queue[0]
        self._held -= _cost(batch.lines[batch.at : batch.at + count])
        batch.at += count
        if batch.is_shown:
            queue.popleft()
        if queue:
            self._first.setdefault(queue[0].lines[queue[0].at], set()).add(node)
        elif node in self._ended:
            self._may_have.discard(node)

    # --- what comes out ------------------------------------------------------------------------

    def _show_common(self) -> None:
        """Show what is the first line of all nodes, as long as there is such a line."""
        while len(self._first) == 1:
            ((line, nodes),) = self._first.items()
            if len(nodes) < len(self._may_have):
                return
            batches = [self._queues[node][0] for node in nodes]
            count = min(len(batch.lines) - batch.at for batch in batches)
            run = batches[0].lines[batches[0].at : batches[0].at + count]
            if any(batch.lines[batch.at : batch.at + count] != run for batch in batches):
                run = [line]
            self._show(nodes, run)

    def _show(self, nodes: set[str], lines: list[bytes]) -> None:
        """Show lines that some nodes have first."""
        del self._first[lines[0]]
        label = self._label(nodes)
        self._text += [label, (b"\n" + label).join(lines), b"\n"]
        for node in nodes:
            self._advance(node, len(lines))

    def _show_batch(self, batch: _Batch) -> None:
        """Show the lines of a batch, each with the same line of all nodes that have it first."""
        while not batch.is_shown:
            first = self._queues[batch.node][0]  # in order of arrival
            line = first.lines[first.at]
            nodes = self._first[line]
            if len(nodes) > 1:
                self._show(nodes, [line])
                continue
            others = self._first.keys() - {line}
            end = first.at + 1
            while end < len(first.lines) and first.lines[end] not in others:
                end += 1
            self._show(nodes, first.lines[first.at : end])
        self._show_common()

    def _show_until(self, moment: float) -> None:
        while (batch := self._oldest()) is not None and batch.time <= moment:
            self._show_batch(batch)

    def _label(self, nodes: set[str]) -> bytes:
        key = frozenset(nodes)
        known = self._labels.get(key)
        if known is None:
            if len(self._labels) >= MAX_LABELS:
                self._labels.clear()
            names = fold_hosts(sorted(nodes, key=self._order.__getitem__))
            known = self._labels[key] = names.encode("utf-8", "surrogateescape") + b": "
        return known

    def _flush(self) -> None:
        if self._text:
            text, self._text = self._text, []
            self._write(b"".join(text))


def _cost(lines: Sequence[bytes]) -> int:
    return sum(map(len, lines)) + LINE_COST * len(lines)
