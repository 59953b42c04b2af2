"""Reading the answers to waves: nearly all are like earlier ones, but for their arrays."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sapwood.comm import messages as msg
from sapwood.comm.alike import Alike, arrays_at, fields_of
from sapwood.comm.frames import FLAG_SHARED, PREFIX_SIZE, FrameDecoder
from sapwood.comm.reduction import WHOLE
from sapwood.comm.shared_memory import MappedBlocks
from sapwood.core.rankset import Ranges
from sapwood.session.express.library import MAX_SERIAL, ExpressLibrary

Arrays = list[np.ndarray[Any, Any]]

Kinds = tuple[tuple[np.dtype[Any], tuple[int, ...]], ...]
"""Type and shape of each array of a value."""

MAX_ZEROS = 64 * 1024
"""Bytes of arrays that are small."""


class Layout:
    """What the arrays are whose values are summed field by field: one object for all that fit.

    Args:
        kinds: Type and shape of each.

    Attributes:
        zeros: The same without anything in them, if they are small; else nothing.
    """

    __slots__ = ("zeros",)

    def __init__(self, kinds: Kinds) -> None:
        nbytes = sum(dtype.itemsize * math.prod(shape) for dtype, shape in kinds)
        small = kinds if nbytes <= MAX_ZEROS else ()
        self.zeros = [np.zeros(shape, dtype) for dtype, shape in small]


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
        arrays: The same in the order of the stream's fields, if all are arrays to be summed
            as they are.
        layout: What these are.
    """

    is_there: bool
    value: Any
    weight: float
    nbytes: int
    rank: int
    arrays: Arrays | None = None
    layout: Layout | None = None


class AnswerReader:
    """Reads the answers of one child.

    A message that is the last one again, but for its wave, is not decoded again.

    Args:
        ranges: The ranks that it brings together.
        alike: Decodes values.
        blocks: Maps shared memory.
    """

    __slots__ = ("_alike", "_blocks", "_ranges", "like")

    def __init__(self, ranges: Ranges, alike: Alike, blocks: MappedBlocks) -> None:
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

    Those that come again, but for what is in their arrays, are known by what the library lets them
    arrive with: nothing of them is read.

    Args:
        reduce: Reduction of each field.
        ranges: The ranks that each child brings together.
        blocks: Maps shared memory.
        library: Where the answers are.

    Attributes:
        ranges: As given.
        known: Answers by what they arrive with.
    """

    __slots__ = ("_layouts", "_library", "_readers", "_serials", "_summed", "known", "ranges")

    def __init__(
        self,
        reduce: Mapping[str, str],
        ranges: tuple[Ranges, ...],
        blocks: MappedBlocks,
        library: ExpressLibrary,
    ) -> None:
        alike = Alike()
        self.ranges = ranges
        self.known: dict[int, Answer] = {}
        self._layouts: dict[Kinds, Layout] = {}
        fields = WHOLE not in reduce and set(reduce.values()) == {"sum"}
        self._summed = list(reduce) if fields else None
        self._library = library
        self._readers = [AnswerReader(those, alike, blocks) for those in ranges]
        self._serials = itertools.count(1)

    def read(self, owner: int, number: int) -> Answer | None:
        """Return what the answer of a child brings that is not known.

        Args:
            owner: Who has the wave.
            number: The child.

        Returns:
            None if it is for other ranks than were asked.

        Raises:
            ProtocolError: It is malformed, or memory that it names is gone.
        """
        library, reader = self._library, self._readers[number]
        frame, before = library.answer(number), reader.like
        answer = reader.read(frame, library.memory.head_size)
        if answer is not None and reader.like == before:  # it may well come again
            self._remember(owner, number, frame, answer)
        return answer

    def _remember(self, owner: int, number: int, frame: bytes, answer: Answer) -> None:
        end, value = PREFIX_SIZE + int.from_bytes(frame[4:8], "little"), answer.value
        payload = memoryview(frame)[end:]
        fields = fields_of(value, payload)  # anything else could be changed by whom it is given to
        serial = next(self._serials)
        if not fields or serial > MAX_SERIAL:
            return
        forgotten = self._library.remember(owner, number, serial)
        if forgotten < 0:
            return
        self.known.pop(forgotten << 8 | number, None)
        if not frame[3] & FLAG_SHARED:
            value = arrays_at(fields, self._library.payload(number, end, len(payload)))
        arrays, layout = self._summands(value)
        self.known[serial << 8 | number] = answer._replace(
            value=value, arrays=arrays, layout=layout
        )

    def _summands(self, value: dict[str, Any]) -> tuple[Arrays | None, Layout | None]:
        """Return arrays that are summed without any preparation, in order, and what they are."""
        if self._summed is None or value.keys() != set(self._summed):
            return None, None
        arrays = [value[field] for field in self._summed]
        kinds = tuple((array.dtype, array.shape) for array in arrays)
        if not all(dtype.kind in "iufc" and dtype.isnative and shape for dtype, shape in kinds):
            return None, None
        layout = self._layouts.get(kinds)
        if layout is None:
            layout = self._layouts[kinds] = Layout(kinds)
        return arrays, layout
