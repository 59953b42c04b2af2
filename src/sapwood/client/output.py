"""Shows what user code prints on the agents, line by line, on standard error."""

import contextvars
import sys

MAX_LINE = 4096
"""Characters of one line that are shown."""


class OutputPrinter:
    """Prints the output of agents with their rank before each line.

    A notebook tells by the context of a write to which cell it belongs: what agents print appears
    below the cell that called the cluster last, not below the one that made it.
    """

    def __init__(self) -> None:
        self._partial: dict[int, str] = {}
        self._caller = contextvars.copy_context()

    def follow(self) -> None:
        """Print on behalf of whoever calls this, from now on."""
        self._caller = contextvars.copy_context()

    def take(self, rank: int, data: bytes) -> None:
        """Print the complete lines and keep the rest for later."""
        text = self._partial.pop(rank, "") + data.decode("utf-8", "replace")
        *lines, rest = text.split("\n")
        if len(rest) > MAX_LINE:
            lines.append(rest)
            rest = ""
        if rest:
            self._partial[rank] = rest
        if lines:
            who = f"agent {rank}" if rank else "front end"
            self._caller.run(_show, "".join(f"{who}: {line[:MAX_LINE]}\n" for line in lines))


def _show(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
