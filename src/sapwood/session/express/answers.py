"""Reading the answers of one child: nearly all are like the one before, but for their arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from sapwood.comm import messages as msg
from sapwood.comm.alike import Alike
from sapwood.comm.frames import PREFIX_SIZE, FrameDecoder
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.rankset import Ranges

Answer = tuple[bool, Any, float, int]
"""Whether there is something to reduce, what, the weight, and the bytes of body and arrays."""

Like = tuple[bytes, bytes, int, bytes, float, dict[bytes, tuple[dict[str, Any], int]] | None]
"""An answer: its prefix, its message from the ranks on, the end of that, the value's body, its
weight; and the values by their references, where they lie in shared memory."""


class AnswerReader:
    """Reads the answers of one child.

    A message that is the last one again, but for its wave, is not decoded again; nor are arrays
    that lie where those of an earlier answer lay.

    Args:
        ranges: The ranks that it brings together.
        alike: Decodes values.
        blocks: Maps shared memory.
        most: Places there that it keeps in mind; a child uses two or three in turn.
    """

    __slots__ = ("_alike", "_blocks", "_like", "_most", "_ranges")

    def __init__(self, ranges: Ranges, alike: Alike, blocks: MappedBlocks, most: int) -> None:
        self._ranges = ranges
        self._alike = alike
        self._blocks = blocks
        self._most = most
        # Replaced as a whole: a thread that has lost its wave may still read, beside the next one.
        self._like: Like = (b"", b"", 0, b"", 0.0, None)

    def read(self, frame: bytes, head: int) -> Answer | None:
        """Return what an answer brings; None if it is for other ranks than were asked.

        Args:
            frame: A frame whose message begins as answers to this wave do.
            head: Size of that beginning, bytes.

        Raises:
            ProtocolError: It is malformed, or memory that it names is gone.
        """
        prefix, rest, end, body, weight, known = self._like
        if frame[:PREFIX_SIZE] != prefix or frame[PREFIX_SIZE + head : end] != rest:
            return self._read_anew(frame, head)
        if known is not None:
            found = known.get(frame[end:])
            return (
                self._read_anew(frame, head)
                if found is None
                else (True, found[0], weight, found[1])
            )
        nbytes = len(body) + len(frame) - end
        if not body:
            return False, None, weight, nbytes
        return True, self._alike.decode(body, memoryview(frame)[end:]), weight, nbytes

    def _read_anew(self, frame: bytes, head: int) -> Answer | None:
        (found,) = FrameDecoder().feed(frame)
        message, payload, shared = found.message, found.payload, found.shared
        if type(message) is not msg.Up or message.ranks != self._ranges:
            return None
        if shared is not None:
            payload = self._blocks.view(shared)
        body, weight = message.body, message.weight
        nbytes = len(body) + len(payload or b"")
        value: Any = self._alike.decode(body, payload or b"") if body else None
        prefix, end = frame[:PREFIX_SIZE], PREFIX_SIZE + int.from_bytes(frame[4:8], "little")
        rest = frame[PREFIX_SIZE + head : end]
        if shared is None:
            self._like = prefix, rest, end, body, weight, None
        elif _is_arrays(value):  # anything else could be changed by whom it is given to
            known = self._like[-1] if self._like[:2] == (prefix, rest) else None
            known = {} if known is None or len(known) >= self._most else known
            known[frame[end:]] = value, nbytes
            self._like = prefix, rest, end, body, weight, known
        return bool(body), value, weight, nbytes


def _is_arrays(value: Any) -> bool:
    return type(value) is dict and all(type(array) is np.ndarray for array in value.values())
