"""What happens, as it happens: server-sent events, which a browser resumes where it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from sapwood.core import typed
from sapwood.head import calls
from sapwood.head.ledger import MAX_FOUND, EventQuery, LedgerEvent, kinds_of
from sapwood.head.parts.events import Events
from sapwood.server.head_connections import HeadConnection
from sapwood.server.problems import HttpError

MEDIA_TYPE: Final = "text/event-stream"
"""The media type of such a stream."""

MAX_STREAMS: Final = 64
"""EventStreams that may be open."""

MAX_UNSENT: Final = 2 * MAX_FOUND
"""Messages that wait for a client; one that is further behind is cut off, and may resume."""

KEEP_ALIVE: Final = 10.0
"""Seconds of silence after which a comment is sent, so that both sides see a dead connection."""

RETRY: Final = 2000
"""Milliseconds until a browser that was cut off comes again."""


class EventStreams:
    """The open streams of a server."""

    def __init__(self) -> None:
        self._open: set[asyncio.Queue[bytes | None]] = set()

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self._open)

    def close(self) -> None:
        """End all of them."""
        for queue in self._open:
            _end(queue)

    async def events(
        self, connection: HeadConnection, query: EventQuery, *, nodes: bool
    ) -> StreamingResponse:
        """Return a stream of what happens.

        Args:
            connection: The connection of the client; it is used until the stream ends.
            query: Which events. With a number in ``after``, those since then come first.
            nodes: Whether to tell how nodes are, too, when that changes.

        Raises:
            HttpError: There are too many streams.
            SapwoodError: The credential does not give that right.
        """
        kinds_of(query.kinds)
        if len(self._open) >= MAX_STREAMS:
            raise HttpError(
                503,
                f"{MAX_STREAMS} streams are open",
                hint="close a page of the dashboard, or ask for /api/v1/events from time to time",
                headers={"retry-after": "10"},
            )
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(MAX_UNSENT)
        told = _Told(queue, query, nodes=nodes)
        connection.users += 1
        self._open.add(queue)
        end = connection.listen(told.heard)

        def left() -> None:
            if queue in self._open:
                self._open.discard(queue)
                connection.users -= 1
                end()

        try:
            await connection.follow()
            if query.after:
                wanted = msgspec.structs.replace(query, limit=MAX_FOUND)
                page = await connection.call(Events.find, wanted)
                told.found(page.events)
            told.go_on()
        except BaseException:
            left()
            raise
        return _Stream(_messages(queue), left)


class _Told:
    """The events for a client: first the missed ones, then new ones."""

    def __init__(
        self, queue: asyncio.Queue[bytes | None], query: EventQuery, *, nodes: bool
    ) -> None:
        self._queue = queue
        self._query = query
        self._nodes = nodes
        self._last = query.after
        self._held: list[tuple[str, Any]] | None = []

    def found(self, events: list[LedgerEvent]) -> None:
        """Tell of what was missed."""
        for event in events:
            self._last = event.number
            _put(self._queue, message_of("event", event, event.number))

    def go_on(self) -> None:
        """Tell of what came meanwhile, and then of what comes."""
        held, self._held = self._held or [], None
        for name, value in held:
            self.heard(name, value)

    def heard(self, name: str, value: Any) -> None:
        """Take a notice in."""
        if self._held is not None and name:
            if len(self._held) < MAX_UNSENT:
                self._held.append((name, value))
        elif name == calls.EVENT_NOTED:
            event = typed.convert(value, LedgerEvent)
            if event.number > self._last and self._query.fits(event):
                self._last = event.number
                _put(self._queue, message_of("event", event, event.number))
        elif name == calls.NODES_CHANGED and self._nodes:
            _put(self._queue, message_of("nodes", typed.convert(value, calls.NodesChanged)))
        elif not name:
            _end(self._queue)


class _Stream(StreamingResponse):
    """An answer without an end, which says when it is over, however that comes."""

    def __init__(self, messages: AsyncIterator[bytes], left: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(messages, media_type=MEDIA_TYPE, headers=headers)
        self._left = left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._left()


async def _messages(queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY}\n\n".encode()
    while True:
        try:
            message = await asyncio.wait_for(queue.get(), KEEP_ALIVE)
        except TimeoutError:
            yield b": still here\n\n"
            continue
        if message is None:
            return
        yield message


def message_of(name: str, value: Any, number: int | None = None) -> bytes:
    r"""Return a message of a stream.

    Example:
        >>> message_of("event", {"text": "it began"}, 7)
        b'id: 7\nevent: event\ndata: {"text":"it began"}\n\n'
    """
    shown = b"" if number is None else f"id: {number}\n".encode()
    return shown + b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(value))


def _put(queue: asyncio.Queue[bytes | None], message: bytes) -> None:
    """Queue a message; a client too far behind is disconnected, and reconnects."""
    try:
        queue.put_nowait(message)
    except asyncio.QueueFull:
        _end(queue)


def _end(queue: asyncio.Queue[bytes | None]) -> None:
    while queue.full():
        queue.get_nowait()
    queue.put_nowait(None)


def resumed_after(header: str | None, after: int) -> int:
    """Return the number behind which a stream continues.

    Args:
        header: ``Last-Event-ID``, which browsers send when they come again.
        after: What the parameter says.

    Raises:
        HttpError: The header is not a number.
    """
    if not header:
        return after
    if not header.isascii() or not header.isdecimal() or len(header) > 18:
        raise HttpError(400, "Last-Event-ID is not a number", where=header[:40])
    return int(header)
