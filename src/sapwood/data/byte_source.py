"""The bytes of a file that rows are read of, wherever they are: on a disk, fetched, at a URL."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataMissingError, DataValueError
from sapwood.data.stored import StoredContent, StoredFile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class ByteSource(Protocol):
    """A file as it was when its dataset was loaded.

    Attributes:
        where: Its path or URL, for messages.
        size: Its size, bytes.
        read_bytes: Bytes that were read so far.
        kept: What a format keeps of it until it is closed, for example its table of contents.
    """

    where: str
    size: int
    read_bytes: int
    kept: dict[str, Any]

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return these bytes, all of them.

        Raises:
            DataMissingError: They cannot be had any more, or have changed.
        """

    def require_unchanged(self) -> None:
        """Raise a DataMissingError if the file is not what it was."""

    def close(self) -> None:
        """Close it."""


class LocalSource:
    """A file that this machine has; see :class:`ByteSource`.

    Raises:
        DataMissingError: It is gone, cannot be read or has changed.
    """

    def __init__(self, file: StoredFile) -> None:
        self.where = file.path
        self.size = file.size
        self.read_bytes = 0
        self.kept: dict[str, Any] = {}
        self._file = file
        try:
            self._fd = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise DataMissingError(
                f"a data file cannot be opened any more: {error.strerror}",
                where=file.path,
                hint="keep the file until the run is done",
            ) from error
        try:
            self.require_unchanged()
        except DataMissingError:
            os.close(self._fd)
            raise

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return these bytes, all of them."""
        parts: list[bytes] = []
        missing = nbytes
        while missing:
            try:
                part = os.pread(self._fd, missing, offset + nbytes - missing)
            except OSError as error:
                raise DataMissingError(
                    f"a data file cannot be read: {error.strerror}",
                    where=f"{self.where}, byte {offset + nbytes - missing}",
                    hint="look at the disk that it is on",
                ) from error
            if not part:
                raise DataMissingError(
                    f"a data file ends at byte {offset + nbytes - missing}, and had {self.size} "
                    "bytes when the dataset was loaded",
                    where=self.where,
                    hint="load it again, and do not write to it during a run",
                )
            parts.append(part)
            missing -= len(part)
        self.read_bytes += nbytes
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def require_unchanged(self) -> None:
        """Raise a DataMissingError if the file is not what it was."""
        status = os.fstat(self._fd)
        if (status.st_size, status.st_mtime_ns) != (self._file.size, self._file.mtime_ns):
            raise changed(self.where)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


class FetchedSource:
    """Those bytes of a file that were fetched from another machine; see :class:`ByteSource`.

    They are known by their hashes, so they do not change.
    """

    def __init__(
        self, file: StoredFile, content: Sequence[StoredContent], folder: ContentFolder
    ) -> None:
        self.where = file.path
        self.size = file.size
        self.read_bytes = 0
        self.kept: dict[str, Any] = {}
        self._folder = folder
        self._content = sorted(content, key=lambda one: one.offset)
        self._open: dict[str, int] = {}

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return these bytes, all of them."""
        parts: list[bytes] = []
        at, end = offset, offset + nbytes
        while at < end:
            part = next((o for o in self._content if o.offset <= at < o.offset + o.nbytes), None)
            if part is None:
                raise DataValueError(
                    f"byte {at} was not fetched, and the file's table of contents needs it",
                    where=self.where,
                    hint="the file is damaged; write it again",
                )
            wanted = min(end, part.offset + part.nbytes) - at
            data = os.pread(self._descriptor(part), wanted, at - part.offset)
            if not data:
                raise DataMissingError(
                    "fetched data are cut short",
                    where=self._folder.path_of(part.sha256),
                    hint="remove nothing from the content cache during a run",
                )
            parts.append(data)
            at += len(data)
        self.read_bytes += nbytes
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def require_unchanged(self) -> None:
        """Do nothing: it does not change."""

    def close(self) -> None:
        """Close it."""
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _descriptor(self, part: StoredContent) -> int:
        if part.sha256 not in self._open:
            path = self._folder.path_of(part.sha256)
            try:
                self._open[part.sha256] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise DataMissingError(
                    f"fetched data cannot be opened any more: {error.strerror}",
                    where=path,
                    hint="remove nothing from the content cache during a run",
                ) from error
        return self._open[part.sha256]


class SourceStream(io.RawIOBase):
    """A source as a file that one reads and seeks in.

    Args:
        source: The source, which stays open when this is closed.
    """

    def __init__(self, source: ByteSource) -> None:
        super().__init__()
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go somewhere."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._source.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def tell(self) -> int:
        """Return where it is."""
        return self._at

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read what fits, up to the end of the file."""
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._source.size - self._at))
        view[:count] = self._source.read_at(self._at, count) if count else b""
        self._at += count
        return count


def changed(where: str) -> DataMissingError:
    """Return the error that a file is not what it was."""
    return DataMissingError(
        "a data file has changed since the dataset was loaded",
        where=where,
        hint="load it again, and do not write to it during a run",
    )
