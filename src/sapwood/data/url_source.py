"""Files at URLs, read in parts through fsspec; requests that may pass later are repeated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from sapwood.core.errors import DataError, DataMissingError
from sapwood.data.byte_source import changed
from sapwood.data.stored import StoredFile

T = TypeVar("T")

ATTEMPTS: Final = 4
"""Attempts of a request while the server fails or does not answer."""

FIRST_PAUSE: Final = 0.25
"""Seconds before the second attempt; twice as many before each further one."""

CONNECT_SECONDS: Final = 10.0
"""Longest time until a server accepts a connection."""

STALL_SECONDS: Final = 20.0
"""Longest time without an answer of a server."""

BLOCK_BYTES: Final = 4 * 2**20
"""Least bytes of a request, because a request costs more than they do."""

TAGS: Final = ("ETag", "etag", "VersionId", "version_id", "Last-Modified", "LastModified", "mtime")
"""Names under which file systems report the version of a file."""

_LOST = (408, 425, 429)


def shown(url: str) -> str:
    """Return a URL for people: without passwords, and without a query, which may be a signature.

    Example:
        >>> shown("https://ann:secret@example.org:81/a.parquet?key=1")
        'https://example.org:81/a.parquet?…'
    """
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}{'?…' if parts.query else ''}"


def file_at(url: str) -> StoredFile:
    """Return the size and the version of a file.

    Raises:
        DataError: fsspec or what it needs for such URLs is not installed.
        DataMissingError: There is no such file, or the server does not answer well.
    """
    where = shown(url)
    with _used_once(url) as system:
        info = _asked(lambda: system.info(url), "ask for the size", where)
    size = info.get("size")
    if not size:
        raise DataMissingError(
            "the server does not say how many bytes the file has"
            if size is None
            else "the file is empty",
            where=where,
            hint="download it, and name the copy" if size is None else "write it again",
        )
    return StoredFile(url, int(size), 0, _tag(info))


def files_at(pattern: str) -> list[str]:
    """Return the URLs that match a pattern, sorted.

    Raises:
        DataError: fsspec or what it needs for such URLs is not installed.
        DataMissingError: The server does not list files.
    """
    with _used_once(pattern) as system:
        found = _asked(lambda: system.glob(pattern), "list files", shown(pattern))
        return sorted(system.unstrip_protocol(str(one)) for one in found)


class UrlSource:
    """A file at a URL; see :class:`~sapwood.data.byte_source.ByteSource`.

    Raises:
        DataMissingError: It cannot be had, or is another than when the dataset was loaded.
    """

    def __init__(self, file: StoredFile) -> None:
        self.where = shown(file.path)
        self.size = file.size
        self.read_bytes = 0
        self.kept: dict[str, Any] = {}
        self._file = file
        self._system = _system(file.path)
        self._block = (0, b"")
        try:
            self.require_unchanged()
        except DataMissingError:
            self.close()
            raise

    def read_at(self, offset: int, nbytes: int) -> bytes:
        """Return these bytes, all of them."""
        begin, block = self._block
        if not begin <= offset <= offset + nbytes <= begin + len(block):
            stop = min(self.size, offset + max(nbytes, BLOCK_BYTES))
            begin, block = offset, self._fetched(offset, stop)
            self._block = begin, block
        return block[offset - begin : offset - begin + nbytes]

    def require_unchanged(self) -> None:
        """Raise a DataMissingError if the file is not what it was."""
        info = _asked(lambda: self._system.info(self._file.path), "ask for the version", self.where)
        if (info.get("size"), _tag(info)) != (self._file.size, self._file.tag):
            raise changed(self.where)

    def close(self) -> None:
        """Close the connection."""
        self._block = (0, b"")
        _close(self._system)

    def _fetched(self, start: int, stop: int) -> bytes:
        what = f"read bytes {start} to {stop}"

        def fetch() -> bytes:
            data: bytes = self._system.cat_file(self._file.path, start=start, end=stop)
            if len(data) != stop - start:
                raise _TruncatedError(
                    f"{len(data)} bytes came, and {stop - start} were asked for"
                    + (
                        "; the server may not send parts of files"
                        if len(data) > stop - start
                        else ""
                    )
                )
            return data

        try:
            data = _asked(fetch, what, self.where)
        except DataMissingError:
            self.require_unchanged()  # if it is another file by now, that is the reason
            raise
        self.read_bytes += len(data)
        return data


class _TruncatedError(OSError):
    """A server sent another number of bytes."""


def _asked(ask: Callable[[], T], what: str, where: str) -> T:
    """Ask a server, and again a few times if it fails in a way that may pass."""
    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return ask()
        except FileNotFoundError as error:
            cause = error.__cause__  # fsspec says so of a server that fails, too
            if cause is None or isinstance(cause, FileNotFoundError) or not _may_pass(cause):
                loops = cause is not None and type(cause).__name__ == "TooManyRedirects"
                raise DataMissingError(
                    _reason(cause) if cause is not None and loops else "there is no such file",
                    where=where,
                    hint="check the URL",
                ) from error
            if attempt == ATTEMPTS:
                raise _failed(what, cause, attempt, where) from error
        except PermissionError as error:
            raise DataMissingError(
                f"the server does not let you {what}: {_reason(error)}",
                where=where,
                hint="check what credentials the URL needs",
            ) from error
        except Exception as error:
            if not _may_pass(error) or attempt == ATTEMPTS:
                raise _failed(what, error, attempt, where) from error
        time.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


def _failed(what: str, error: BaseException, attempts: int, where: str) -> DataMissingError:
    tried = f" ({attempts} attempts)" if attempts > 1 else ""
    return DataMissingError(
        f"the server failed to {what}: {_reason(error)}{tried}",
        where=where,
        hint="try again later, or download the file and name the copy",
    )


def _may_pass(error: BaseException) -> bool:
    status = getattr(error, "status", None)
    if isinstance(status, int) and status >= 300:
        return status >= 500 or status in _LOST
    if type(error).__name__ in {"TooManyRedirects", "NoCredentialsError"}:
        return False
    return not isinstance(error, ValueError | TypeError | NotImplementedError)


def _reason(error: BaseException) -> str:
    status = getattr(error, "status", None)
    if type(error).__name__ == "TooManyRedirects":
        return "it redirects again and again"
    if isinstance(status, int) and status:
        return f"HTTP status {status} {getattr(error, 'message', '')}".strip()
    if isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return f"it said nothing for {STALL_SECONDS:g} s"
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _tag(info: dict[str, Any]) -> str:
    return next((str(info[key]) for key in TAGS if info.get(key)), "")


@contextmanager
def _used_once(url: str) -> Iterator[Any]:
    system = _system(url)
    try:
        yield system
    finally:
        _close(system)


def _close(system: Any) -> None:
    """Close the connections of a file system now, and not when it is collected."""
    session = getattr(system, "_session", None)
    if session is not None and hasattr(system, "close_session"):
        system.close_session(system.loop, session)


def _system(url: str) -> Any:
    """Return the file system of a URL."""
    where, scheme = shown(url), urlsplit(url).scheme
    try:
        import fsspec  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise DataError(
            "reading URLs needs the package fsspec, which is not installed",
            where=where,
            hint="pip install 'sapwood[url]'",
        ) from error
    options: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    try:
        if scheme in {"http", "https"}:
            import aiohttp  # noqa: PLC0415 - an optional package

            options["client_kwargs"] = {
                "timeout": aiohttp.ClientTimeout(
                    total=None, sock_connect=CONNECT_SECONDS, sock_read=STALL_SECONDS
                ),
                "headers": {"Accept-Encoding": "identity"},
                "trust_env": True,  # HTTP_PROXY, HTTPS_PROXY, NO_PROXY and ~/.netrc
            }
        return fsspec.filesystem(scheme, **options)
    except ImportError as error:
        raise DataError(
            f"reading {scheme}:// needs a package that is not installed: {error}",
            where=where,
            hint="pip install 'sapwood[url]'" if scheme.startswith("http") else f"{error}",
        ) from error
    except ValueError as error:
        raise DataMissingError(
            f"fsspec does not know URLs of the kind {scheme}://",
            where=where,
            hint="use http://, https:// or s3://, or the path of a file",
        ) from error
