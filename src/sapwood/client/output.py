"""Shows what user code prints on the agents, line by line, on standard error."""

import sys

MAX_LINE = 4096
"""Characters of one line that are shown."""


class OutputPrinter:
    """Prints the output of agents with their rank before each line."""

    def __init__(self) -> None:
        self._partial: dict[int, str] = {}

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
            sys.stderr.write("".join(f"{who}: {line[:MAX_LINE]}\n" for line in lines))
            sys.stderr.flush()
