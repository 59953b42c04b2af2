"""The dataset of a program: points that the program's own Python cuts into slices."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from sapwood.errors import DataShapeError
from sapwood.plugins.data import (
    ALIGNMENT,
    FieldRef,
    MemoryPlace,
    Published,
    SharedBlock,
    Slice,
    SliceRef,
    split_range,
    values,
)
from sapwood.types import Dataset
from sapwood_lizard.block_size import WARP
from sapwood_lizard.parts import Coordinator

FIELD: Final = "encoded"
"""Field of a slice that holds the bytes of its points."""

FEWEST_POINTS: Final = WARP
"""Points of a slice, unless there are fewer in all: kernels count on a warp that has work."""

_HEADER = struct.Struct("<QQ")


class LizardDataset(Dataset):
    """Points in the form that only their program knows.

    Args:
        coordinator: Cuts them.
        origin: Where they come from, for people.

    Raises:
        DataShapeError: The data set has no points.
    """

    __slots__ = ("coordinator",)

    def __init__(self, coordinator: Coordinator, *, origin: str) -> None:
        if coordinator.items < 1:
            raise DataShapeError("the dataset has no points", where=origin)
        super().__init__({}, items=range(coordinator.items), origin=origin)
        self.coordinator = coordinator

    def split(self, parts: int, chunk: int | None = None) -> list[range]:
        """Return which points each agent gets: as even as possible, and not too few."""
        most = max(1, self.length // (chunk or FEWEST_POINTS))
        pieces = split_range(self.items, min(parts, most))
        end = self.items.stop
        return pieces + [range(end, end)] * (parts - len(pieces))

    def publish(self, fields: Sequence[str] | None = None) -> Published:
        """Make slices visible to other processes as they are asked for."""
        del fields
        return _PublishedPoints(self)


class _PublishedPoints(Published):
    """Slices in shared memory, cut and encoded on request."""

    def __init__(self, dataset: LizardDataset) -> None:
        super().__init__(dataset.items, {})
        self._dataset = dataset
        self._pieces: dict[tuple[int, int], SliceRef] = {}
        self._blocks: list[SharedBlock] = []

    def ref(self, start: int, stop: int) -> SliceRef:
        """Return what an agent needs to open the points ``start`` to ``stop``."""
        found = self._pieces.get((start, stop))
        if found is None:
            found = self._pieces[start, stop] = self._cut(start, stop)
        return found

    def close(self) -> None:
        """Withdraw the dataset; slices that agents have open stay valid."""
        super().close()
        self._pieces.clear()
        while self._blocks:
            self._blocks.pop().close()

    def _cut(self, start: int, stop: int) -> SliceRef:
        encoded = values.encode(self._dataset.coordinator.cut(start, stop))
        used = _HEADER.size + len(encoded.body)
        offset = -(-used // ALIGNMENT) * ALIGNMENT
        # A slice is as many rows of bytes as it has points; the last bytes mean nothing.
        width = -(-(offset + encoded.nbytes) // (stop - start))
        nbytes = width * (stop - start)
        block = SharedBlock(nbytes)
        self._blocks.append(block)
        _HEADER.pack_into(block.view, 0, len(encoded.body), offset)
        block.view[_HEADER.size : used] = encoded.body
        encoded.write_into(block.view[offset:])
        self.nbytes += nbytes
        field = FieldRef(FIELD, "|u1", (width,), MemoryPlace(block.ref(0, nbytes)))
        return SliceRef(start, stop, (field,))


def points_of(part: Slice) -> Any:
    """Return the points of a slice as their coordinator cut them."""
    data = part[FIELD].reshape(-1).data
    length, offset = _HEADER.unpack_from(data, 0)
    body = bytes(data[_HEADER.size : _HEADER.size + length])
    return values.decode(body, data[offset:])
