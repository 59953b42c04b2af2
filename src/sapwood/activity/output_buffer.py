"""A bounded buffer for the output of a runner on its way to the client; drops are reported."""

MAX_WAITING = 256 * 1024
"""Bytes of output that wait to be sent to the client; older ones are dropped."""


class OutputBuffer:
    r"""Output that waits to be sent.

    Args:
        limit: Most bytes that wait.

    Example:
        >>> printed = OutputBuffer(8)
        >>> printed.add(b"one\ntwo\nthree\n")
        >>> print(printed.take().decode(), end="")
        … 8 bytes left out …
        three
        >>> printed.take()
        b''
    """

    __slots__ = ("_dropped", "_limit", "_waiting", "_whole_lines")

    def __init__(self, limit: int = MAX_WAITING) -> None:
        self._waiting = bytearray()
        self._dropped = 0
        self._limit = limit
        self._whole_lines = True

    def add(self, data: bytes) -> None:
        """Note what was printed; of too much, the end, from the begin of a line on."""
        self._waiting += data
        surplus = len(self._waiting) - self._limit
        if surplus > 0:
            line = self._waiting.find(b"\n", surplus - 1) + 1
            cut = line or surplus
            self._dropped += cut
            del self._waiting[:cut]

    def take(self) -> bytes:
        """Return what waits, after a line that says how much was dropped before it."""
        data = bytes(self._waiting)
        if self._dropped:
            end_of_line = "" if self._whole_lines else "\n"
            data = f"{end_of_line}… {self._dropped} bytes left out …\n".encode() + data
        self._whole_lines = data.endswith(b"\n") if data else self._whole_lines
        self._waiting.clear()
        self._dropped = 0
        return data
