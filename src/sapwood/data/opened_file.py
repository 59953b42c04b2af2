"""Opens a file that rows are read of, wherever its bytes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sapwood.content.refs import ContentFolder
from sapwood.core.errors import DataValueError
from sapwood.data.byte_source import ByteSource, FetchedSource, LocalSource
from sapwood.data.stored import StoredContent, StoredFile


@contextmanager
def opened(
    file: StoredFile, content: Sequence[StoredContent], folder: ContentFolder
) -> Iterator[ByteSource]:
    """Open a file to read rows of it, and look at the end whether it was the same all the time.

    Args:
        file: The file.
        content: Its fetched parts; nothing if it is read itself.
        folder: Folder of the fetched parts.

    Raises:
        DataMissingError: It is gone, cannot be read or has changed.
    """
    source: ByteSource
    own = [one for one in content if one.path == file.path]
    if own:
        source = FetchedSource(file, own, folder)
    elif file.is_url:
        from sapwood.data.url_source import UrlSource  # noqa: PLC0415 - fsspec is optional

        source = UrlSource(file)
    else:
        source = LocalSource(file)
    try:
        yield source
        source.require_unchanged()
    except DataValueError:
        source.require_unchanged()  # if it was written to, that is what is wrong with it
        raise
    finally:
        source.close()
