"""Opens any slice: one whose bytes lie ready, and one whose rows are read of files here."""

from __future__ import annotations

from sapwood.comm.shared_memory import MappedBlocks
from sapwood.content.refs import ContentFolder
from sapwood.data.slice import Slice, SliceRef, open_slice

MAX_HELD = 64
"""Persistent datasets of which a runner holds its slice; the one used longest ago goes first, and
is read again when it is wanted."""


class SliceOpener:
    """Opens slices, and holds those of persistent datasets from one run to the next.

    Args:
        content: Where content is that was fetched from another machine.
    """

    def __init__(self, content: ContentFolder) -> None:
        self._content = content
        self._held: dict[str, Slice] = {}
        self._finite: set[str] = set()

    def open(self, ref: SliceRef) -> Slice:
        """Open a slice; mappings live as long as the slice.

        Raises:
            DataError: A file is gone, damaged or has changed since the dataset was loaded.
            ProtocolError: The reference is malformed or its memory is gone.
        """
        rows = ref.rows
        if rows is None:
            return open_slice(ref, MappedBlocks(), self._content)
        if rows.handle:
            held = self._held.get(rows.handle)
            names = [field.name for field in rows.fields]
            if (
                held is not None
                and (rows.handle in self._finite or not rows.finite)
                and held.start <= ref.start <= ref.stop <= held.stop
                and all(name in held.arrays for name in names)
            ):
                self._held[rows.handle] = self._held.pop(rows.handle)
                part = slice(ref.start - held.start, ref.stop - held.start)
                return Slice(ref.start, ref.stop, {name: held[name][part] for name in names})
            self.release(rows.handle)  # before the other part is read
        from sapwood.data.row_reader import read_rows  # noqa: PLC0415 - most slices need it not

        found = read_rows(rows, ref.stop - ref.start, self._content, first=ref.start)
        opened = Slice(ref.start, ref.stop, found.arrays, found.read_bytes)
        if rows.handle:
            self._held[rows.handle] = opened
            if rows.finite:
                self._finite.add(rows.handle)
            while len(self._held) > MAX_HELD:
                self.release(next(iter(self._held)))
        return opened

    def release(self, handle: str) -> None:
        """Hold the slice of a persistent dataset no longer; runs that have it open keep it."""
        self._held.pop(handle, None)
        self._finite.discard(handle)
