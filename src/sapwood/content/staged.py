"""The files that are staged on a node: content by its hash, and names for it.

::

    objects/             content, as :mod:`sapwood.content.store` has it
    trees/DIGEST/NAME    a staged file or folder; its files are hard links to objects
    trees/DIGEST.list    what it has
    names/NAME           a link to ../trees/DIGEST/NAME

A file with more than one hard link has a name, and stays. All others may go when room is needed. A
name is replaced in one step, by ``rename``.

Nothing is flushed to the disk: a process hashes each file that it has not written itself.

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
from typing import Final

import msgspec

from sapwood.content.file_trees import MARK, FileEntry, FileTree, checked_name
from sapwood.content.messages import (
    MissingPart,
    StagedKind,
    StagedName,
    StageFacts,
    StagePiece,
)
from sapwood.content.refs import checked_sha256
from sapwood.content.room import Pins
from sapwood.content.store import (
    EXECUTABLE,
    PART,
    ContentStore,
    PartialContent,
    StoreTexts,
)
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

MAX_OPEN: Final = 64
"""Partial files that are open at a time."""

STAGE_TEXTS: Final = StoreTexts(
    what="the folder for staged files",
    limit="`sapwood stage delete NAME` makes room, or raise nodes.stage_limit",
    folder="nodes.stage_folder",
)

_NEW = ".new"
_EMPTY = hashlib.sha256().hexdigest()
_NO_LINK = {errno.EMLINK, errno.EPERM, errno.EOPNOTSUPP, errno.EXDEV}


class StageStore:
    """The staged files of a node.

    Args:
        folder: Where they are; it is made when something is staged. One process has it.
        limit: Bytes that it may hold; 0: no limit.
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
        self._pins = Pins(clock)
        self._objects = ContentStore(
            folder / "objects", limit, STAGE_TEXTS, wait=True, pins=self._pins
        )
        self._trees, self._names = folder / "trees", folder / "names"
        self._changed = threading.Condition(threading.RLock())
        self._open: dict[str, PartialContent] = {}
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
        contents = {one.sha256: one.nbytes for one in tree.files}
        with self._explained():
            self._make()
            self._check_executable(tree)
            with self._changed:
                self._pins.pin(contents)
            missing = []
            needed = 0
            for sha256, nbytes in contents.items():
                offset = nbytes if self._is_here(sha256, nbytes) else self._offset(sha256, nbytes)
                if offset < nbytes:
                    missing.append(MissingPart(sha256, nbytes, offset))
                    needed += 0 if offset else nbytes  # a partial file has its room
            with self._changed:
                self._close_unpinned()
                self._objects.make_room(needed)
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
            data = memoryview(piece.data)[max(part.written - piece.offset, 0) :]
            if piece.offset > part.written or part.written + len(data) > piece.nbytes:
                raise ProtocolError(
                    f"bytes from {piece.offset} on came, of {piece.nbytes}; {part.written} are here"
                )
            self._pins.pin({sha256})
            part.append(data)
            if part.written == piece.nbytes:
                self._finish(part)
            self._changed.notify_all()

    def keep(self, tree: FileTree) -> StagedName:
        """Have a tree at its name, which may have been another one's.

        Raises:
            DataMissingError: Not all of it is here.
            ResourceError: The disk is full, or the folder cannot be used.
        """
        tree.check()
        contents = {one.sha256 for one in tree.files}
        with self._changed, self._explained():
            self._make()
            self._pins.pin(contents)
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
            self._pins.unpin(contents)
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
        """Bytes of all content, partial and unnamed content as well."""
        return sum(file.nbytes for file in self._objects.files())

    def close(self) -> None:
        """Close all files, once no transfer needs them."""
        with self._changed:
            self._closed = True
            while self._open:
                self._open.popitem()[1].close()
            self._changed.notify_all()

    # --- for other nodes -----------------------------------------------------------------------

    def wait_for(self, sha256: str, nbytes: int, offset: int, timeout: float) -> bytes | None:
        """Return bytes of content from an offset on, at most a chunk.

        Content that is served stays for a while.

        Args:
            sha256: The content.
            nbytes: Its size.
            offset: Where the bytes begin.
            timeout: Seconds to wait until there are any.

        Returns:
            No bytes if there are none in time; None if the content is not here at all.
        """
        checked_sha256(sha256)
        end = time.monotonic() + timeout
        with self._changed:
            while not self._closed:
                data = self._objects.read(sha256, nbytes, offset)
                if data is None and sha256 not in self._pins:
                    return None
                if data:
                    self._pins.pin({sha256})
                    return data
                left = end - time.monotonic()
                if left <= 0:
                    return b""
                self._changed.wait(left)
        return None

    # --- content -------------------------------------------------------------------------------

    def _make(self) -> None:
        self._objects.make()
        for one in (self.folder, self._trees, self._names):
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
        former = self.folder / "parts"  # of former versions
        for left in (former, *self._objects.folder.glob(f"*{_NEW}"), *unnamed):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)

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
        for ending in ("", EXECUTABLE):
            path = self._objects.path_of(sha256, ending)
            if path.exists():
                return path
        return None

    def _is_here(self, sha256: str, nbytes: int) -> bool:
        """Whether content is here and is what its hash says; remove it if it is not."""
        if not nbytes and sha256 == _EMPTY:
            self._objects.path_of(sha256).touch(0o444)
            return True
        paths = [self._objects.path_of(sha256, ending) for ending in ("", EXECUTABLE)]
        sound = [self._objects.verify(path, sha256) for path in paths]
        return any(sound)

    def _offset(self, sha256: str, nbytes: int) -> int:
        """Return how much of content is here that is not whole."""
        with self._changed:
            if not self._objects.path_of(sha256, PART).exists():
                return 0
            part = self._part(sha256, nbytes)
            if part.written == nbytes:  # it was killed before it could look whether that is right
                try:
                    self._finish(part)
                except DataValueError:
                    return 0
            return part.written

    def _part(self, sha256: str, nbytes: int) -> PartialContent:
        """Open the partial file of content, and hash its bytes."""
        part = self._open.pop(sha256, None)
        if part is not None and part.nbytes != nbytes:
            part.close()
            part = None
        if part is None:
            part = self._objects.lead(sha256, nbytes)
            if part is None:
                raise BlockingIOError(errno.EAGAIN, "another process writes to it")
            try:
                while part.resume():
                    pass
                if not self._objects.reserve(part):
                    raise BlockingIOError(errno.EAGAIN, "another process makes room in it")
            except BaseException:
                part.close()
                raise
        self._open[sha256] = part  # the last one now
        while len(self._open) > MAX_OPEN:
            self._open.pop(next(iter(self._open))).close()
        return part

    def _finish(self, part: PartialContent) -> None:
        """Make a partial file a whole one, if it is what its hash says."""
        self._open.pop(part.sha256, None)
        try:
            os.close(part.finish())
        finally:
            part.close()

    def _close_unpinned(self) -> None:
        """Close partial files that nothing was written to for long: they may be removed then."""
        for sha256 in [one for one in self._open if one not in self._pins]:
            self._open.pop(sha256).close()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Replace an error of the folder by one that says what to do."""
        try:
            yield
        except OSError as error:
            raise self._objects.explained(error) from error

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
                    self._with_ending(one).stat(),
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
        whole = self._trees / tree.digest
        listing = self._trees / f"{tree.digest}.list"
        listing.write_bytes(msgspec.msgpack.encode(tree))
        if whole.exists():
            whole.rename(old)
        made.rename(whole)
        shutil.rmtree(old, ignore_errors=True)

    def _with_mode(self, entry: FileEntry) -> Path:
        """Return the object of a file with the mode that it is to have."""
        wanted = self._with_ending(entry)
        if wanted.exists():
            return wanted
        other = self._object(entry.sha256)
        if other is None:
            raise DataMissingError(
                "a file that was staged is missing on this node",
                where=f"{entry.sha256[:16]} for {os.fsdecode(entry.path)}",
                hint="stage it again",
            )
        if other.stat().st_nlink == 1:  # it does not exist with the other mode
            other.chmod(_mode(entry))
            return other.rename(wanted)
        self._objects.make_room(entry.nbytes)
        made = self._objects.path_of(entry.sha256, _NEW)
        shutil.copyfile(other, made)
        made.chmod(_mode(entry))
        return made.rename(wanted)

    def _with_ending(self, entry: FileEntry) -> Path:
        return self._objects.path_of(entry.sha256, EXECUTABLE if entry.executable else "")

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
