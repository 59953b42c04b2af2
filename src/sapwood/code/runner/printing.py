"""Standard output and error of user code, which know whether there may be something to flush.

After each call what was printed is flushed. Where nothing was, as in nearly all iterations, even
that takes a tenth of what a runner does beside its function: what it looks at is in no cache.
"""

import contextlib
import io
import sys
from typing import Any

OUTPUT_FD = 1
ERROR_FD = 2


class Printing:
    """Both streams.

    Attributes:
        pending: Whether they may hold something that is not flushed.
        output: Standard output.
        error: Standard error.
    """

    __slots__ = ("_shared", "error", "output", "pending")

    def __init__(self) -> None:
        self.pending = False
        self._shared = False
        self.output = PrintStream(OUTPUT_FD, self)
        self.error = PrintStream(ERROR_FD, self)

    def share(self) -> None:
        """Record that other code can write without our knowledge from now on."""
        self.pending = self._shared = True

    def flush(self) -> None:
        """Flush them, and what user code has put in their place."""
        self.pending = self._shared
        get = vars(sys).get
        for stream in (self.output, self.error, get("stdout"), get("stderr")):
            with contextlib.suppress(Exception):  # that may be anything
                stream.flush()  # type: ignore[union-attr]  # as above

    def end_call(self) -> None:
        """End lines that a call left without an end, and restore streams that it replaced."""
        for stream in (self.output, self.error):
            with contextlib.suppress(Exception):  # user code has taken it apart
                stream.end_line()
        self.flush()
        sys.stdout, sys.stderr = self.output, self.error


class PrintStream(io.TextIOWrapper):
    """A text stream, written line by line, that notes when it is written to.

    Args:
        fd: The descriptor, which stays open.
        printing: Where that is noted.
    """

    def __init__(self, fd: int, printing: Printing) -> None:
        binary = open(fd, "wb", closefd=False)  # noqa: SIM115 - it is a descriptor
        super().__init__(binary, encoding="utf-8", errors="replace", line_buffering=True)
        self._printing = printing
        self._is_in_line = False

    def write(self, text: str, /) -> int:
        """Write a text."""
        self._printing.pending = True
        if text:
            self._is_in_line = not text.endswith("\n")
        return super().write(text)

    def end_line(self) -> None:
        """End the last line, so that the output of the next call does not continue it."""
        if self._is_in_line:
            self.write("\n")

    def close(self) -> None:
        """Flush only: other calls print to this stream, too."""
        self.flush()

    @property
    def mode(self) -> str:
        """How it was opened."""
        return "w"

    @property
    def buffer(self) -> Any:
        """The binary stream below."""
        self._printing.share()
        return super().buffer

    def detach(self) -> Any:
        """Part from the binary stream below."""
        self._printing.share()
        return super().detach()
