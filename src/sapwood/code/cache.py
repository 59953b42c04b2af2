"""The build cache: a folder of built things by key, shared by processes and kept between runs.

::

    entries/KEY/manifest.json   what is in it, with SHA-256; written last
    entries/KEY/…               the files
    building/KEY-…/             being built, or left by a builder that was killed
    locks/KEY                   held while KEY is built
    trash/…                     evicted, being deleted

A builder holds the lock of its key, fills its own folder and renames it into place. A user
of an entry holds a shared lock on its manifest, so that it is not evicted. A killed process holds
no locks: what it left is found and removed by the next one.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from sapwood.core import typed
from sapwood.core.errors import ResourceError, SecurityError
from sapwood.environment.folders import OTHERS_WRITE, cache_folder, check_private, make_private

DEFAULT_SIZE_LIMIT: Final = 2 * 2**30
"""Bytes that all entries together may take."""

_MANIFEST = "manifest.json"
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR}


class FileRecord(msgspec.Struct, frozen=True):
    """A file of an entry."""

    sha256: str
    size: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of an entry.

    Attributes:
        description: What decided the build, for people.
        created: Seconds since 1970.
        seconds: How long the build took.
        files: Each file by its path in the entry.
    """

    description: dict[str, str]
    created: float
    seconds: float
    files: dict[str, FileRecord]


class CacheEntry:
    """An entry in use: it is not evicted while this object lives.

    Attributes:
        key: Its key.
        folder: Where its files are.
        manifest: What they are.
        built: Whether this request built it.
    """

    def __init__(self, folder: Path, manifest: Manifest, descriptor: int) -> None:
        self.key: str = folder.name
        self.folder = folder
        self.manifest = manifest
        self.built = False
        self._descriptor = descriptor

    def path(self, name: str) -> Path:
        """Return the path of one of its files."""
        return self.folder / name

    def close(self) -> None:
        """Give it back: from here on it may be evicted."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CacheEntry({self.folder})"


class CacheCounters(msgspec.Struct):
    """What one cache object did."""

    builds: int = 0
    hits: int = 0
    evictions: int = 0
    damaged: int = 0


class EntrySummary(msgspec.Struct, frozen=True):
    """An entry as ``sapwood cache show`` lists it; times in seconds since 1970."""

    key: str
    bytes: int
    used: float
    description: dict[str, str]


Fill = Callable[[Path, Path], dict[str, str]]
"""Fills the folder of an entry (first) with the help of a scratch folder (second); returns a
description."""


class BuildCache:
    """A build cache in a folder.

    Args:
        folder: Where; by default ``$XDG_CACHE_HOME/sapwood`` or ``~/.cache/sapwood``.
        size_limit: Bytes; the least recently used entries go first.

    Raises:
        ResourceError: The folder cannot be made or written.
    """

    def __init__(self, folder: Path | None = None, *, size_limit: int = DEFAULT_SIZE_LIMIT) -> None:
        self.folder: Path = (folder or cache_folder()).absolute()
        self.size_limit = size_limit
        self.counters: CacheCounters = CacheCounters()

    def get_or_build(self, key: str, fill: Fill) -> CacheEntry:
        """Return the entry of a key, building it if it is missing; others wait for one build.

        Args:
            key: Hexadecimal hash of everything that decides the result.
            fill: Builds it; what it raises is raised here, and nothing is kept.

        Raises:
            ResourceError: The disk is full or the folder cannot be written.
        """
        with self._disk_errors():
            entry = self._open(key)
            if entry is None:
                with self._building(key):
                    entry = self._open(key) or self._build(key, fill)
                if entry.built:
                    self.prune()
        self.counters.builds += entry.built
        self.counters.hits += not entry.built
        return entry

    def find(self, key: str) -> CacheEntry | None:
        """Return the entry of a key if it was built and is whole.

        Raises:
            ResourceError: The folder cannot be read.
        """
        with self._disk_errors():
            return self._open(key)

    def entries(self) -> list[EntrySummary]:
        """Return what is in the cache, least recently used first."""
        found = []
        for folder in self._subfolders("entries"):
            with contextlib.suppress(OSError, msgspec.DecodeError):
                manifest = _read_manifest(folder / _MANIFEST)
                size = sum(record.size for record in manifest.files.values())
                used = (folder / _MANIFEST).stat().st_mtime
                found.append(EntrySummary(folder.name, size, used, manifest.description))
        return sorted(found, key=lambda entry: entry.used)

    def prune(self, limit: int | None = None) -> int:
        """Remove least recently used entries over the limit, and what killed builds left.

        Entries in use by any process stay.

        Returns:
            The number of entries removed.
        """
        self._remove_leftovers()
        bound = self.size_limit if limit is None else limit
        summaries = self.entries()
        total = sum(entry.bytes for entry in summaries)
        removed = 0
        for entry in summaries:
            if total <= bound:
                break
            if self._evict(entry.key):
                total -= entry.bytes
                removed += 1
        self.counters.evictions += removed
        return removed

    def _open(self, key: str) -> CacheEntry | None:
        folder = self.folder / "entries" / key
        try:
            check_private(self.folder)
            check_private(folder.parent)
            descriptor = os.open(folder / _MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            # Evicted between open and lock: the name is gone, or is another entry by now.
            if (folder / _MANIFEST).stat().st_ino != os.fstat(descriptor).st_ino:
                raise FileNotFoundError
            manifest = _read_manifest(folder / _MANIFEST)
            _verify(folder, manifest)
            with contextlib.suppress(PermissionError):  # an entry that another user built
                os.utime(descriptor)
        except FileNotFoundError:
            os.close(descriptor)
            return None
        except (msgspec.DecodeError, _DamagedError):
            os.close(descriptor)
            self.counters.damaged += 1
            self._evict(key)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        return CacheEntry(folder, manifest, descriptor)

    def _build(self, key: str, fill: Fill) -> CacheEntry:
        for left in (self.folder / "building").glob(f"{key}*"):
            shutil.rmtree(left, ignore_errors=True)  # of a builder that was killed
        # Its compiler may live on: what that still writes must not meet what is built now.
        building = self.folder / "building" / f"{key}-{os.urandom(4).hex()}"
        entry, scratch = building / "entry", building / "scratch"
        try:
            make_private(self.folder)
            for one in (building.parent, building, entry, scratch):
                make_private(one)
            started = time.monotonic()
            description = fill(entry, scratch)
            manifest = Manifest(
                description=description,
                created=time.time(),
                seconds=time.monotonic() - started,
                files=_records(entry),
            )
            (entry / _MANIFEST).write_bytes(msgspec.json.encode(manifest))
            _take_from_others(entry)
            final = self.folder / "entries" / key
            make_private(final.parent)
            self._discard(final)  # a damaged entry that is still in use
            entry.rename(final)
        finally:
            shutil.rmtree(building, ignore_errors=True)
        opened = self._open(key)
        if opened is None:
            raise ResourceError(
                "a build vanished from the cache",
                where=str(final),
                hint="something else removes files there; choose another cache folder",
            )
        opened.built = True
        return opened

    @contextlib.contextmanager
    def _building(self, key: str) -> Iterator[None]:
        path = self.folder / "locks" / key
        make_private(path.parent)
        descriptor = _lock_file(path, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def _evict(self, key: str) -> bool:
        folder = self.folder / "entries" / key
        try:
            # Writable: NFS locks exclusively only through such a descriptor.
            descriptor = os.open(folder / _MANIFEST, os.O_RDWR | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):  # removed meanwhile, or another user's
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._discard(folder)
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
        return True

    def _discard(self, folder: Path) -> None:
        # Renamed first: readers never find half an entry, and a new one can take its place.
        trash = self.folder / "trash"
        make_private(trash)
        gone = trash / f"{folder.name}-{os.urandom(8).hex()}"
        with contextlib.suppress(FileNotFoundError):
            folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        for building in self._subfolders("building"):
            with contextlib.suppress(BlockingIOError):
                path = self.folder / "locks" / building.name.partition("-")[0]
                descriptor = _lock_file(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(building, ignore_errors=True)
                path.unlink(missing_ok=True)
                os.close(descriptor)
        for gone in self._subfolders("trash"):
            shutil.rmtree(gone, ignore_errors=True)

    def _subfolders(self, name: str) -> list[Path]:
        folder = self.folder / name
        return list(folder.iterdir()) if folder.is_dir() else []

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in _NO_SPACE:
                raise ResourceError(
                    "the disk of the build cache is full",
                    where=str(self.folder),
                    hint="free space, or choose another cache folder",
                ) from error
            if error.errno in _NO_LOCKS:
                raise ResourceError(
                    f"files of the build cache cannot be locked: {error.strerror}",
                    where=str(self.folder),
                    hint="choose a folder on a disk of this machine, for example by cache.folder "
                    "or XDG_CACHE_HOME",
                ) from error
            if error.errno in _NOT_ALLOWED or self._concerns(error):
                raise ResourceError(
                    f"the build cache cannot be written: {error.strerror}",
                    where=str(error.filename or self.folder),
                    hint="choose another cache folder, for example by XDG_CACHE_HOME",
                ) from error
            raise

    def _concerns(self, error: OSError) -> bool:
        """Whether it is about the cache's folder, or one above it that cannot be made."""
        path = Path(str(error.filename or "/"))
        return path.is_relative_to(self.folder) or (
            self.folder.is_relative_to(path) and not path.exists()
        )


class _DamagedError(Exception):
    """An entry's files are not what its manifest says."""


def _lock_file(path: Path, operation: int) -> int:
    """Open and lock a file; a file that its last holder removed meanwhile does not count."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, operation)
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _read_manifest(path: Path) -> Manifest:
    return typed.json_reader(Manifest)(path.read_bytes())


def _records(folder: Path) -> dict[str, FileRecord]:
    """Return all files in a folder and below it."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): _record(path) for path in paths}


def _record(path: Path) -> FileRecord:
    data = path.read_bytes()
    return FileRecord(hashlib.sha256(data).hexdigest(), len(data))


def _take_from_others(entry: Path) -> None:
    """Let no other user write to what was built, whatever the umask of the compilers."""
    for path in entry.rglob("*"):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS_WRITE)


def _verify(folder: Path, manifest: Manifest) -> None:
    """Check that the files of an entry are what was built.

    The manifest is stored beside them, so its hashes find damage but not an attacker. Files that
    another user owns or may write to count as damaged, and are built again.

    Raises:
        _DamagedError: They are not, or another user could have changed them.
    """
    try:
        check_private(folder)
    except SecurityError as error:
        raise _DamagedError from error
    for name, record in manifest.files.items():
        try:
            check_private(folder / name)
            found = _record(folder / name)
        except (OSError, SecurityError) as error:
            raise _DamagedError from error
        if found != record:
            raise _DamagedError
