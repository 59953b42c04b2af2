"""The store of one head: an SQLite file in a separate folder.

One process at a time has the folder (:mod:`sapwood.store.folder_lock`), and in it one connection,
which all threads share. A transaction is on the disk when its call returns. The file keeps the
last changes besides the entries, so that a watch is a place in that history and not a queue.

Leases are counted by the clock of this process: a store that is opened again gives each lease its
whole time again, so that holders that outlived the head can say so.
"""

from __future__ import annotations

import contextlib
import math
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from sapwood.core.clock import Clock, MonotonicClock
from sapwood.core.errors import (
    ClosedError,
    HistoryGoneError,
    LeaseLostError,
    ResourceError,
    SapwoodError,
    StoreError,
    StoreFullError,
    StoreInUseError,
)
from sapwood.core.failures import new_thread
from sapwood.environment.folders import make_private
from sapwood.store.base import (
    MAX_LEASES,
    MAX_PAGE,
    MAX_PAGE_BYTES,
    MAX_WATCHES,
    Change,
    Delete,
    Page,
    Put,
    Store,
    StoreEntry,
    StoreEvent,
    StoreWatch,
    Unchanged,
    check_lease_time,
    check_limit,
    check_transaction,
    key_bytes,
    prefix_bytes,
    prefix_end,
)
from sapwood.store.file_system import is_local
from sapwood.store.folder_lock import FolderLock

NAME: Final = "store.db"
"""The file in the folder."""

SCHEMA: Final = 1
"""Version of the tables; a file of a greater one is refused."""

APPLICATION: Final = 0x53617057
"""``SapW``: what the header of the file says whose it is."""

HISTORY: Final = 20_000
"""Changes of keys that are kept for watches."""

HISTORY_BYTES: Final = 64 * 2**20
"""Bytes of keys and values of these."""

MAX_FILE: Final = 2**30
"""Bytes of the file; beyond that the store counts as full."""

_PAGE_SIZE: Final = 4096

_BUSY: Final = 2.0
"""Seconds to wait for a program that looks into the file, for example a copy being made."""

_RETRY: Final = 1.0
"""Seconds after which an expired lease that could not be cleared is tried again."""

_TABLES: Final = f"""
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
CREATE TABLE state (revision INTEGER NOT NULL, forgotten INTEGER NOT NULL);
INSERT INTO state VALUES (0, 0);
CREATE TABLE entries (
    key BLOB PRIMARY KEY, value BLOB NOT NULL,
    created INTEGER NOT NULL, modified INTEGER NOT NULL, lease INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_of_lease ON entries (lease) WHERE lease != 0;
CREATE TABLE history (
    revision INTEGER NOT NULL, key BLOB NOT NULL, value BLOB,
    created INTEGER NOT NULL, lease INTEGER NOT NULL,
    PRIMARY KEY (revision, key)
) WITHOUT ROWID;
CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, seconds REAL NOT NULL);
"""  # noqa: S608 - both numbers are ours


class SqliteStore(Store):
    """A store in a folder, for one head.

    Args:
        folder: Its folder. It is made if it is missing; no other user may enter it.
        clock: Tells when leases end.

    Raises:
        StoreInUseError: Another process has it; the error names host, process and time.
        StoreError: The folder cannot be used, or the file is damaged or of a newer version.
    """

    def __init__(self, folder: Path, *, clock: Clock | None = None) -> None:
        self.url = f"sqlite://{folder.absolute()}"
        self._path = folder.absolute() / NAME
        self._clock = clock or MonotonicClock()
        self._pid = os.getpid()
        self._changed = threading.Condition(threading.RLock())
        self._deadlines: dict[int, float] = {}
        self._seconds: dict[int, float] = {}
        self._soonest = math.inf  # no lease ends before
        self._watches: set[_SqliteWatch] = set()
        self._keeper: threading.Thread | None = None
        self._closed = False
        _prepare(folder)
        self._lock = FolderLock(folder)
        try:
            with self._changed, self._explained():
                self._file = _opened(self._path)
                self._begin()
        except BaseException:
            self._lock.release()
            raise

    def _begin(self) -> None:
        """Read what is kept in memory: the revision, the extent of the history, the leases."""
        try:
            self._revision: int
            self._revision, self._forgotten = self._file.execute(
                "SELECT revision, forgotten FROM state"
            ).fetchone()
            self._kept, self._kept_bytes = self._file.execute(
                "SELECT count(*), coalesce(sum(length(key) + coalesce(length(value), 0)), 0)"
                " FROM history"
            ).fetchone()
            now = self._clock.now()
            for lease, seconds in self._file.execute("SELECT id, seconds FROM leases"):
                self._seconds[lease] = seconds
                self._deadlines[lease] = now + seconds
        except BaseException:
            self._file.close()
            raise
        if self._deadlines:
            self._watch_over_leases(min(self._deadlines.values()))

    # --- reading ---------------------------------------------------------------------------

    def get(self, key: str) -> StoreEntry | None:
        """Return the entry of a key; None if it is not there."""
        wanted = key_bytes(key)
        with self._working():
            found = self._row(wanted)
        return _entry(found) if found else None

    def range(self, prefix: str, *, after: str = "", limit: int = MAX_PAGE) -> Page:
        """Return the entries whose keys begin with ``prefix``, one page of them."""
        check_limit(limit)
        start = prefix_bytes(prefix)
        entries: list[StoreEntry] = []
        size = 0
        with self._working():
            rows = self._file.execute(
                "SELECT key, value, created, modified, lease FROM entries"
                " WHERE key >= ? AND key > ? AND key < ? ORDER BY key",
                (start, prefix_bytes(after), prefix_end(start)),
            )
            for row in rows:
                size += len(row[0]) + len(row[1])
                if len(entries) == limit or (entries and size > MAX_PAGE_BYTES):
                    rows.close()
                    return Page(tuple(entries), self._revision, more=True)
                entries.append(_entry(row))
            return Page(tuple(entries), self._revision, more=False)

    def _row(self, key: bytes) -> tuple[Any, ...] | None:
        row: tuple[Any, ...] | None = self._file.execute(
            "SELECT key, value, created, modified, lease FROM entries WHERE key = ?", (key,)
        ).fetchone()
        return row

    # --- writing ---------------------------------------------------------------------------

    def transact(
        self, changes: Sequence[Put | Delete], *, when: Sequence[Unchanged] = ()
    ) -> int | None:
        """Make all changes at once if all conditions hold, else none of them."""
        check_transaction(changes, when)
        with self._working():
            for change in changes:
                if isinstance(change, Put) and change.lease:
                    self._require(change.lease)
            for condition in when:
                row = self._row(key_bytes(condition.key))
                if (row[3] if row else 0) != condition.revision:
                    return None
            with self._writing() as note:
                for change in changes:
                    self._apply(change, note)
            return self._revision

    def _apply(self, change: Put | Delete, note: Callable[..., None]) -> None:
        key = key_bytes(change.key)
        row = self._row(key)
        if isinstance(change, Delete):
            if row:
                self._file.execute("DELETE FROM entries WHERE key = ?", (key,))
                note(key, None, 0, 0)
            return
        created = row[2] if row else self._revision + 1
        self._file.execute(
            "INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?, ?)",
            (key, change.value, created, self._revision + 1, change.lease),
        )
        note(key, change.value, created, change.lease)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Callable[..., None]]:
        """Do the block in a transaction of the file; its changes become the next revision."""
        revision = self._revision + 1
        count = size = 0

        def note(key: bytes, value: bytes | None, created: int, lease: int) -> None:
            nonlocal count, size
            count += 1
            size += len(key) + len(value or b"")
            self._file.execute(
                "INSERT INTO history VALUES (?, ?, ?, ?, ?)",
                (revision, key, value, created, lease),
            )

        self._file.execute("BEGIN IMMEDIATE")
        try:
            yield note
            if count:
                self._file.execute("UPDATE state SET revision = ?", (revision,))
            kept, kept_bytes, forgotten = self._kept + count, self._kept_bytes + size, None
            if kept > HISTORY or kept_bytes > HISTORY_BYTES:
                forgotten = self._trimming(revision)
                kept, kept_bytes = self._forget(forgotten)
            self._file.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # some errors have rolled back already
                self._file.execute("ROLLBACK")
            raise
        self._kept, self._kept_bytes = kept, kept_bytes
        self._forgotten = self._forgotten if forgotten is None else forgotten
        if count:
            self._revision = revision
            self._changed.notify_all()

    def _trimming(self, newest: int) -> int:
        """Return the revision up to which history is to go, so that a quarter gets free."""
        rows = bytes_ = 0
        for revision, count, size in self._file.execute(
            "SELECT revision, count(*), sum(length(key) + coalesce(length(value), 0))"
            " FROM history GROUP BY revision ORDER BY revision DESC"
        ):
            rows += count
            bytes_ += size
            if revision != newest and (rows > HISTORY * 3 // 4 or bytes_ > HISTORY_BYTES * 3 // 4):
                return int(revision)
        return newest - 1

    def _forget(self, revision: int) -> tuple[int, int]:
        """Drop history up to a revision; return how many rows and bytes remain."""
        self._file.execute("DELETE FROM history WHERE revision <= ?", (revision,))
        self._file.execute("UPDATE state SET forgotten = max(forgotten, ?)", (revision,))
        rows, size = self._file.execute(
            "SELECT count(*), coalesce(sum(length(key) + coalesce(length(value), 0)), 0)"
            " FROM history"
        ).fetchone()
        return rows, size

    def forget(self, revision: int) -> None:
        """Drop the changes up to a revision: watches that need them get an error."""
        with self._working():
            upto = min(revision, self._revision)
            with self._writing():
                kept = self._forget(upto)
            self._kept, self._kept_bytes = kept
            self._forgotten = max(self._forgotten, upto)
            self._changed.notify_all()

    # --- leases ----------------------------------------------------------------------------

    def grant(self, seconds: float) -> int:
        """Return a new lease, a positive number."""
        check_lease_time(seconds)
        with self._working():
            if len(self._deadlines) >= MAX_LEASES:
                raise ResourceError(f"{MAX_LEASES} leases of the store live", where=self.url)
            with self._writing():
                lease = self._file.execute(
                    "INSERT INTO leases (seconds) VALUES (?)", (seconds,)
                ).lastrowid
            if lease is None:
                raise AssertionError("an inserted row has no number")
            self._seconds[lease] = seconds
            self._deadlines[lease] = self._clock.now() + seconds
            self._watch_over_leases(self._deadlines[lease])
            return lease

    def keep_alive(self, lease: int) -> None:
        """Renew a lease for its whole time."""
        with self._working():
            self._require(lease)
            self._deadlines[lease] = self._clock.now() + self._seconds[lease]

    def revoke(self, lease: int) -> None:
        """End a lease now: its keys vanish in one revision. One that is gone stays so."""
        with self._working():
            if lease in self._deadlines:
                self._end([lease])

    def _require(self, lease: int) -> None:
        """Refuse a lease that is over, also one that could not be cleared yet."""
        if self._deadlines.get(lease, 0.0) <= self._clock.now():
            raise LeaseLostError(
                f"the lease {lease} of the store is over",
                where=self.url,
                hint="grant another one and write its keys again",
            )

    def _end(self, leases: Sequence[int]) -> None:
        with self._writing() as note:
            for lease in leases:
                keys = self._file.execute(
                    "SELECT key FROM entries WHERE lease = ? AND lease != 0 ORDER BY key", (lease,)
                ).fetchall()
                for (key,) in keys:
                    note(key, None, 0, 0)
                self._file.execute("DELETE FROM entries WHERE lease = ? AND lease != 0", (lease,))
                self._file.execute("DELETE FROM leases WHERE id = ?", (lease,))
        for lease in leases:
            self._deadlines.pop(lease, None)
            self._seconds.pop(lease, None)

    def _expire(self) -> None:
        """Clear what is over; where the file cannot be written, later."""
        now = self._clock.now()
        if now < self._soonest:
            return
        if over := [lease for lease, deadline in self._deadlines.items() if deadline <= now]:
            with contextlib.suppress(sqlite3.Error):
                self._end(over)
        # What could not be cleared is tried again with the next call.
        self._soonest = min(self._deadlines.values(), default=math.inf)

    def _watch_over_leases(self, deadline: float) -> None:
        """See that a lease that ends then is cleared."""
        if self._keeper is None:
            self._keeper = new_thread("sapwood-store-leases", self._keep)
            self._keeper.start()
        if deadline < self._soonest:
            self._soonest = deadline
            self._changed.notify_all()

    def _keep(self) -> None:
        """Clear expired leases without requests; the body of a thread."""
        with self._changed:
            while not self._closed:
                self._expire()
                left = self._soonest - self._clock.now()
                if left <= 0:
                    left = _RETRY  # it could not be cleared
                self._changed.wait(None if left == math.inf else left)

    # --- watches ---------------------------------------------------------------------------

    def watch(self, prefix: str, *, after: int | None = None) -> StoreWatch:
        """Return the changes of keys that begin with ``prefix``."""
        start = prefix_bytes(prefix)
        with self._working():
            if len(self._watches) >= MAX_WATCHES:
                raise ResourceError(
                    f"{MAX_WATCHES} watches of the store are open",
                    where=self.url,
                    hint="close the watches that are not read",
                )
            watch = _SqliteWatch(self, start, self._revision if after is None else after)
            self._check_kept(watch.position)
            self._watches.add(watch)
            return watch

    def _check_kept(self, after: int) -> None:
        if after < self._forgotten:
            raise HistoryGoneError(
                f"changes behind revision {after} are wanted, and the store keeps those behind"
                f" {self._forgotten}",
                where=self.url,
                hint="read all keys again, and watch from the revision of that",
            )

    def _next(self, watch: _SqliteWatch, timeout: float | None) -> Change | None:
        with self._changed:
            deadline = None if timeout is None else MonotonicClock().now() + timeout
            while True:
                if watch.closed or self._closed:
                    raise ClosedError("the watch of the store is closed", where=self.url)
                with self._working():
                    self._check_kept(watch.position)
                    if change := self._change_after(watch.position, watch.prefix):
                        watch.position = change.revision
                        return change
                    watch.position = max(watch.position, self._revision)
                left = None if deadline is None else deadline - MonotonicClock().now()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)

    def _change_after(self, position: int, prefix: bytes) -> Change | None:
        if position >= self._revision:
            return None
        end = prefix_end(prefix)
        row = self._file.execute(
            "SELECT revision FROM history WHERE revision > ? AND key >= ? AND key < ?"
            " ORDER BY revision LIMIT 1",
            (position, prefix, end),
        ).fetchone()
        if row is None:
            return None
        revision: int = row[0]
        events = [
            StoreEvent(
                key.decode(),
                None
                if value is None
                else StoreEntry(key.decode(), bytes(value), created, revision, lease),
            )
            for key, value, created, lease in self._file.execute(
                "SELECT key, value, created, lease FROM history"
                " WHERE revision = ? AND key >= ? AND key < ? ORDER BY key",
                (revision, prefix, end),
            )
        ]
        return Change(revision, tuple(events))

    def _end_watch(self, watch: _SqliteWatch) -> None:
        with self._changed:
            watch.closed = True
            self._watches.discard(watch)
            self._changed.notify_all()

    # --- the whole -------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the store and end its watches; closing it twice does nothing."""
        if os.getpid() != self._pid:
            return  # a child of fork: the file is its parent's
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            keeper = self._keeper
            with contextlib.suppress(sqlite3.Error):  # the last checkpoint is not needed
                self._file.close()
            self._lock.release()
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()

    @contextlib.contextmanager
    def _working(self) -> Iterator[None]:
        """Let one thread at a time work, clear what is over, and explain errors."""
        if os.getpid() != self._pid:
            raise StoreError(
                "a child process uses the store of its parent",
                where=self.url,
                hint="only the process that opened it may use it",
            )
        with self._changed:
            if self._closed:
                raise ClosedError("the store is closed", where=self.url)
            with self._explained():
                self._expire()
                yield

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(error, self._path) from error


class _SqliteWatch(StoreWatch):
    """A position in the history of a store: later changes are still to come."""

    def __init__(self, store: SqliteStore, prefix: bytes, position: int) -> None:
        self._store = store
        self.prefix = prefix
        self.position = position
        self.closed = False

    def next(self, timeout: float | None = None) -> Change | None:
        """Return the next change, or None if none came within ``timeout`` seconds."""
        return self._store._next(self, timeout)  # noqa: SLF001 - two halves of one thing

    def close(self) -> None:
        """End the watch; closing it twice does nothing."""
        self._store._end_watch(self)  # noqa: SLF001 - as above


def _entry(row: tuple[Any, ...]) -> StoreEntry:
    key, value, created, modified, lease = row
    return StoreEntry(key.decode(), bytes(value), created, modified, lease)


def _prepare(folder: Path) -> None:
    """Make the folder if it is not there, and see that it is ours alone.

    Raises:
        StoreError: It cannot be made, is not a folder, or others may enter it.
    """
    try:
        make_private(folder)
        status = folder.stat()
    except OSError as error:
        raise StoreError(
            f"the folder of the store cannot be made: {error.strerror}",
            where=str(folder),
            hint="name a folder that the user of the head can write",
        ) from error
    if status.st_uid != os.geteuid():
        raise StoreError(
            "the folder of the store belongs to another user",
            where=str(folder),
            hint="name one of your own, or run the head as its owner",
        )
    if status.st_mode & 0o077:
        raise StoreError(
            "others may enter the folder of the store",
            where=str(folder),
            hint=f"chmod 700 {folder}, or name a folder that does not exist yet",
        )


def _opened(path: Path) -> sqlite3.Connection:
    """Return the connection to a file, which is made where it is not there.

    Raises:
        StoreError: The file is damaged, of a newer version, or something else.
    """
    if not path.exists():
        _create(path)
    file = _connect(path)
    try:
        # No other process: the index of the log is memory, which a full disk cannot take away.
        file.execute("PRAGMA locking_mode = EXCLUSIVE")
        _identify(file, path)
        if is_local(path.parent):
            file.execute("PRAGMA journal_mode = WAL").fetchone()
            file.execute("PRAGMA synchronous = FULL")
        else:
            file.execute("PRAGMA journal_mode = DELETE").fetchone()
            file.execute("PRAGMA synchronous = EXTRA")  # the journal's end is on the disk, too
        file.execute(f"PRAGMA max_page_count = {MAX_FILE // _PAGE_SIZE}")
        (verdict,) = file.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise _damaged(path, verdict)
    except BaseException:
        file.close()
        raise
    return file


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_BUSY, isolation_level=None, check_same_thread=False)


def _create(path: Path) -> None:
    """Make an empty store, whole or not at all.

    Raises:
        StoreError: It contains a part of an older one.
    """
    for rest in (f"{path}-wal", f"{path}-journal"):
        if Path(rest).exists():
            raise _damaged(path, f"it is gone, and its log {rest} is there")
    fresh = path.with_suffix(".new")
    try:
        for left in (fresh, Path(f"{fresh}-journal")):
            left.unlink(missing_ok=True)
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with contextlib.closing(_connect(fresh)) as file:
            file.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
            file.executescript(f"BEGIN; {_TABLES} COMMIT;")
        fresh.rename(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreError(f"the store cannot be made: {error.strerror}", where=str(path)) from error


def _identify(file: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is not a store, or a store of a newer version.

    Raises:
        StoreError: It is.
    """
    if path.stat().st_size == 0:
        raise _damaged(path, "it is empty")
    (application,) = file.execute("PRAGMA application_id").fetchone()
    (version,) = file.execute("PRAGMA user_version").fetchone()
    if application != APPLICATION:
        raise StoreError(
            "the file is not a store of Sapwood",
            where=str(path),
            hint="name another folder; this file was not changed",
        )
    if version > SCHEMA:
        raise StoreError(
            f"the store has version {version}, and this Sapwood knows {SCHEMA}",
            where=str(path),
            hint="a newer Sapwood wrote it: use that one, or name another folder",
        )
    if version < 1:
        raise _damaged(path, f"its version is {version}")


def _damaged(path: Path, reason: str) -> StoreError:
    return StoreError(
        f"the store is damaged: {reason}",
        where=str(path),
        hint=(
            f"stop the head and put a copy in its place. Without one, move {path.parent} away:"
            " the head begins with an empty store, and nodes join it again"
        ),
    )


def _explain(error: sqlite3.Error, path: Path) -> SapwoodError:
    """Return what an error of SQLite means for the store."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            "the store is full; nothing was written",
            where=str(path),
            hint="free space on its disk; stored values can be read meanwhile",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return _damaged(path, str(error))
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreInUseError(
            "another program has locked the store",
            where=str(path),
            hint="end what has the file open, for example a shell of SQLite",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return StoreError(
            f"the store cannot be opened or written: {error}",
            where=str(path),
            hint="the user of the head must be able to write folder and file",
        )
    return StoreError(
        f"the store cannot be read or written: {error}",
        where=str(path),
        hint="look at the disk and the log of the system",
    )
