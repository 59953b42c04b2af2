"""What happens, as it happens: server-sent events, which a client resumes where it was cut off."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.responses import StreamingResponse

from sapwood.core.errors import ConfigurationError
from sapwood.core.shown import shown
from sapwood.head.ledger import EventQuery, kinds_of
from sapwood.server.endpoints import ApiRequest, Endpoint
from sapwood.server.head_connections import HeadConnection
from sapwood.server.problems import HttpError
from sapwood.views.live import KEEP, TOPICS, Live, Message, number_of

MEDIA_TYPE: Final = "text/event-stream"
"""The media type of such a stream."""

RETRY: Final = 2000
"""Milliseconds until a browser that was cut off comes again."""

OBSERVES: Final = frozenset({"observe", "admin"})
"""Rights of which one lets a client see all that the head knows."""

HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}
"""Of an answer without an end."""


class LiveQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What does a client follow?

    Attributes:
        topics: Separated by commas: overview, nodes, node, trees, sessions, runs, run or events.
        about: The name of the node, or the id of the run or session.
        after: First all events after this number; 0: only events from now on; -1: first the last
            events.
        node: Events about these nodes; none: about any, or no node.
        session: Events about this session; empty: about any, or no session.
        kind: Events of these kinds, or of all kinds that begin so; none: of any.
    """

    topics: str = "events"
    about: str = ""
    after: int = -1
    node: list[str] = []
    session: str = ""
    kind: list[str] = []


class StreamQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events, as they happen?

    Attributes:
        after: First those after this number; 0: only what happens from now on.
        node: Those about these nodes; none: about any, or no node.
        session: Those about this session; empty: about any, or no session.
        kind: Those of these kinds, or of all kinds that begin so; none: of any.
        nodes: Whether to send also how nodes are, when that changes.
    """

    after: int = 0
    node: list[str] = []
    session: str = ""
    kind: list[str] = []
    nodes: bool = True


def endpoints(live: Live | None, prefix: str) -> list[Endpoint]:
    """Return the endpoints.

    Args:
        live: The sources that clients follow; None for the reference.
        prefix: How their paths begin.
    """

    async def follow(asked: ApiRequest) -> StreamingResponse:
        """What happens, as it happens."""
        return await _followed(live, asked, asked.query)

    async def stream(asked: ApiRequest) -> StreamingResponse:
        """Events, as they happen."""
        wanted: StreamQuery = asked.query
        query = LiveQuery(
            topics="events,nodes" if wanted.nodes else "events",
            after=wanted.after,
            node=wanted.node,
            session=wanted.session,
            kind=wanted.kind,
        )
        return await _followed(live, asked, query)

    return [
        Endpoint(
            method="GET",
            path=f"{prefix}/live",
            handler=follow,
            about="What happens, as server-sent events: `event` has an event of the ledger, and "
            "each other topic its own name. `Last-Event-ID` continues where a client was "
            "disconnected.",
            answer=str,
            query=LiveQuery,
            right="observe",
            media=MEDIA_TYPE,
        ),
        Endpoint(
            method="GET",
            path=f"{prefix}/events/stream",
            handler=stream,
            about="The former name of `live` with the topics `events` and `nodes`; the next "
            "release removes it.",
            answer=str,
            query=StreamQuery,
            right="observe",
            media=MEDIA_TYPE,
        ),
    ]


async def _followed(live: Live | None, asked: ApiRequest, wanted: LiveQuery) -> StreamingResponse:
    must_observe(asked.connection)
    topics = [one for one in wanted.topics.split(",") if one]
    for topic in topics:
        if topic not in TOPICS:
            hint = f"follow {', '.join(TOPICS)}"
            raise HttpError(400, f"unknown topic {shown(topic)}", hint=hint)
    kinds_of(wanted.kind)
    resumed = asked.request.headers.get("last-event-id")
    after = resumed_after(resumed, wanted.after)
    events = EventQuery(nodes=wanted.node, session=wanted.session, kinds=wanted.kind)
    assert live is not None  # noqa: S101 - the reference answers nothing
    stream = live.messages(topics, wanted.about, events, None if after < 0 else after)
    try:
        first = await anext(stream)  # if nothing can be followed, the answer says so
    except ConfigurationError as error:
        raise HttpError(503, error.what, hint=error.hint, headers={"retry-after": "10"}) from error
    messages = _until_connection_ends(asked.connection, first, stream)
    return StreamingResponse(messages, media_type=MEDIA_TYPE, headers=HEADERS)


def must_observe(connection: HeadConnection) -> None:
    """Refuse a client that may not see all that the head knows.

    Raises:
        HttpError: It may not.
    """
    if connection.rights is not None and not OBSERVES & set(connection.rights.names):
        raise HttpError(
            403,
            "the credential does not give the right 'observe'",
            hint="`sapwood credential issue --role observer` makes one that does",
        )


async def _until_connection_ends(
    connection: HeadConnection, first: Message, stream: AsyncIterator[Message]
) -> AsyncIterator[bytes]:
    """Yield messages until the client is cut off: its credential has ended, or was revoked."""
    over = asyncio.Event()
    end = connection.listen(lambda name, _value: None if name else over.set())
    connection.users += 1
    try:
        yield f"retry: {RETRY}\n\n".encode() + message_of(first)
        while not over.is_set():
            following = asyncio.ensure_future(anext(stream))
            ending = asyncio.ensure_future(over.wait())
            try:
                await asyncio.wait({following, ending}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                ending.cancel()
                if not following.done():
                    following.cancel()
            if over.is_set():
                return
            try:
                message = following.result()
            except StopAsyncIteration:
                return
            yield b": nothing new\n\n" if message == KEEP else message_of(message)
    finally:
        connection.users -= 1
        end()
        with contextlib.suppress(RuntimeError):
            await stream.aclose()  # type: ignore[attr-defined]  # it is a generator


def message_of(message: Message) -> bytes:
    r"""Return a message of a stream.

    Example:
        >>> message_of(("event", b'{"number":7}'))
        b'id: 7\nevent: event\ndata: {"number":7}\n\n'
    """
    kind, value = message
    number = number_of(message)
    id_line = b"" if number is None else f"id: {number}\n".encode()
    return id_line + b"event: %b\ndata: %b\n\n" % (kind.encode(), value)


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
