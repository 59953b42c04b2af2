"""Gathering the answers to a wave: arrays that fit each other are summed, all else is reduced."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from sapwood.comm import messages as msg
from sapwood.comm.cached_codec import CachedDecoder
from sapwood.comm.frames import FLAG_SHARED, FrameDecoder
from sapwood.comm.framing import PREFIX_SIZE
from sapwood.comm.messages import StreamSpec
from sapwood.comm.reduction import WHOLE, Accumulator, quiet
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.rankset import Ranges
from sapwood.fastpath.exchange_library import ExchangeLibrary, milliseconds
from sapwood.session.wave_result import WaveResult

Gathered = tuple[WaveResult, int]
"""The result, and the bytes of the answers."""

Arrays = list[np.ndarray[Any, Any]]

_add = np.add


Like = tuple[bytes, bytes, int, bytes, float]
"""An answer: its prefix, its message from the ranks on, the end of that, the value's body, and its
weight."""


class ChildAnswer(NamedTuple):
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
        decoder: Decodes values.
        blocks: Maps shared memory.
    """

    __slots__ = ("_blocks", "_decoder", "_ranges", "like")

    def __init__(self, ranges: Ranges, decoder: CachedDecoder, blocks: MappedBlocks) -> None:
        self._ranges = ranges
        self._decoder = decoder
        self._blocks = blocks
        # Replaced as a whole: a thread that has lost its wave may still read, beside the next one.
        self.like: Like = (b"", b"", 0, b"", 0.0)

    def read(self, frame: bytes, head: int) -> ChildAnswer | None:
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
            return ChildAnswer(bool(body), None, weight, nbytes, first)
        value = self._decoder.decode(body, memoryview(frame)[end:])
        return ChildAnswer(bool(body), value, weight, nbytes, first)

    def _read_anew(self, frame: bytes, head: int) -> ChildAnswer | None:
        (found,) = FrameDecoder().feed(frame)
        message, payload, shared = found.message, found.payload, found.shared
        if type(message) is not msg.Up or message.ranks != self._ranges:
            return None
        if shared is not None:
            payload = self._blocks.view(shared)
        body, weight = message.body, message.weight
        nbytes = len(body) + len(payload or b"")
        value: Any = self._decoder.decode(body, payload or b"") if body else None
        end = PREFIX_SIZE + int.from_bytes(frame[4:8], "little")
        self.like = frame[:PREFIX_SIZE], frame[PREFIX_SIZE + head : end], end, body, weight
        return ChildAnswer(bool(body), value, weight, nbytes, self._ranges[0][0])


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
        decoder = CachedDecoder()
        self.ranges = ranges
        self._library = library
        self._readers = [AnswerReader(those, decoder, blocks) for those in ranges]

    def read(self, number: int) -> ChildAnswer | None:
        """Return what the answer of a child brings.

        Returns:
            None if it is for other ranks than were asked.

        Raises:
            ProtocolError: It is malformed, or memory that it names is gone.
        """
        library = self._library
        return self._readers[number].read(library.answer(number), library.memory.head_size)


class Total:
    """What the answers to a wave come to.

    Arrays that fit each other are added here. From the first answer on that does not fit, all
    goes to the reductions; first what they came to so far.

    Args:
        reduce: Reduction of each field.
    """

    __slots__ = ("_gathered", "_is_own", "_plain", "_reduce", "_sums")

    def __init__(self, reduce: Mapping[str, str]) -> None:
        self._reduce = reduce
        self._sums: Arrays | None = None
        self._plain = WHOLE not in reduce and set(reduce.values()) == {"sum"}
        self._is_own = False
        self._gathered: Accumulator | None = None

    def add(self, answer: ChildAnswer) -> None:
        """Take one more answer that has something to reduce.

        Raises:
            ExecutionError: It does not fit the others.
        """
        _, value, weight, _, rank = answer
        gathered, sums = self._gathered, self._sums
        arrays = self._summands(value) if gathered is None else None
        if arrays is not None:
            if sums is None:
                self._sums = arrays  # the contributor's: not written to
            elif self._is_own:
                for total, array in zip(sums, arrays, strict=True):
                    _add(total, array, total)
            else:
                self._sums, self._is_own = list(map(_add, sums, arrays)), True
            return
        if gathered is None:
            gathered = self._gathered = Accumulator(self._reduce)
            if sums is not None:
                gathered.add(dict(zip(self._reduce, sums, strict=True)), rank, 0.0)
        gathered.add(value, rank, weight)

    def _summands(self, value: Any) -> Arrays | None:
        """Return arrays that can be added to what there is as they are, in order of the fields."""
        if not self._plain or type(value) is not dict or value.keys() != self._reduce.keys():
            return None
        arrays = [value[field] for field in self._reduce]
        for array in arrays:
            if type(array) is not np.ndarray or not array.shape:
                return None
            if array.dtype.kind not in "iufc" or not array.dtype.isnative:
                return None
        if self._sums is not None:
            for total, array in zip(self._sums, arrays, strict=True):
                if total.dtype != array.dtype or total.shape != array.shape:
                    return None
        return arrays

    def total(self) -> Any:
        """Return the result; None if there was nothing to reduce.

        Raises:
            ExecutionError: The contributions to a field do not fit together.
        """
        if self._gathered is not None:
            return self._gathered.total()
        if self._sums is None:
            return None
        own = self._sums if self._is_own else map(np.array, self._sums)
        return dict(zip(self._reduce, own, strict=True))


def gather(
    library: ExchangeLibrary,
    spec: StreamSpec,
    answers: Answers,
    first: int,
    owner: int,
    end: float | None,
) -> Gathered | None:
    """Return the result of the answers to a wave; None if the event loop continues with it.

    Args:
        library: Where the wave was begun.
        spec: What the stream is.
        answers: Reads the answers.
        first: Number of the first wave since the library was armed.
        owner: Number of the caller that has started it.
        end: When to wait no longer, as ``time.monotonic()`` has it.

    Raises:
        SapwoodError: The answers do not fit together, or one is malformed.
    """
    with quiet():
        result = Total(spec.reduce)
        left, weight, nbytes, brought = len(answers.ranges), 0.0, 0, False
        while left:
            count = 0
            while not count:
                count = library.wait(owner, -1 if end is None else milliseconds(end - monotonic()))
            if count < 0:
                return None
            left -= count
            for each in library.arrived[:count].tolist():
                answer = answers.read(each)
                if answer is None:
                    library.abandon(owner)
                    return None
                weight += answer[2]
                nbytes += answer[3]
                if answer[0]:
                    result.add(answer)
                    brought = True
        total = result.total()
        if not brought and not spec.counted:
            total = Accumulator(spec.reduce).total()
        waves = library.commit(owner)
        if not waves:
            return None
        return WaveResult(total, spec.members, weight, first + waves - 1), nbytes
