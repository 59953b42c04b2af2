"""Reading the answers to waves: nearly all are like earlier ones, but for their arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

from sapwood.comm import messages as msg
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.frames import FLAG_SHARED, PREFIX_SIZE, FrameDecoder
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.rankset import Ranges
from sapwood.fastpath.exchange_library import ExchangeLibrary

Like = tuple[bytes, bytes, int, bytes, float]
"""An answer: its prefix, its message from the ranks on, the end of that, the value's body, and its
weight."""


class Answer(NamedTuple):
    """What a child has answered.

    Attributes:
        is_there: Whether there is something to reduce.
        value: What that is.
        weight: Items behind it.
        nbytes: Bytes of body and arrays.
        rank: The first one that it is of.
    """

    is_there: bool
    value: Any
    weight: float
    nbytes: int
    rank: int


class AnswerReader:
    """Reads the answers of one child.

    A message that is the last one again, but for its wave, is not decoded again.

    Args:
        ranges: The ranks that it brings together.
        alike: Decodes values.
        blocks: Maps shared memory.
    """

    __slots__ = ("_alike", "_blocks", "_ranges", "like")

    def __init__(self, ranges: Ranges, alike: CachedDecoder, blocks: MappedBlocks) -> None:
        self._ranges = ranges
        self._alike = alike
        self._blocks = blocks
        # Replaced as a whole: a thread that has lost its wave may still read, beside the next one.
        self.like: Like = (b"", b"", 0, b"", 0.0)

    def read(self, frame: bytes, head: int) -> Answer | None:
        """Return what an answer brings; None if it is for other ranks than were asked.

        Args:
            frame: A frame whose message begins as answers to this wave do.
            head: Size of that beginning, bytes.

        Raises:
            ProtocolError: It is malformed, or memory that it names is gone.
        """
        prefix, rest, end, body, weight = self.like
        if frame[:PREFIX_SIZE] != prefix or frame[PREFIX_SIZE + head : end] != rest:
            return self._read_anew(frame, head)
        if frame[3] & FLAG_SHARED:
            return self._read_anew(frame, head)
        nbytes, first = len(body) + len(frame) - end, self._ranges[0][0]
        if not body:
            return Answer(bool(body), None, weight, nbytes, first)
        value = self._alike.decode(body, memoryview(frame)[end:])
        return Answer(bool(body), value, weight, nbytes, first)

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
        end = PREFIX_SIZE + int.from_bytes(frame[4:8], "little")
        self.like = frame[:PREFIX_SIZE], frame[PREFIX_SIZE + head : end], end, body, weight
        return Answer(bool(body), value, weight, nbytes, self._ranges[0][0])


class Answers:
    """Reads the answers of all children.

    Args:
        ranges: The ranks that each child brings together.
        blocks: Maps shared memory.
        library: Where the answers are.

    Attributes:
        ranges: As given.
    """

    __slots__ = ("_library", "_readers", "ranges")

    def __init__(
        self, ranges: tuple[Ranges, ...], blocks: MappedBlocks, library: ExchangeLibrary
    ) -> None:
        alike = CachedDecoder()
        self.ranges = ranges
        self._library = library
        self._readers = [AnswerReader(those, alike, blocks) for those in ranges]

    def read(self, number: int) -> Answer | None:
        """Return what the answer of a child brings.

        Returns:
            None if it is for other ranks than were asked.

        Raises:
            ProtocolError: It is malformed, or memory that it names is gone.
        """
        library = self._library
        return self._readers[number].read(library.answer(number), library.memory.head_size)
