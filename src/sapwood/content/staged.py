"""The folder in which a node keeps what is staged there: content by its hash, and names for it.

::

    objects/SHA256       a whole file, hashed; SHA256.x if it can be executed
    parts/SHA256         a file of which only the beginning is here
    trees/DIGEST/NAME    a staged file or folder; its files are hard links to objects
    trees/DIGEST.list    what it has
    names/NAME           a link to ../trees/DIGEST/NAME

A file with more than one hard link has a name, and stays. All others may go when room is needed:
the one that was used longest ago goes first. A name is replaced in one step, by ``rename``.

Content is written from its beginning on, so the size of a partial file says how much of it is here,
also after the daemon was killed. Nothing is flushed to the disk: whoever finds a file that this
process has not hashed hashes it.

All methods may be called from any thread.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.content.file_trees import MARK, FileEntry, FileTree, checked_name
from sapwood.content.messages import (
    MissingPart,
    StagedKind,
    StagedName,
    StageFacts,
    StagePiece,
)
from sapwood.content.refs import CHUNK, checked_sha256
from sapwood.core import typed
from sapwood.core.errors import (
    ClosedError,
    DataMissingError,
    DataValueError,
    ProtocolError,
    ResourceError,
    SapwoodError,
)
from sapwood.environment.folders import make_private

PINNED: Final = 600.0
"""Seconds for which content stays without a name, because it may get one soon."""

MAX_OPEN: Final = 64
"""Partial files that are open at a time."""

_EMPTY = hashlib.sha256().hexdigest()
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NO_LINK = {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV}


class _PartialFile:
    """Content of which the beginning is here."""

    def __init__(self, fd: int, size: int, hasher: Any) -> None:
        self.fd = fd
        self.size = size
        self.hasher = hasher


class StageStore:
    """The staged files of a node.

    Args:
        folder: Where it lies; it is made when something is staged.
        limit: Bytes that it may have; 0: no limit.
        clock: The time, seconds since 1970.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     StageStore(Path(folder) / "stage", 2**20).facts().names
        []
    """

    def __init__(
        self, folder: Path, limit: int = 0, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self.limit = limit
        self._clock = clock
        self._objects, self._parts = folder / "objects", folder / "parts"
        self._trees, self._names = folder / "trees", folder / "names"
        self._changed = threading.Condition(threading.RLock())
        self._open: dict[str, _PartialFile] = {}
        self._hashed: set[tuple[int, int, int]] = set()
        self._pins: dict[str, float] = {}
        self._cleaned = False
        self._closed = False

    @property
    def names(self) -> Path:
        """The folder in which staged files are found by their names."""
        return self._names

    # --- staging -------------------------------------------------------------------------------

    def look(self, tree: FileTree) -> list[MissingPart]:
        """Return what of a tree is not here, and make room for it.

        Raises:
            ResourceError: There is no room, or the folder cannot be used.
            ProtocolError: It is not a tree.
        """
        tree.check()
        with self._explained():
            self._make()
            self._check_executable(tree)
            self._pin({one.sha256 for one in tree.files})
            missing = [
                MissingPart(sha256, nbytes, self._offset(sha256, nbytes))
                for sha256, nbytes in {one.sha256: one.nbytes for one in tree.files}.items()
                if not self._is_here(sha256, nbytes)
            ]
            needed = sum(one.nbytes - one.offset for one in missing)
            self._make_room(needed, {one.sha256 for one in tree.files})
        return missing

    def write(self, piece: StagePiece) -> None:
        """Store a piece of content; present bytes are skipped.

        Raises:
            DataValueError: The content is whole now, and not what its hash says.
            ProtocolError: The bytes before it are missing.
            ResourceError: The disk is full, or the folder cannot be used.
        """
        sha256 = checked_sha256(piece.sha256)
        with self._changed, self._explained():
            if self._closed:
                raise ClosedError("the stage of the node is being stopped")
            if self._object(sha256) is not None:
                return
            part = self._part(sha256, piece.nbytes)
            data = memoryview(piece.data)[max(part.size - piece.offset, 0) :]
            if piece.offset > part.size or part.size + len(data) > piece.nbytes:
                raise ProtocolError(
                    f"bytes from {piece.offset} on came, of {piece.nbytes}; {part.size} are here"
                )
            self._pin({sha256})
            self._append(part, data)
            if part.size == piece.nbytes:
                self._finish(sha256, part)
            self._changed.notify_all()

    def keep(self, tree: FileTree) -> StagedName:
        """Have a tree at its name, which may have been another one's.

        Raises:
            DataMissingError: Not all of it is here.
            ResourceError: The disk is full, or the folder cannot be used.
        """
        tree.check()
        with self._changed, self._explained():
            self._make()
            if not self._is_whole(tree):
                self._build(tree)
            link = self._names / tree.name
            former = self._digest_at(link)
            made = self._trees / f".{tree.digest}.name"
            made.unlink(missing_ok=True)
            made.symlink_to(f"../trees/{tree.digest}/{tree.name}")
            made.rename(link)
            if former not in {"", tree.digest}:
                self._forget(former)
            for one in tree.files:
                self._pins.pop(one.sha256, None)
            return self._view(tree, link)

    def remove(self, name: str) -> bool:
        """Have nothing at a name any more; return whether there was something."""
        link = self._names / checked_name(name)
        with self._changed, self._explained():
            digest = self._digest_at(link)
            if digest:
                link.unlink()
                self._forget(digest)
        return bool(digest)

    def facts(self) -> StageFacts:
        """Return what is staged."""
        with self._changed, self._explained():
            links = sorted(self._names.iterdir()) if self._names.is_dir() else []
            found = []
            for link in links:
                with contextlib.suppress(OSError, ValueError, SapwoodError, msgspec.MsgspecError):
                    found.append(self._view(self._listed(self._digest_at(link)), link))
            return StageFacts(
                folder=str(self.folder), limit=self.limit, held=self.held, names=found
            )

    @property
    def held(self) -> int:
        """Bytes that lie here."""
        return sum(size for _, size, _ in self._files())

    def close(self) -> None:
        """Close all files, once no transfer needs them."""
        with self._changed:
            self._closed = True
            while self._open:
                os.close(self._open.popitem()[1].fd)
            self._changed.notify_all()

    # --- for other nodes -----------------------------------------------------------------------

    def wait_for(self, sha256: str, offset: int, timeout: float) -> bytes | None:
        """Return bytes of content from an offset on, at most a chunk.

        Args:
            sha256: Which.
            offset: Where they begin.
            timeout: Seconds to wait until there are any.

        Returns:
            No bytes if there are none in time; None if the content is not here at all.
        """
        checked_sha256(sha256)
        end = time.monotonic() + timeout
        with self._changed:
            while True:
                path = self._object(sha256) or self._parts / sha256
                data = _bytes_of(path, offset)
                pinned = sha256 in self._pins
                if data or self._closed or (data is None and not pinned):
                    return None if self._closed else data
                left = end - time.monotonic()
                if left <= 0:
                    return b""
                self._changed.wait(left)

    # --- content -------------------------------------------------------------------------------

    def _make(self) -> None:
        for one in (self.folder, self._objects, self._parts, self._trees, self._names):
            make_private(one)
        if not self._cleaned:
            self._cleaned = True
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove what a daemon that was killed has begun, and trees that got no name."""
        links = (one for one in self._names.iterdir() if one.is_symlink())
        named = {one.readlink().parent.name for one in links}
        unnamed = [
            one for one in self._trees.iterdir() if one.name.removesuffix(".list") not in named
        ]
        for left in (*self._parts.glob(".*"), *unnamed):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink()

    def _check_executable(self, tree: FileTree) -> None:
        no_programs = os.statvfs(self.folder).f_flag & os.ST_NOEXEC
        if no_programs and any(one.executable for one in tree.files):
            raise ResourceError(
                "the folder for staged files is on a file system that runs no programs (noexec)",
                where=str(self.folder),
                hint="choose another one by nodes.stage_folder",
            )

    def _object(self, sha256: str) -> Path | None:
        """Return the file of content that is here, whichever its mode is."""
        for ending in ("", ".x"):
            path = self._objects / (sha256 + ending)
            if path.exists():
                return path
        return None

    def _is_here(self, sha256: str, nbytes: int) -> bool:
        """Whether content is here and is what its hash says; remove it if it is not."""
        if not nbytes and sha256 == _EMPTY:
            (self._objects / sha256).touch(0o444)
            return True
        found = False
        for ending in ("", ".x"):
            path = self._objects / (sha256 + ending)
            if not path.exists():
                continue
            if self._is_sound(path, sha256):
                os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
                found = True
            else:
                path.unlink(missing_ok=True)
        return found

    def _is_sound(self, path: Path, sha256: str) -> bool:
        with path.open("rb", buffering=0) as file:
            seen = _identity(file.fileno())
            if seen in self._hashed:
                return True
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return False
        self._hashed.add(seen)
        return True

    def _offset(self, sha256: str, nbytes: int) -> int:
        """Return how much of content is here."""
        with self._changed:
            try:
                size = (self._parts / sha256).stat().st_size
            except FileNotFoundError:
                return 0
            if size > nbytes:
                self._drop_part(sha256)
                return 0
            if size == nbytes:  # it was killed before it could look whether that is right
                self._finish(sha256, self._part(sha256, nbytes))
            return size

    def _part(self, sha256: str, nbytes: int) -> _PartialFile:
        """Open the partial file of content, and hash its bytes."""
        part = self._open.pop(sha256, None)
        if part is None:
            fd = os.open(self._parts / sha256, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(fd).st_size > nbytes:
                    os.ftruncate(fd, 0)
                hasher, size = hashlib.sha256(), 0
                while data := os.pread(fd, CHUNK, size):
                    hasher.update(data)
                    size += len(data)
            except BaseException:
                os.close(fd)
                raise
            part = _PartialFile(fd, size, hasher)
        self._open[sha256] = part  # the last one now
        while len(self._open) > MAX_OPEN:
            os.close(self._open.pop(next(iter(self._open))).fd)
        return part

    def _append(self, part: _PartialFile, data: memoryview) -> None:
        while data:
            try:
                count = os.pwrite(part.fd, data, part.size)
            except OSError as error:
                if error.errno in _FULL and self._evict(set()):
                    continue
                raise
            part.hasher.update(data[:count])
            part.size += count
            data = data[count:]

    def _finish(self, sha256: str, part: _PartialFile) -> None:
        """Make a partial file a whole one, if it is what its hash says."""
        del self._open[sha256]
        path = self._parts / sha256
        try:
            if part.hasher.hexdigest() != sha256:
                path.unlink()
                raise DataValueError(
                    "the received bytes differ from the announced ones",
                    where=f"{sha256[:16]} of {part.size} bytes",
                    hint="do not write to a file while it is being staged",
                )
            os.fchmod(part.fd, 0o444)
            self._hashed.add(_identity(part.fd))
            path.rename(self._objects / sha256)
        finally:
            os.close(part.fd)

    def _drop_part(self, sha256: str) -> None:
        part = self._open.pop(sha256, None)
        if part is not None:
            os.close(part.fd)
        (self._parts / sha256).unlink(missing_ok=True)

    # --- room ----------------------------------------------------------------------------------

    def _pin(self, contents: set[str]) -> None:
        """Let content stay for a while though it has no name."""
        now = self._clock()
        with self._changed:
            self._pins = {one: end for one, end in self._pins.items() if end > now}
            self._pins |= dict.fromkeys(contents, now + PINNED)

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """Return time of last use, size and path of each file that has content."""
        for folder in (self._objects, self._parts):
            with contextlib.suppress(FileNotFoundError):
                for one in folder.iterdir():
                    with contextlib.suppress(FileNotFoundError):
                        status = one.stat()
                        yield status.st_atime, status.st_size, one

    def _make_room(self, needed: int, own: set[str]) -> None:
        with self._changed:
            while self.limit and self.held + needed > self.limit:
                if not self._evict(own):
                    raise ResourceError(
                        f"there is no room for {needed} bytes more: {self.held} of the "
                        f"{self.limit} bytes for staged files are in use",
                        where=str(self.folder),
                        hint="`sapwood stage delete NAME` makes room, or raise nodes.stage_limit",
                    )
            while _free(self.folder) < needed:
                if not self._evict(own):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _evict(self, own: set[str]) -> bool:
        """Remove the least recently used content that is not needed; False if there is none."""
        now = self._clock()
        for _, size, path in sorted(self._files()):
            sha256 = path.name.removesuffix(".x")
            needed = sha256 in own or self._pins.get(sha256, 0.0) > now
            if size and not needed and path.stat().st_nlink == 1:
                if path.parent == self._parts:
                    self._drop_part(sha256)
                else:
                    path.unlink()
                return True
        return False

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what an error of the folder means."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise ResourceError(
                    "the disk for staged files is full",
                    where=str(self.folder),
                    hint="free space, or choose another folder by nodes.stage_folder",
                ) from error
            raise ResourceError(
                f"the folder for staged files cannot be used: {error.strerror or error}",
                where=str(error.filename or self.folder),
                hint="choose another folder by nodes.stage_folder",
            ) from error

    # --- trees ---------------------------------------------------------------------------------

    def _digest_at(self, link: Path) -> str:
        """Return the tree that a name is for; empty if there is none."""
        try:
            target = link.readlink()
        except OSError:
            return ""
        return checked_sha256(target.parent.name)

    def _listed(self, digest: str) -> FileTree:
        return typed.unpacker(FileTree)((self._trees / f"{digest}.list").read_bytes())

    def _is_whole(self, tree: FileTree) -> bool:
        """Whether a tree is there, with each of its files as it was."""
        folder = os.fsencode(self._trees / tree.digest)
        if not (self._trees / f"{tree.digest}.list").exists():
            return False
        try:
            return all(
                os.path.samestat(
                    (self._objects / _object_name(one)).stat(),
                    os.lstat(os.path.join(folder, one.path)),  # noqa: PTH118 - bytes
                )
                for one in tree.files
            )
        except OSError:
            return False

    def _build(self, tree: FileTree) -> None:
        """Make a tree of links to its files, in one step."""
        made, old = self._trees / f".{tree.digest}.new", self._trees / f".{tree.digest}.old"
        for leftover in (made, old):
            shutil.rmtree(leftover, ignore_errors=True)
        made.mkdir(mode=0o700)
        inside = os.fsencode(made)
        for one in tree.entries:
            path = os.path.join(inside, one.path)  # noqa: PTH118 - bytes
            if one.kind == "folder":
                os.mkdir(path)  # noqa: PTH102 - bytes
            elif one.kind == "link":
                os.symlink(one.target, path)  # noqa: PTH211 - bytes
            else:
                _link(self._with_mode(one), path)
        place = self._trees / tree.digest
        listing = self._trees / f"{tree.digest}.list"
        listing.write_bytes(msgspec.msgpack.encode(tree))
        if place.exists():
            place.rename(old)
        made.rename(place)
        shutil.rmtree(old, ignore_errors=True)

    def _with_mode(self, entry: FileEntry) -> Path:
        """Return the object of a file with the mode that it is to have."""
        wanted = self._objects / _object_name(entry)
        if wanted.exists():
            return wanted
        other = self._object(entry.sha256)
        if other is None:
            raise DataMissingError(
                "a part of what is to be staged is not here",
                where=f"{entry.sha256[:16]} for {os.fsdecode(entry.path)}",
                hint="stage it again",
            )
        if other.stat().st_nlink == 1:  # it does not exist with the other mode
            other.chmod(_mode(entry))
            return other.rename(wanted)
        made = self._parts / f".{wanted.name}"
        shutil.copyfile(other, made)
        made.chmod(_mode(entry))
        return made.rename(wanted)

    def _forget(self, digest: str) -> None:
        """Remove a tree that has no name any more; its files may go when room is needed."""
        if any(self._digest_at(one) == digest for one in self._names.iterdir()):
            return
        (self._trees / f"{digest}.list").unlink(missing_ok=True)
        shutil.rmtree(self._trees / digest, ignore_errors=True)

    def _view(self, tree: FileTree, link: Path) -> StagedName:
        return StagedName(
            name=tree.name,
            digest=tree.digest,
            nbytes=tree.nbytes,
            files=len(tree.files),
            path=str(link),
            since=link.lstat().st_mtime,
            kind=_kind_of(tree),
        )


def _kind_of(tree: FileTree) -> StagedKind:
    if any(one.path == os.fsencode(f"{tree.name}/{MARK}") for one in tree.entries):
        return "environment"
    return "folder" if tree.entries[0].kind == "folder" else "file"


def _object_name(entry: FileEntry) -> str:
    return entry.sha256 + (".x" if entry.executable else "")


def _mode(entry: FileEntry) -> int:
    return 0o555 if entry.executable else 0o444


def _link(source: Path, path: bytes) -> None:
    """Link a file to another path, or copy it without hard links."""
    try:
        os.link(source, path)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        shutil.copy2(os.fsencode(source), path)


def _identity(fd: int) -> tuple[int, int, int]:
    status = os.fstat(fd)
    return status.st_ino, status.st_mtime_ns, status.st_size


def _free(folder: Path) -> int:
    """Return how many bytes this user may still write."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def _bytes_of(path: Path, offset: int) -> bytes | None:
    """Return a chunk of a file; None if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.pread(fd, CHUNK, offset)
    finally:
        os.close(fd)
