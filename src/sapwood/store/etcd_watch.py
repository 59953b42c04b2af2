"""A watch of etcd: a thread reads its stream, and opens it again elsewhere when it breaks.

The stream resumes behind the last revision that was read whole, so nothing is lost and nothing
comes twice. If the watch is not read, its thread stops reading, and so etcd stops sending.
"""

from __future__ import annotations

import collections
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from sapwood.core.clock import MonotonicClock
from sapwood.core.errors import (
    ClosedError,
    HistoryGoneError,
    SapwoodError,
    StoreError,
    StoreUnavailableError,
)
from sapwood.core.failures import new_thread
from sapwood.store.base import Change, StoreEntry, StoreEvent, StoreWatch, prefix_end
from sapwood.store.etcd_calls import (
    CALL_TIME,
    MEMBER_TIME,
    PAUSE,
    Endpoint,
    EtcdRefusal,
    Header,
    KeyValue,
    Members,
    decoded,
    endpoint_text,
    text_of,
)

MAX_QUEUE: Final = 64
"""Changes that are read ahead of whoever takes them."""

SILENCE: Final = 2.0
"""Seconds of silence after which the member is pinged."""

MAX_LINE: Final = 8 * 2**20
"""Bytes of one message of the stream; etcd cuts longer ones into pieces."""

_RECEIVE: Final = 2**16


class WatchEvent(msgspec.Struct):
    """What became of a key."""

    kv: KeyValue
    type: str = "PUT"


class WatchResult(msgspec.Struct):
    """One message of a watch."""

    header: Header = msgspec.field(default_factory=Header)
    created: bool = False
    canceled: bool = False
    compact_revision: int = 0
    cancel_reason: str = ""
    fragment: bool = False
    events: list[WatchEvent] = []


class WatchLine(msgspec.Struct):
    """One line of the stream."""

    result: WatchResult | None = None
    error: EtcdRefusal | None = None


class EtcdWatch(StoreWatch):
    """The changes below a prefix of etcd.

    Args:
        members: Members that can be asked.
        base: Bytes before each key of the store.
        prefix: How the keys begin, without these.
        after: Changes behind this revision are reported.
        ended: Called once when the watch is closed.
    """

    def __init__(
        self,
        members: Members,
        base: bytes,
        prefix: bytes,
        after: int,
        ended: Callable[[EtcdWatch], None],
    ) -> None:
        self._members = members
        self._base = base
        self._prefix = base + prefix
        self._position = after
        self._ended = ended
        self._state = threading.Condition()
        self._queue: collections.deque[Change] = collections.deque()
        self._held: list[WatchEvent] = []  # of a revision whose other events may still come
        self._closed = threading.Event()
        self._fatal: SapwoodError | None = None
        self._trouble: StoreUnavailableError | None = None
        self._connection: socket.socket | None = None
        self._thread = new_thread("sapwood-store-watch", self._run)
        self._thread.start()

    # --- for whoever reads -----------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Change | None:
        """Return the next change, or None if none came within ``timeout`` seconds.

        Raises:
            StoreUnavailableError: No member has served the watch for some time; it keeps trying.
        """
        with self._state:
            self._state.wait_for(
                lambda: self._queue or self._closed.is_set() or self._fatal or self._trouble,
                timeout,
            )
            if self._closed.is_set():
                raise ClosedError("the watch of the store is closed", where=self._where)
            if self._queue:
                self._state.notify_all()
                return self._queue.popleft()
            if self._fatal:
                raise self._fatal
            if self._trouble:
                trouble, self._trouble = self._trouble, None
                raise trouble
            return None

    def close(self) -> None:
        """End the watch; closing it twice does nothing."""
        with self._state:
            already = self._closed.is_set()
            self._closed.set()
            self._state.notify_all()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)
        if not already:
            self._thread.join()
            self._ended(self)

    @property
    def _where(self) -> str:
        return str(self._members.address)

    # --- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        clock = MonotonicClock()
        served = clock.now()
        while not self._closed.is_set():
            endpoint = self._members.current
            reason = "the stream ended"
            try:
                for line in self._lines(endpoint):
                    served = clock.now()
                    self._take(line)
            except (OSError, ValueError) as error:
                reason = str(error) or type(error).__name__
            except SapwoodError as error:
                self._end(error)
                return
            self._held.clear()
            if self._closed.is_set():
                return
            self._members.leave(endpoint)
            if clock.now() - served > CALL_TIME:
                served = clock.now()
                self._say(
                    StoreUnavailableError(
                        f"no member of etcd has served the watch for {CALL_TIME:.0f} s",
                        where=self._where,
                        hint="check that most members run; the watch keeps trying",
                        details={endpoint_text(endpoint): reason},
                    )
                )
            with self._state:
                self._state.wait_for(self._closed.is_set, PAUSE)

    def _end(self, error: SapwoodError) -> None:
        with self._state:
            self._fatal = error
            self._state.notify_all()

    def _say(self, trouble: StoreUnavailableError) -> None:
        with self._state:
            self._trouble = trouble
            self._state.notify_all()

    def _lines(self, endpoint: Endpoint) -> Iterator[bytes]:
        """Open the stream and return its lines until it breaks.

        HTTP 1.0 has no chunks: behind the head of the answer there is nothing but lines.
        """
        with self._connected(endpoint) as connection:
            connection.sendall(self._request(endpoint))
            buffer = bytearray()
            head = True
            while True:
                received = self._received(connection, endpoint)
                if not received:
                    return
                begin = len(buffer)
                buffer += received
                if head:
                    end = buffer.find(b"\r\n\r\n", max(begin - 3, 0))
                    if end < 0:
                        if len(buffer) > _RECEIVE:
                            raise ValueError("the answer has no end of its head")
                        continue
                    _check_head(bytes(buffer[:end]))
                    del buffer[: end + 4]
                    head = False
                    begin = 0
                while (end := buffer.find(b"\n", begin)) >= 0:
                    line = bytes(buffer[:end])
                    del buffer[: end + 1]
                    begin = 0
                    if line.strip():
                        yield line
                if len(buffer) > MAX_LINE:
                    raise ValueError(f"a message of the watch has more than {MAX_LINE} bytes")

    @contextlib.contextmanager
    def _connected(self, endpoint: Endpoint) -> Iterator[socket.socket]:
        connection = socket.create_connection(endpoint, MEMBER_TIME)
        try:
            if self._members.context:
                connection = self._members.context.wrap_socket(
                    connection, server_hostname=endpoint[0]
                )
            with self._state:
                if self._closed.is_set():
                    raise ValueError("closed")
                self._connection = connection
            yield connection
        finally:
            with self._state:
                self._connection = None
            connection.close()

    def _request(self, endpoint: Endpoint) -> bytes:
        create = {
            "key": text_of(self._prefix),
            "range_end": text_of(prefix_end(self._prefix)),
            "start_revision": self._position + 1,
            "progress_notify": True,
            "fragment": True,
        }
        body = msgspec.json.encode({"create_request": create})
        head = (
            f"POST /v3/watch HTTP/1.0\r\nHost: {endpoint_text(endpoint)}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _received(self, connection: socket.socket, endpoint: Endpoint) -> bytes:
        """Wait for bytes; ping a silent member."""
        connection.settimeout(SILENCE)
        while True:
            try:
                return connection.recv(_RECEIVE)
            except TimeoutError:
                if self._closed.is_set():
                    return b""
                if self._members.silent_for(endpoint) > SILENCE and not self._members.answers(
                    endpoint
                ):
                    raise

    def _take(self, line: bytes) -> None:
        """Take a message in.

        Raises:
            HistoryGoneError: The changes asked for are gone.
            StoreError: The stream is not a watch.
        """
        message = decoded(line, WatchLine)
        if message.result is None:
            text = message.error.message if message.error else "nothing"
            raise ConnectionError(f"etcd ended the watch: {text}")
        result = message.result
        if result.compact_revision:
            raise HistoryGoneError(
                f"changes behind revision {self._position} are wanted, and etcd keeps those from"
                f" {result.compact_revision} on",
                where=self._where,
                hint="read all keys again, and watch from the revision of that",
            )
        if result.canceled:
            raise ConnectionError(f"etcd ended the watch: {result.cancel_reason}")
        if not result.events:
            if not result.created and not self._held:  # nothing happened up to this revision
                self._position = max(self._position, result.header.revision)
            return
        events = self._held + result.events
        self._held = []
        newest = events[-1].kv.mod_revision
        if result.fragment:  # the rest of the newest revision may be in the next message
            self._held = [event for event in events if event.kv.mod_revision == newest]
            events = events[: -len(self._held)]
        self._pass_on(events)

    def _pass_on(self, events: list[WatchEvent]) -> None:
        changes: dict[int, list[StoreEvent]] = {}
        for event in events:
            changes.setdefault(event.kv.mod_revision, []).append(self._event(event))
        for revision in sorted(changes):
            if revision <= self._position:
                continue
            change = Change(revision, tuple(sorted(changes[revision], key=_key)))
            with self._state:
                self._state.wait_for(lambda: self._closed.is_set() or len(self._queue) < MAX_QUEUE)
                self._queue.append(change)
                self._position = revision
                self._state.notify_all()

    def _event(self, event: WatchEvent) -> StoreEvent:
        kv = event.kv
        key = kv.key[len(self._base) :].decode(errors="replace")
        if event.type == "DELETE":
            return StoreEvent(key, None)
        return StoreEvent(
            key, StoreEntry(key, kv.value, kv.create_revision, kv.mod_revision, kv.lease)
        )


def _key(event: StoreEvent) -> bytes:
    return event.key.encode()


def _check_head(head: bytes) -> None:
    """Refuse an answer that is not a stream.

    Raises:
        ConnectionError: The member does not serve the watch now.
        StoreError: It never will.
    """
    status = head.split(b"\r\n", 1)[0].split(b" ")[1:2]
    if status == [b"200"]:
        return
    text = b" ".join(status).decode(errors="replace")
    if text.startswith("5"):
        raise ConnectionError(f"HTTP {text}")
    raise StoreError(f"etcd refused the watch: HTTP {text}", hint="look at the version of etcd")
