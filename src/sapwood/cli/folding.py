"""Lines of many nodes with the node before each; equal lines of several nodes are one line."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Sequence

from sapwood.core.hostset import fold_hosts

HOLD = 0.1
"""Seconds that a line waits for the same line of other nodes."""

MAX_HELD = 16 * 2**20
"""Bytes of lines that wait; beyond that the oldest come out at once."""

MAX_LINE = 256 * 1024
"""Bytes of a line without an end that are kept; a longer one comes out in pieces."""

LINE_COST = 256
"""Bytes that a line which waits costs beyond its own."""


class LineSplitter:
    """Cuts bytes that come in pieces into lines.

    Example:
        >>> splitter = LineSplitter()
        >>> splitter.lines(b"one\\ntw"), splitter.lines(b"o\\n"), splitter.rest()
        ([b'one'], [b'two'], [])
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def lines(self, data: bytes) -> list[bytes]:
        """Take bytes in; return the lines that they complete, without their ends."""
        first, *more = data.split(b"\n")
        self._parts.append(first)
        self._size += len(first)
        found: list[bytes] = []
        if more:
            found = self._pieces(b"".join(self._parts))
            for line in more[:-1]:
                found += self._pieces(line)
            self._parts, self._size = [more[-1]], len(more[-1])
        if self._size > MAX_LINE:
            *pieces, last = self._pieces(b"".join(self._parts))
            found += pieces
            self._parts, self._size = [last], len(last)
        return found

    def rest(self) -> list[bytes]:
        """Return the last line, if it has no end."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return [rest] if rest else []

    @staticmethod
    def _pieces(line: bytes) -> list[bytes]:
        starts = range(0, max(1, len(line)), MAX_LINE)
        return [line[start : start + MAX_LINE] for start in starts]


class LineFolder:
    """Labels lines, and folds equal lines of several nodes: ``n[1-4]: text``.

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
        >>> folder.take("n1", b"same\\nmine\\n")
        >>> folder.take("n2", b"same\\n")
        >>> folder.close()
        >>> b"".join(shown)
        b'n[1-2]: same\\nn1: mine\\n'
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
        self._queues: dict[str, deque[tuple[int, bytes]]] = {node: deque() for node in nodes}
        self._waiting: deque[tuple[float, int, str]] = deque()  # all lines, the oldest first
        self._first: dict[bytes, set[str]] = {}  # whose first line it is
        self._may_have = set(nodes)  # nodes that have lines, or may have some
        self._ended: set[str] = set()
        self._numbers = itertools.count()
        self._held = 0
        self._text: list[bytes] = []
        self._labels: dict[frozenset[str], bytes] = {}

    def take(self, node: str, data: bytes) -> None:
        """Take in what a node wrote."""
        self._add(node, self._splitters[node].lines(data))
        self._flush()

    def end(self, node: str) -> None:
        """Take in that a node writes no more."""
        self._ended.add(node)
        self._add(node, self._splitters[node].rest())
        if not self._queues[node]:
            self._may_have.discard(node)
            for line in list(self._first):
                if line in self._first and self._is_complete(line):
                    self._out(line)
        self._flush()

    @property
    def patience(self) -> float | None:
        """Seconds until a line has waited long enough; None if none waits."""
        self._forget_shown()
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] + HOLD - self._clock())

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

    def _add(self, node: str, lines: Sequence[bytes]) -> None:
        now = self._clock()
        queue = self._queues[node]
        for line in lines:
            number = next(self._numbers)
            queue.append((number, line))
            self._waiting.append((now, number, node))
            self._held += len(line) + LINE_COST
            if len(queue) == 1:
                self._came_first(node, line)
            while self._held > MAX_HELD and self._oldest():
                pass

    def _came_first(self, node: str, line: bytes) -> None:
        """Note the first line of a node, and show it if it is that of all."""
        self._first.setdefault(line, set()).add(node)
        if self._is_complete(line):
            self._out(line)

    def _is_complete(self, line: bytes) -> bool:
        return len(self._first[line]) >= len(self._may_have)

    def _out(self, line: bytes) -> None:
        """Show a line of all nodes that have it first, and what then is the first line of all."""
        pending = [line]
        while pending:
            line = pending.pop()
            nodes = self._first.pop(line, None)
            if nodes is None:
                continue
            self._text.append(b"%b: %b\n" % (self._label(nodes), line))
            fewer = False
            for node in nodes:
                queue = self._queues[node]
                queue.popleft()
                self._held -= len(line) + LINE_COST
                if queue:
                    following = queue[0][1]
                    self._first.setdefault(following, set()).add(node)
                    pending += [following] if self._is_complete(following) else []
                elif node in self._ended:
                    self._may_have.discard(node)
                    fewer = True
            if fewer:
                pending += [other for other in self._first if self._is_complete(other)]

    def _label(self, nodes: set[str]) -> bytes:
        key = frozenset(nodes)
        known = self._labels.get(key)
        if known is None:
            if len(self._labels) > 1000:
                self._labels.clear()
            names = sorted(nodes, key=self._order.__getitem__)
            known = self._labels[key] = fold_hosts(names).encode("utf-8", "surrogateescape")
        return known

    def _oldest(self) -> bool:
        """Show the line that waits longest; say whether there was one."""
        self._forget_shown()
        if not self._waiting:
            return False
        self._out(self._queues[self._waiting[0][2]][0][1])
        return True

    def _show_until(self, moment: float) -> None:
        while True:
            self._forget_shown()
            if not self._waiting or self._waiting[0][0] > moment:
                return
            self._oldest()

    def _forget_shown(self) -> None:
        waiting = self._waiting
        while waiting:
            _, number, node = waiting[0]
            queue = self._queues[node]
            if queue and queue[0][0] <= number:
                return
            waiting.popleft()

    def _flush(self) -> None:
        if self._text:
            text, self._text = self._text, []
            self._write(b"".join(text))
