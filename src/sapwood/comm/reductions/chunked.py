"""Contributions that are put together while they arrive, a piece of their arrays at a time.

That can be where every array is reduced element by element, and all contributions are alike: the
same fields with arrays of the same type and shape, at the same place of their payloads. Numbers
beside the arrays are put together as usual, from what comes with the offers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sapwood.comm import values
from sapwood.comm.array_types import dtype_from
from sapwood.comm.reductions import make_reduction
from sapwood.comm.shared_memory import ALIGNMENT
from sapwood.comm.streams.wave import Advertised
from sapwood.comm.values import ArrayMeta
from sapwood.core.errors import ProtocolError

BY_ELEMENT = {"sum": np.add, "min": np.minimum, "max": np.maximum, "mean": None}
"""Reductions of which a piece needs the same piece of each contribution only."""

KINDS = {"sum": "iufc", "min": "iufcb", "max": "iufcb", "mean": "fc"}
"""Kinds of element types that stay what they are."""

NUMBER = (int, float, complex, np.generic)

Combine = Callable[..., Any]


class Stretch(msgspec.Struct, frozen=True):
    """Position of an array in the payloads, and how it is combined; None for the mean."""

    start: int
    stop: int
    dtype: np.dtype[Any]
    combine: Combine | None


class ElementwiseChunk:
    """The same piece of all contributions, as far as they have come.

    Args:
        reduction: What it is a piece of.
        start: Where it begins in the payload.
    """

    __slots__ = ("_private", "_reduction", "_start", "_weight", "count", "view")

    def __init__(self, reduction: ElementwiseReduction, start: int) -> None:
        self._reduction = reduction
        self._start = start
        self._private = False
        self._weight = 0.0
        self.count = 0
        self.view = memoryview(b"")

    def add(self, view: memoryview, weight: float) -> None:
        """Take this piece of one more contribution.

        Raises:
            ProtocolError: It is not as long as the others.
        """
        if not self.count:
            self.view = view  # a view of what arrived: not written to
        elif len(view) != len(self.view):
            raise ProtocolError("pieces of contributions differ in length")
        else:
            if not self._private:
                self.view, self._private = memoryview(bytearray(self.view)), True
            self._reduction.combine(self.view, view, self._start, self._weight, weight)
        self._weight += weight
        self.count += 1


class ElementwiseReduction:
    """How the contributions to one wave are put together.

    Args:
        body: Body of the result.
        size: Bytes of the arrays of each contribution, and of the result.
        stretches: Where they are.

    Attributes:
        body: Body of the result.
        size: Bytes of the arrays of each contribution, and of the result.
    """

    def __init__(self, body: bytes, size: int, stretches: Sequence[Stretch]) -> None:
        self.body = body
        self.size = size
        self._stretches = stretches

    def chunk(self, start: int) -> ElementwiseChunk:
        """Return a piece that begins somewhere, with nothing in it."""
        return ElementwiseChunk(self, start)

    def combine(
        self, target: memoryview, view: memoryview, start: int, before: float, weight: float
    ) -> None:
        """Put a piece of one more contribution to those that came before."""
        stop = start + len(target)
        for one in self._stretches:
            first, last = max(start, one.start), min(stop, one.stop)
            if first >= last:
                continue
            count, offset = (last - first) // one.dtype.itemsize, first - start
            sum_so_far = np.frombuffer(target, one.dtype, count, offset)
            more = np.frombuffer(view, one.dtype, count, offset)
            with np.errstate(all="ignore"):
                if one.combine is not None:
                    one.combine(sum_so_far, more, out=sum_so_far)
                else:
                    sum_so_far += (more - sum_so_far) * (weight / (before + weight))

    def total(self, result: bytearray) -> Any:
        """Return the result; its arrays are views into the bytes."""
        return values.decode(self.body, result)


def chunked(
    reduce: Mapping[str, str], whole: str, parts: Sequence[Advertised]
) -> ElementwiseReduction | None:
    """Return how contributions are put together piece by piece; None if they cannot be.

    Args:
        reduce: Reduction of each field.
        whole: Name of the only field of contributions that are reduced as they are.
        parts: The contributions.
    """
    outlines = [_outline(part.body, reduce, whole) for part in parts]
    if any(part.size != parts[0].size for part in parts):
        return None
    merged: dict[str, Any] = {}
    stretches: list[Stretch] = []
    for field, kind in reduce.items():
        alike = [outline[field] for outline in outlines if outline is not None]
        if len(alike) < len(parts) or kind not in BY_ELEMENT:
            return None
        first = alike[0]
        if isinstance(first, ArrayMeta):
            dtype = dtype_from(first.dtype)
            if any(one != first for one in alike) or not _stays(dtype, kind):
                return None
            stop = first.offset + dtype.itemsize * int(np.prod(first.shape, dtype=np.int64))
            if not 0 <= first.offset <= stop <= parts[0].size or first.offset % dtype.itemsize:
                return None
            stretches.append(Stretch(first.offset, stop, dtype, BY_ELEMENT[kind]))
            merged[field] = first
        elif all(isinstance(one, NUMBER) for one in alike):
            reduction = make_reduction(kind)
            with np.errstate(all="ignore"):
                for number, part in zip(alike, parts, strict=True):
                    reduction.add(number, part.rank, part.weight)
                merged[field] = reduction.partial()
            if isinstance(merged[field], dict):  # what only another reduction can read
                return None
        else:
            return None
        if kind == "mean" and any(part.weight <= 0 for part in parts):
            return None
    result = merged[whole] if reduce.keys() == {whole} else merged
    return ElementwiseReduction(values.encode(result).body, parts[0].size, stretches)


def _outline(body: bytes, reduce: Mapping[str, str], whole: str) -> dict[str, Any] | None:
    value = values.outline(body)
    if reduce.keys() == {whole}:
        return {whole: value}
    return value if isinstance(value, dict) and value.keys() == reduce.keys() else None


def _stays(dtype: np.dtype[Any], kind: str) -> bool:
    """Whether a result has the type of what goes into it, and pieces do not divide elements."""
    divides = dtype.itemsize > 0 and ALIGNMENT % dtype.itemsize == 0
    return dtype.isnative and dtype.kind in KINDS[kind] and divides
