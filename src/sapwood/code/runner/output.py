"""What a runner prints: read as it comes, bounded, kept for errors and passed on by lines."""

import contextlib
import os
from collections.abc import Callable

from sapwood.comm.loop import Loop

_READ = 64 * 1024

PASSED_ON = 1 << 20
"""Bytes of one call that are passed on as they come; errors have the end of what comes later."""

_ENOUGH = b"\n(what else this call prints is not shown)\n"


class OutputCapture:
    """Reads the pipe that is a runner's stdout and stderr.

    Args:
        loop: Event loop of the agent.
        limit: Bytes that are kept for error messages.
        on_output: Receives output as it arrives; None if it is not wanted at once.
    """

    def __init__(
        self,
        loop: Loop,
        limit: int,
        on_output: Callable[[bytes], None] | None = None,
    ) -> None:
        self._loop = loop
        self._limit = limit
        self._on_output = on_output
        self._kept = bytearray()
        self._lost = 0
        self._passed_on = 0
        self._is_in_line = False
        self._read, self.write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self.write_end, True)
        loop.add_reader(self._read, self._readable)

    def begin(self, kept: str = "") -> None:
        """Forget what was printed before, except a text: a new call begins."""
        self._kept[:] = kept.encode()
        self._lost = self._passed_on = 0

    @property
    def size(self) -> int:
        """Bytes that were printed since :meth:`begin`, as far as they were read."""
        return self._lost + len(self._kept)

    def text(self) -> str:
        """Return what was printed since :meth:`begin`; of too much, the end."""
        text = self._kept.decode("utf-8", "replace")
        return f"… {self._lost} bytes left out …\n{text}" if self._lost else text

    def drain(self) -> None:
        """Read what is in the pipe now."""
        while self._take():
            pass

    def pause(self) -> None:
        """Read only when drained: a runner writes a stack in many small pieces."""
        if self._read >= 0:
            self._loop.remove_reader(self._read)

    def resume(self) -> None:
        """Read what is printed as it comes again."""
        if self._read >= 0:
            self._loop.add_reader(self._read, self._readable)

    def close(self) -> None:
        """Stop reading; end the last line, because another runner prints the next one."""
        if self._is_in_line and self._on_output is not None:
            self._is_in_line = False
            self._on_output(b"\n")
        if self._read >= 0:
            self._loop.remove_reader(self._read)
            os.close(self._read)
            self._read = -1
        self.close_write_end()

    def close_write_end(self) -> None:
        """Close this process' copy of the end that the runner writes to."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def _readable(self) -> None:
        if not self._take(once=True):
            self._loop.remove_reader(self._read)

    def _take(self, *, once: bool = False) -> bool:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._read, _READ)
            if not data:
                return False
        if not data:
            return once
        self._kept += data
        if len(self._kept) > self._limit:
            cut = len(self._kept) - self._limit
            self._lost += cut
            del self._kept[:cut]
        if self._on_output is not None and self._passed_on <= PASSED_ON:
            self._passed_on += len(data)
            shown = data if self._passed_on <= PASSED_ON else _ENOUGH
            self._is_in_line = not shown.endswith(b"\n")
            self._on_output(shown)
        return True


def drained(capture: OutputCapture | None) -> str:
    """Return the output until now; nothing without a capture."""
    if capture is None:
        return ""
    capture.drain()
    return capture.text()
