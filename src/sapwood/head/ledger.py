"""The ledger of a cluster: what happened, in the order in which the head heard of it.

It is a separate SQLite file beside the store, because it may be lost and the store may not.
Recording an event does not wait for the disk: a thread writes. When the disk is full or the file
cannot be used, the last events are kept in memory, the ledger says so, and tries again.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, Unpack

import msgspec

from sapwood.core.errors import ConfigurationError
from sapwood.core.failures import log_failure, new_thread
from sapwood.core.shown import shown
from sapwood.core.suggest import suggest
from sapwood.environment.logs import logger
from sapwood.head.event_file import MAX_NUMBER, MAX_PAGES, EventFile, EventRow
from sapwood.nodes.note_event import AboutEvent
from sapwood.nodes.refusals import RefusalsByKind

KINDS: Final = {
    "head.started": "the head started, or restarted",
    "head.ended": "the cluster was ended",
    "head.replaced": "a head stopped serving, so that another one may",
    "node.joined": "a machine became a node",
    "node.back": "a node came back",
    "node.lost": "a node was lost, or ended unasked, and may come back",
    "node.removed": "a node was removed",
    "machine.refused": "a machine was refused",
    "certificate.renewed": "a node got a new certificate",
    "credential.issued": "a credential was issued",
    "credential.refused": "a credential was refused, or did not give the right that was needed",
    "credential.revoked": "a credential was revoked",
    "credential.cut_off": "a client was disconnected: its credential was revoked or has expired",
    "request.refused": "the HTTP server refused a request",
    "session.created": "a session took nodes",
    "session.delayed": "a session waits for machines that were asked for",
    "session.allocated": "a session got the machines that it waited for",
    "session.restarted": "the server of a session was killed, and restarted",
    "session.ended": "a session gave its nodes back",
    "agent.joined": "an invited process became an agent of a session",
    "agent.lost": "an invited agent was lost",
    "agent.left": "an invited agent left, or was removed",
    "agent.refused": "a process was refused as an agent",
    "session.merged": "a session was merged with another one",
    "session.split": "two merged sessions were split",
    "process.lost": "a process of a session ended unasked",
    "process.replaced": "another process took its place",
    "runner.lost": "a process that ran code of users crashed, or was killed",
    "run.restarted": "the process of a run was killed, and restarted",
    "run.ended": "a run ended",
    "policy.changed": "the policy was changed",
    "ledger.gap": "events were lost, or the disk was full",
}
"""Every kind of event."""

MAX_EVENTS: Final = 1_000_000
"""Events that are kept; of more, the newest."""

MAX_TEXT: Final = 500
"""Characters of each text of an event."""

MAX_FACTS: Final = 16
"""Facts of an event."""

MAX_UNWRITTEN: Final = 10_000
"""Events that are kept while they cannot be written."""

MAX_FOUND: Final = 10_000
"""Events that one question finds at most."""

RETRY: Final = 2.0
"""Seconds until the disk is tried again."""

_log = logger("ledger")


MOST_NOTED: Final = 300
"""Events of one kind that one credential or node causes, and that the ledger takes each minute.

With more it would soon keep nothing else: the oldest events make room.
"""


class LedgerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened.

    Attributes:
        number: Its number; a missing one was lost.
        time: When, by the head's clock, seconds since 1970.
        kind: One of :data:`KINDS`.
        text: What happened, for people.
        node: The node that it is about; empty for none.
        session: The session that it is about; empty for none.
        facts: More about it, by name.
    """

    number: int
    time: float
    kind: str
    text: str
    node: str = ""
    session: str = ""
    facts: dict[str, str] = {}


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events?

    Attributes:
        since: Those from this time on, seconds since 1970.
        after: Those behind this number.
        before: Those in front of this number; 0: all.
        nodes: Those about these nodes; none: about any, or no node.
        session: Those about this session; empty: about any, or no session.
        kinds: Those of these kinds, or of all kinds that begin so; none: of any.
        limit: The last ones, at most so many.
    """

    since: float = 0.0
    after: int = 0
    nodes: list[str] = []
    session: str = ""
    kinds: list[str] = []
    limit: int = 1000
    before: int = 0

    def fits(self, event: LedgerEvent) -> bool:
        """Say whether an event is one of them."""
        return (
            event.time >= self.since
            and event.number > self.after
            and (not self.before or event.number < self.before)
            and (not self.nodes or event.node in self.nodes)
            and (not self.session or event.session == self.session)
            and (not self.kinds or event.kind in kinds_of(self.kinds))
        )


class LedgerState(msgspec.Struct, frozen=True, kw_only=True):
    """How the ledger is.

    Attributes:
        trouble: Why nothing can be written; empty if it can.
        lost: Events that were lost since the head began.
    """

    trouble: str = ""
    lost: int = 0


def nodes_there(events: Iterable[LedgerEvent]) -> list[str]:
    """Return the nodes that were there after some events, the oldest of which is the first.

    Example:
        >>> def event(kind, node=""):
        ...     return LedgerEvent(number=1, time=0.0, kind=kind, text="", node=node)
        >>> nodes_there([event("node.joined", "n1"), event("node.joined", "n2")])
        ['n1', 'n2']
        >>> nodes_there([event("node.joined", "n1"), event("node.lost", "n1")])
        []
        >>> nodes_there([event("node.joined", "n1"), event("head.ended")])
        []
    """
    there: dict[str, None] = {}
    for event in events:
        if event.kind in {"node.joined", "node.back"}:
            there[event.node] = None
        elif event.kind in {"node.lost", "node.removed"}:
            there.pop(event.node, None)
        elif event.kind == "head.ended":
            there.clear()
    return list(there)


def kinds_of(texts: Iterable[str]) -> frozenset[str]:
    """Return the kinds that some texts name: each by its name, or several by how they begin.

    Raises:
        ConfigurationError: A text names none.

    Example:
        >>> sorted(kinds_of(["node.lost", "policy"]))
        ['node.lost', 'policy.changed']
    """
    found: set[str] = set()
    for text in texts:
        fitting = {kind for kind in KINDS if kind == text or kind.startswith(f"{text}.")}
        if not fitting:
            raise ConfigurationError(
                f"{shown(text)} is not a kind of event", hint=suggest(text, KINDS)
            )
        found |= fitting
    return frozenset(found)


class Ledger:
    """A ledger; any thread may use it, and only :meth:`find` waits for the disk.

    Args:
        folder: Where its file lies.
        limit: Returns how many events are kept; of more, the newest.
        clock: The time, seconds since 1970.
        pages: Pages of the file at most.
    """

    def __init__(
        self,
        folder: Path,
        limit: Callable[[], int] = lambda: MAX_EVENTS,
        clock: Callable[[], float] = time.time,
        pages: int = MAX_PAGES,
    ) -> None:
        self._clock = clock
        self._caused = RefusalsByKind(most=MOST_NOTED)
        self._lock = threading.Lock()  # of what follows; short
        self._unwritten: deque[LedgerEvent] = deque()
        self._listeners: list[Callable[[LedgerEvent], None]] = []
        self._outgoing: deque[LedgerEvent] = deque()
        self._telling = threading.Lock()  # held by the thread that notifies listeners
        self._lost = self._unreported = 0
        self._trouble = ""
        self._closed = False
        self._wake = threading.Event()
        self._over = threading.Event()
        self._disk = threading.Lock()  # of the file; may take long
        self._file = EventFile(folder, limit, pages)
        self._numbers = itertools.count(1)
        self._newest = 0
        with self._disk:
            self._open()
        self._thread = new_thread("sapwood-ledger", self._write_always, daemon=None)
        self._thread.daemon = True
        self._thread.start()

    @property
    def state(self) -> LedgerState:
        """How it is."""
        with self._lock:
            return LedgerState(trouble=self._trouble, lost=self._lost)

    def note(self, kind: str, text: str, /, **about: Unpack[AboutEvent]) -> None:
        """Note that something happened; this fails in no case, and waits for nothing.

        Args:
            kind: One of :data:`KINDS`.
            text: What, for people.
            about: What it is about.
        """
        if kind not in KINDS:
            raise AssertionError(f"{kind} is not a kind of event")
        with self._lock:
            event = LedgerEvent(
                number=next(self._numbers),
                time=self._clock(),
                kind=kind,
                text=_shown(text),
                node=_shown(about.get("node", "")),
                session=_shown(about.get("session", "")),
                facts={
                    _shown(name): _shown(value)
                    for name, value in list(about.get("facts", {}).items())[:MAX_FACTS]
                },
            )
            if self._closed:
                return
            self._unwritten.append(event)
            while len(self._unwritten) > MAX_UNWRITTEN:
                self._unwritten.popleft()
                self._lost += 1
                self._unreported += 1
            self._outgoing.append(event)
        self._wake.set()
        self._tell_all()

    def note_caused(self, kind: str, text: str, by: str, /, **about: Unpack[AboutEvent]) -> None:
        """Note what a client or a node can cause at will, unless it causes very much of it.

        Args:
            kind: As for :meth:`note`.
            text: Likewise.
            by: The owner of the credential, or the node; empty for the head's user, who is not
                limited.
            about: As for :meth:`note`.
        """
        left_out = self._caused.count((kind, by)) if by else 0
        if left_out is None:
            return
        if left_out:
            about["facts"] = {**about.get("facts", {}), "others": str(left_out)}
        self.note(kind, text, **about)

    def note_of_node(self, kind: str, text: str, /, **about: Unpack[AboutEvent]) -> None:
        """Note what a node can cause at will, unless it causes very much of it; see :meth:`note`.

        A node that joined can ask for certificates, and break its link, as often as it likes.
        """
        self.note_caused(kind, text, about.get("node", ""), **about)

    def _tell_all(self) -> None:
        """Notify listeners in the order of the events, of which several threads note some.

        Followers drop an event whose number is below one that they have.
        """
        while self._outgoing and self._telling.acquire(blocking=False):
            try:
                while self._outgoing:
                    event = self._outgoing.popleft()
                    with self._lock:
                        listeners = list(self._listeners)
                    for listener in listeners:
                        listener(event)
            finally:
                self._telling.release()

    def subscribe(self, listener: Callable[[LedgerEvent], None]) -> Callable[[], None]:
        """Call a function with each event in turn, on a thread that notes one.

        Returns:
            A function that ends that.
        """
        with self._lock:
            self._listeners.append(listener)

        def end() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._listeners.remove(listener)

        return end

    def find(self, query: EventQuery) -> list[LedgerEvent]:
        """Return the last events that a question is about, the oldest of them first.

        Raises:
            ConfigurationError: It names a kind that there is not, or asks for too many.
        """
        if not 1 <= query.limit <= MAX_FOUND:
            raise ConfigurationError(f"a question finds 1 to {MAX_FOUND} events")
        kinds = kinds_of(query.kinds)
        with self._disk:
            self._write()
            found = self._read(query, kinds)
            with self._lock:
                found += [one for one in self._unwritten if query.fits(one)]
        return found[-query.limit :]

    def close(self) -> None:
        """Write what is left, and end."""
        with self._lock:
            self._closed = True
        self._over.set()
        self._wake.set()
        self._thread.join()
        with self._disk:
            self._write()
            self._file.close()

    # --- the file, with its lock held ------------------------------------------------------------

    def _open(self) -> None:
        """Open the file, or say why not."""
        try:
            newest = self._file.open()
        except (sqlite3.Error, OSError, ValueError) as error:
            self._note_trouble(str(error))
            return
        with self._lock:
            if newest > self._newest:
                self._newest = newest
                self._numbers = itertools.count(newest + 1)
        self._note_trouble("")

    def _write(self) -> None:
        """Write what waits, if that can be done."""
        if not self._file.is_open:
            self._open()
        if not self._file.is_open:
            return
        with self._lock:
            events = list(self._unwritten)
            unreported = self._unreported
        if not events:
            return
        rows = [
            (
                one.number,
                one.time,
                one.kind,
                one.node,
                one.session,
                one.text,
                msgspec.json.encode(one.facts).decode(),
            )
            for one in events
        ]
        try:
            self._file.insert(rows)
        except sqlite3.Error as error:
            self._note_trouble(_reason(error))
            return
        with self._lock:
            for _ in range(len(events)):  # those that came meanwhile stay
                if self._unwritten and self._unwritten[0].number <= events[-1].number:
                    self._unwritten.popleft()
            self._unreported -= unreported
        self._note_trouble("")
        if unreported:
            self.note("ledger.gap", f"{unreported} events before this one could not be written")

    def _read(self, query: EventQuery, kinds: frozenset[str]) -> list[LedgerEvent]:
        try:
            rows = self._file.find(
                sorted(kinds),
                query.nodes,
                query.session,
                since=query.since,
                after=query.after,
                before=query.before or MAX_NUMBER,
                limit=query.limit,
            )
        except sqlite3.Error as error:
            self._note_trouble(_reason(error))
            return []
        return [_event(row) for row in reversed(rows)]

    def _note_trouble(self, trouble: str) -> None:
        with self._lock:
            before, self._trouble = self._trouble, trouble
        if trouble and not before:
            _log.warning("ledger not written", reason=trouble)
        elif before and not trouble:
            _log.info("ledger written again")

    # --- the thread ------------------------------------------------------------------------------

    def _write_always(self) -> None:
        while True:
            with self._lock:
                if self._closed:
                    return
                waiting = bool(self._unwritten)
            self._wake.wait(RETRY if waiting else None)
            self._wake.clear()
            failed = False
            try:
                with self._disk:
                    self._write()
            except Exception as error:  # noqa: BLE001 - later events are written all the same
                log_failure("writing down events", error)
                failed = True
            with self._lock:
                troubled = (failed or bool(self._trouble)) and not self._closed
            if troubled:
                self._over.wait(RETRY)  # not at each event again


def _event(row: EventRow) -> LedgerEvent:
    number, moment, kind, node, session, text, facts = row
    read: Any = msgspec.json.decode(facts)
    return LedgerEvent(
        number=number,
        time=moment,
        kind=kind,
        text=text,
        node=node,
        session=session,
        facts={str(name): str(value) for name, value in read.items()},
    )


def _reason(error: sqlite3.Error) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return "the disk is full" if code == sqlite3.SQLITE_FULL else str(error)


def _shown(text: str) -> str:
    """Return a text that may come from a stranger, fit for a terminal and for the file."""
    return "".join(one if one.isprintable() else "?" for one in text[:MAX_TEXT])
