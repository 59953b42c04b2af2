"""The file of a ledger: events as rows of an SQLite table, of which the newest are kept.

It knows nothing of threads: :mod:`sapwood.head.ledger` uses it with a lock held.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from sapwood.environment.logs import logger
from sapwood.store.file_system import is_local

NAME: Final = "events.db"
"""The file in the head's folder."""

SCHEMA: Final = 1
"""Version of its table."""

MAX_PAGES: Final = 2**17
"""Pages of 4 KiB of the file at most."""

MAX_NUMBER: Final = 2**63 - 1
"""No event has so high a number."""

FEW_NODES: Final = 8
"""Nodes up to which the index by nodes is faster than the one by time."""

_TABLE: Final = f"""
PRAGMA user_version = {SCHEMA};
CREATE TABLE events (
    number INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, node TEXT NOT NULL,
    session TEXT NOT NULL, text TEXT NOT NULL, facts TEXT NOT NULL
);
CREATE INDEX by_time ON events (time);
CREATE INDEX by_kind ON events (kind, time);
CREATE INDEX by_node ON events (node, time) WHERE node != '';
CREATE INDEX by_session ON events (session, time) WHERE session != '';
"""

_log = logger("ledger")

EventRow = tuple[int, float, str, str, str, str, str]
"""Number, time, kind, node, session, text and facts of an event, the facts as JSON."""


class EventFile:
    """A file of events, closed at first.

    Args:
        folder: Where the file lies.
        limit: Returns how many events are kept; of more, the newest.
        pages: Pages of the file at most.
    """

    def __init__(self, folder: Path, limit: Callable[[], int], pages: int) -> None:
        self._path = folder / NAME
        self._limit = limit
        self._pages = pages
        self._file: sqlite3.Connection | None = None
        self._count = 0

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and not closed since."""
        return self._file is not None

    def open(self) -> int:
        """Open the file; a damaged one is put aside.

        Returns:
            The number of the newest event in it; 0 for none.

        Raises:
            sqlite3.Error: It cannot be used.
            OSError: Likewise.
            ValueError: It is of a newer version.
        """
        try:
            try:
                return self._begin()
            except sqlite3.DatabaseError as error:
                code = getattr(error, "sqlite_errorcode", 0) & 0xFF
                if code not in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
                    raise
                self.close()
                aside = self._path.with_suffix(".damaged")
                self._path.replace(aside)
                for rest in ("-wal", "-shm", "-journal"):
                    Path(f"{self._path}{rest}").unlink(missing_ok=True)
                _log.warning("ledger damaged", kept=str(aside))
                return self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.close()
            self._file = None

    def _begin(self) -> int:
        if not self._path.exists():
            self._path.touch(mode=0o600)
        file = self._file = sqlite3.connect(
            self._path, timeout=0.5, isolation_level=None, check_same_thread=False
        )
        (version,) = file.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA:
            raise ValueError(f"{self._path} is of a newer version of Sapwood")
        file.execute(f"PRAGMA journal_mode = {'WAL' if is_local(self._path.parent) else 'DELETE'}")
        file.execute("PRAGMA synchronous = NORMAL")
        file.execute(f"PRAGMA max_page_count = {self._pages}")
        if version == 0:
            file.executescript(f"BEGIN; {_TABLE} COMMIT;")
        oldest, newest = file.execute(
            "SELECT coalesce(min(number), 1), coalesce(max(number), 0) FROM events"
        ).fetchone()
        self._count = newest - oldest + 1
        return int(newest)

    def insert(self, rows: Sequence[EventRow]) -> None:
        """Insert rows; where the file may not grow any more, the oldest ones make room.

        Raises:
            sqlite3.Error: They cannot be written.
        """
        try:
            self._insert_once(rows, 0)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code != sqlite3.SQLITE_FULL or self._count <= len(rows):
                raise
            self._insert_once(rows, max(self._count // 10, len(rows)))

    def _insert_once(self, rows: Sequence[EventRow], more_room: int) -> None:
        file = self._file
        if file is None:
            return
        newest = rows[-1][0]
        (first,) = file.execute(
            "SELECT coalesce(min(number), ?) FROM events", (rows[0][0],)
        ).fetchone()
        oldest = max(first + more_room, newest - max(self._limit(), 1) + 1)
        file.execute("BEGIN IMMEDIATE")
        try:
            if oldest > first:  # first: the new ones need the room
                file.execute("DELETE FROM events WHERE number < ?", (oldest,))
            kept = [row for row in rows if row[0] >= oldest]
            file.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?)", kept)
            file.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                file.execute("ROLLBACK")
            raise
        self._count = newest - oldest + 1 if oldest > first else newest - first + 1

    def find(
        self,
        kinds: Sequence[str],
        nodes: Sequence[str],
        session: str,
        *,
        since: float,
        after: int,
        limit: int,
        before: int = MAX_NUMBER,
    ) -> list[EventRow]:
        """Return the last rows that a question is about, the newest first; none if it is closed.

        Args:
            kinds: Those of these kinds; none: of any.
            nodes: Those about these nodes; none: about any, or no node.
            session: Those about this session; empty: about any, or no session.
            since: Those from this time on, seconds since 1970.
            after: Those behind this number.
            limit: The last ones, at most so many.
            before: Those in front of this number.

        Raises:
            sqlite3.Error: The file cannot be read.
        """
        file = self._file
        if file is None:
            return []
        where: list[str] = ["time >= ?", "number > ?", "number < ?"]
        values: list[Any] = [since, after, before]
        column = "node"
        if len(nodes) > FEW_NODES:
            nodes = self._known_nodes(file, nodes, since)
            if not nodes:
                return []
            column = "node" if len(nodes) <= FEW_NODES else "+node"  # the index by time then
        sessions = [session] if session else []
        for name, wanted in (("kind", kinds), (column, nodes), ("session", sessions)):
            if wanted:
                where.append(f"{name} IN (SELECT value FROM json_each(?))")  # noqa: S608 - names are ours
                values.append(msgspec.json.encode(list(wanted)).decode())
                if name != "kind":
                    where.append(f"{name} != ''")  # so that its index may be used
        order = "ORDER BY time DESC, number DESC LIMIT ?"
        columns = "number, time, kind, node, session, text, facts"
        text = f"SELECT {columns} FROM events WHERE {' AND '.join(where)} {order}"  # noqa: S608 - as above
        return file.execute(text, [*values, limit]).fetchall()

    def _known_nodes(
        self, file: sqlite3.Connection, nodes: Sequence[str], since: float
    ) -> list[str]:
        """Return the wanted nodes that have events."""
        rows = file.execute(
            "SELECT value FROM json_each(?) WHERE EXISTS"
            " (SELECT 1 FROM events WHERE node = value AND node != '' AND time >= ?)",
            (msgspec.json.encode(list(nodes)).decode(), since),
        )
        return [str(name) for (name,) in rows]
