"""Shows what user code prints on the agents, line by line, on standard error."""

import contextvars
import sys
import threading
from dataclasses import dataclass

from sapwood.activity.notebook import follow_cells
from sapwood.core.rankset import fold
from sapwood.core.terminal_text import RESET, has_colours, printable
from sapwood.environment.standard_error import stderr_writer

MAX_LINE = 4096
"""Characters of one line that are shown."""

MAX_PARTIAL = 4 * MAX_LINE
"""Bytes of a line without an end that are kept: as many as its characters can have."""

HOLD = 0.1
"""Seconds that a line waits for the same line of other agents."""

MAX_HELD = 256
"""Different lines that wait."""


@dataclass
class _OutputLine:
    text: str
    ranks: set[int]


class OutputPrinter:
    """Prints the output of agents with their rank before each line.

    The same line of several agents is printed once, ``agent[1-4]: text``. For that lines wait a
    tenth of a second. The lines of one agent stay in their order.

    A notebook finds the cell to which a write belongs by its context. What agents print appears
    below the cell that began last or called the cluster last: programs that execute notebooks drop
    what belongs to a cell that is over. So lines that wait are printed when a cell ends.

    Args:
        agents: Number of agents; higher ranks are junctions.
    """

    def __init__(self, agents: int = sys.maxsize) -> None:
        self._agents = agents
        self._hold = HOLD if agents > 1 else 0.0  # one agent shares no line
        self._partial: dict[int, bytes] = {}
        self._cut: set[int] = set()  # agents whose line is shown only in part
        self._caller = contextvars.copy_context()
        self._lock = threading.RLock()
        self._held: list[_OutputLine] = []
        self._last: dict[int, int] = {}  # where in what is held the last line of an agent is
        self._timer: threading.Timer | None = None
        self._leave_cells = follow_cells(self.follow, self.flush)

    def follow(self) -> None:
        """Print on behalf of whoever calls this, from now on."""
        self._pass_on()
        self._caller = contextvars.copy_context()

    def take(self, rank: int, data: bytes) -> None:
        """Print the complete lines, soon, and keep the rest for later."""
        data = self._partial.pop(rank, b"") + data
        if rank in self._cut:
            _, end, data = data.partition(b"\n")
            if not end:
                return
            self._cut.discard(rank)
        *lines, rest = data.split(b"\n")
        if len(rest) > MAX_PARTIAL:
            rest = rest.rpartition(b"\r")[2]  # of a progress bar the last state
        if len(rest) > MAX_PARTIAL:
            lines.append(rest)
            rest = b""
            self._cut.add(rank)
        if rest:
            self._partial[rank] = rest
        with self._lock:
            for line in lines:
                self._add(rank, _shown(line))
            if self._held and self._timer is None and self._hold:
                self._timer = threading.Timer(self._hold, self._pass_on)
                self._timer.daemon = True
                self._timer.start()
            full = len(self._held) >= MAX_HELD
        if full or not self._hold:
            self._pass_on()

    def flush(self) -> None:
        """Print what waits for the same lines of other agents, and wait a moment until it is.

        Not on the event loop's thread: standard error may be slow.
        """
        self._pass_on()
        stderr_writer.flush()

    def _pass_on(self) -> None:
        """Give what is held to the writer."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            held, self._held = self._held, []
            self._last.clear()
            if held:
                text = "".join(f"{self._who(line.ranks)}: {line.text}\n" for line in held)
                stderr_writer.write(text, self._caller)

    def close(self) -> None:
        """Print what is there; lines without an end, too."""
        self._leave_cells()
        for rank in sorted(self._partial):
            self.take(rank, b"\n")
        self.flush()

    def _who(self, ranks: set[int]) -> str:
        agents = {rank for rank in ranks if 0 < rank <= self._agents}
        junctions = ranks - agents - {0}
        parts = ["client"] * (0 in ranks)
        parts += [fold("agent", agents)] * bool(agents)
        parts += [fold("junction", junctions)] * bool(junctions)
        return ", ".join(parts)

    def _add(self, rank: int, text: str) -> None:
        """Add a line to the first same line behind the last one of that agent, or at the end."""
        for index in range(self._last.get(rank, -1) + 1, len(self._held)):
            if self._held[index].text == text:
                self._held[index].ranks.add(rank)
                self._last[rank] = index
                return
        self._last[rank] = len(self._held)
        self._held.append(_OutputLine(text, {rank}))


def _shown(line: bytes) -> str:
    r"""Return a line as a terminal would leave it: a progress bar rewrites it many times.

    Escape sequences other than colours become visible text.

    Example:
        >>> _shown(b"\r  0 % |\r 50 % |##\r100 % |####\r")
        '100 % |####'
        >>> _shown(b"\x1b[32mok\x1b]0;title")
        '\x1b[32mok^[]0;title\x1b[0m'
    """
    text = line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")
    text = printable(text if len(text) <= MAX_LINE else f"{text[: MAX_LINE - 1]}…", colours=True)
    return text + RESET if has_colours(text) else text
