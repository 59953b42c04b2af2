"""Rows of files that an agent reads itself, as plain data.

Agents import this module, so it loads nothing but msgspec.
"""

from __future__ import annotations

import msgspec

MAX_PIECES = 100_000
"""Pieces of a dataset: row groups, batches, blocks of lines, files. An agent receives its own."""

MAX_FILES = 100_000
"""Files of a dataset."""


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    """A file, and what it was like when the dataset was loaded.

    Attributes:
        path: Its absolute path, or its URL.
        size: Its size, bytes.
        mtime_ns: Time of its last change, nanoseconds; 0 for a URL.
        tag: What a server says to tell versions apart, for example an ETag; empty for a path.
        tail: Position of its table of contents, offset and bytes; it is read with each piece.
    """

    path: str
    size: int
    mtime_ns: int = 0
    tag: str = ""
    tail: tuple[int, int] = (0, 0)

    @property
    def is_url(self) -> bool:
        """Whether it is read by its URL."""
        return "://" in self.path


class StoredPiece(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one file that are read together: a row group, a batch, a block of lines.

    Attributes:
        file: Index of the file.
        number: Which piece of the file it is; of a text the number of its first line.
        rows: How many rows it has.
        ranges: The bytes of the file that hold it, as pairs of offset and length.
        skip: Rows at its begin that are not wanted.
        take: Rows after these that are wanted; -1 for the rest.
    """

    file: int
    number: int
    rows: int
    ranges: tuple[tuple[int, int], ...]
    skip: int = 0
    take: int = -1

    @property
    def wanted(self) -> int:
        """Rows of it that are wanted."""
        return self.rows - self.skip if self.take < 0 else self.take


class StoredField(msgspec.Struct, frozen=True, array_like=True):
    """A field that is read of files.

    Attributes:
        name: Its name.
        columns: The columns that it is made of. A field that is named as its column is that;
            another one has a number of each column in its rows. The column ``""`` is all that a
            file without columns has.
        dtype: The type of its elements.
        item_shape: The shape of one row.
        stacked: Whether its rows have a number of each column.
    """

    name: str
    columns: tuple[str, ...]
    dtype: str
    item_shape: tuple[int, ...]
    stacked: bool = False


class StoredContent(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that were fetched as content.

    Attributes:
        path: The file.
        offset: Where they begin in it.
        nbytes: How many they are.
        sha256: Their hash, by which the content folder has them.
    """

    path: str
    offset: int
    nbytes: int
    sha256: str


class StoredRows(msgspec.Struct, frozen=True, array_like=True):
    """The rows of a slice, to be read where they are worked on.

    Attributes:
        format: Name of the format, see :mod:`sapwood.data.formats`.
        files: The files that have some of them.
        pieces: In which pieces, in order.
        fields: The fields that are wanted.
        finite: Whether NaN and infinite values are an error.
        layout: What the format needs to know besides, as it wrote it down.
        handle: Name of the persistent dataset that it is a slice of; empty if of none.
        content: Fetched parts, where the files themselves are not available.
    """

    format: str
    files: tuple[StoredFile, ...]
    pieces: tuple[StoredPiece, ...]
    fields: tuple[StoredField, ...]
    finite: bool = False
    layout: str = ""
    handle: str = ""
    content: tuple[StoredContent, ...] = ()

    def needed(self) -> list[tuple[StoredFile, int, int]]:
        """Return the bytes of files on disks that these rows are made of: file, offset, length."""
        found: dict[tuple[int, int], tuple[StoredFile, int, int]] = {}
        for piece in self.pieces:
            file = self.files[piece.file]
            if file.is_url or not piece.wanted:
                continue
            for offset, nbytes in (file.tail, *piece.ranges):
                before = found.get((piece.file, offset))
                if nbytes and (before is None or before[2] < nbytes):
                    found[piece.file, offset] = (file, offset, nbytes)
        return list(found.values())

    def cut(self, start: int, stop: int) -> StoredRows:
        """Return some of these rows.

        Args:
            start: The first of them, counted from the first here.
            stop: Where they end.
        """
        pieces: list[StoredPiece] = []
        used: dict[int, int] = {}
        at = 0
        for piece in self.pieces:
            begin, end = max(start, at), min(stop, at + piece.wanted)
            if begin < end:
                pieces.append(
                    msgspec.structs.replace(
                        piece,
                        file=used.setdefault(piece.file, len(used)),
                        skip=piece.skip + begin - at,
                        take=end - begin,
                    )
                )
            at += piece.wanted
        files = tuple(self.files[index] for index in used)
        return msgspec.structs.replace(self, files=files, pieces=tuple(pieces))
