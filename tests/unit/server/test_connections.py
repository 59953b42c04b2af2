"""The HTTP server's bounds: each client that is late, slow or too large is turned away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sapwood.server import connections
from sapwood.server.bounds import Message, Receive, Send
from sapwood.server.connections import HttpServer
from sapwood.server.limits import HttpLimits

PATIENCE = 20.0
PIECE = b"x" * 65536

Test = Callable[["Served"], Awaitable[None]]


class Served:
    """A server, and who was turned away."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.sent_before = 0  # until the last one was turned away
        self.server: HttpServer
        self.port = 0
        self.sent = 0
        self.asked_late, self.may_answer = asyncio.Event(), asyncio.Event()

    def refuse(self, _address: str, reason: str) -> None:
        """Note that a client was turned away."""
        self.refused.append(reason)
        self.sent_before = self.sent

    async def application(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer the body; at `/large`, without an end; at `/fault`, not at all.

        At `/late`, the answer waits until it may be given.
        """
        body = b""
        more = True
        while more:
            message: Message = await receive()
            body += message.get("body", b"")
            more = bool(message.get("more_body"))
        if scope["path"] == "/fault":
            raise ValueError("a mistake")
        if scope["path"] == "/late":
            self.asked_late.set()
            await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while scope["path"] == "/large":
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.sent += len(PIECE)
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": body})

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect."""
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, data: bytes) -> bytes:
        """Send bytes, and return all that comes until the end."""
        reader, writer = await self.open()
        try:
            writer.write(data)
            return await asyncio.wait_for(_rest(reader), PATIENCE)
        finally:
            writer.close()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - what a server does has no event
                await asyncio.sleep(0.02)


async def _rest(reader: asyncio.StreamReader) -> bytes:
    found = b""
    try:
        while piece := await reader.read(65536):
            found += piece
    except ConnectionError:
        pass
    return found


def serve(test: Test, **limits: Any) -> Served:
    """Run a test with a server."""
    made = Served()

    async def run() -> None:
        made.server = HttpServer(made.application, "here".__eq__, HttpLimits(**limits), made.refuse)
        ((_, made.port),) = await made.server.listen("127.0.0.1", 0)
        try:
            await test(made)
        finally:
            await made.server.close()

    asyncio.run(run())
    return made


def post(body: bytes, *headers: str, path: str = "/") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "host: here", "connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def test_answers() -> None:
    async def test(served: Served) -> None:
        answer = await served.ask(post(b"abc", "content-length: 3"))
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"date: " in answer
        assert b"abc" in answer

    assert serve(test).refused == []


@pytest.mark.parametrize("path", ["/", "/static"])
def test_refuses_requests_for_other_hosts(path: str) -> None:
    async def test(served: Served) -> None:
        for host in (b"evil.example", b"evil@here"):
            answer = await served.ask(
                b"GET %s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n" % (path.encode(), host)
            )
            assert answer.startswith(b"HTTP/1.1 421 ")
            assert b"nosniff" in answer

    assert set(serve(test).refused) == {"this server is not the host that the request names"}


def test_refuses_two_lengths_and_what_follows() -> None:
    async def test(served: Served) -> None:
        hidden = b"0\r\n\r\nGET /hidden HTTP/1.1\r\nhost: here\r\n\r\n"
        head = b"POST / HTTP/1.1\r\nhost: here\r\ntransfer-encoding: chunked\r\n"
        answer = await served.ask(head + b"content-length: %d\r\n\r\n" % len(hidden) + hidden)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    refused = serve(test).refused
    assert refused == ["the request has both Content-Length and Transfer-Encoding"]


@pytest.mark.parametrize("declared", [True, False])
def test_refuses_large_body(*, declared: bool) -> None:
    async def test(served: Served) -> None:
        if declared:
            data = post(b"", "content-length: 5000000000")
        else:
            data = post(b"20\r\n" + b"x" * 32 + b"\r\n", "transfer-encoding: chunked")
        assert (await served.ask(data)).startswith(b"HTTP/1.1 413 ")

    assert serve(test, body_bytes=20).refused == ["the body of the request has more than 20 bytes"]


def test_refuses_large_header() -> None:
    async def test(served: Served) -> None:
        await served.ask(post(b"", "x: " + "y" * 1_000_000))
        await served.until(lambda: len(served.refused) > 0)

    assert "headers are too long" in serve(test).refused[0]


@pytest.mark.slow
def test_ends_slow_header() -> None:
    async def test(served: Served) -> None:
        answer = await served.ask(b"GET / HTTP/1.1\r\nhost: here\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")

    assert serve(test, header_seconds=0.1).refused == ["the headers of its request do not come"]


@pytest.mark.slow
def test_ends_slow_body() -> None:
    async def test(served: Served) -> None:
        assert await served.ask(post(b"a", "content-length: 3")) == b""

    refused = serve(test, header_seconds=0.1, body_seconds=0.1).refused
    assert refused == ["the body of its request does not come"]


@pytest.mark.slow
def test_ends_idle_connection() -> None:
    async def test(served: Served) -> None:
        reader, writer = await served.open()
        assert await asyncio.wait_for(reader.read(), PATIENCE) == b""
        writer.close()

    assert serve(test, idle_seconds=0.1).refused == []


@pytest.mark.slow
def test_ends_client_that_does_not_read() -> None:
    async def test(served: Served) -> None:
        _, writer = await served.open()
        writer.write(post(b"", "content-length: 0", path="/large"))
        await served.until(lambda: len(served.refused) > 0)
        assert served.sent_before < 64 * 2**20  # what the kernel takes; then it waits
        await served.until(lambda: served.server.connections == 0)
        writer.close()

    assert serve(test, write_seconds=0.2).refused == ["it does not read what it asked for"]


def test_what_was_asked_before_the_end_is_answered() -> None:
    async def test(served: Served) -> None:
        asking = asyncio.create_task(served.ask(post(b"abc", "content-length: 3", path="/late")))
        await served.asked_late.wait()
        closing = asyncio.create_task(served.server.close())
        await asyncio.sleep(0)  # it has begun
        served.may_answer.set()
        assert (await asking).endswith(b"abc\r\n0\r\n\r\n")
        await closing

    assert serve(test).refused == []


def test_an_answer_without_an_end_does_not_keep_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LAST_ANSWERS", 0.01)

    async def test(served: Served) -> None:
        asking = asyncio.create_task(served.ask(post(b"abc", "content-length: 3", path="/late")))
        await served.asked_late.wait()
        await served.server.close()
        assert await asking == b""

    serve(test)


def test_too_many_idle_clients_make_room() -> None:
    async def test(served: Served) -> None:
        others = [await served.open() for _ in range(50)]
        await served.until(lambda: served.server.connections <= 5)
        answer = await served.ask(post(b"abc", "content-length: 3"))
        assert b"abc" in answer
        for _, writer in others:
            writer.close()

    refused = serve(test, connections=5).refused
    assert len(refused) >= 45
    assert set(refused) == {"5 clients are there"}


def test_mistake_of_application_is_an_answer() -> None:
    async def test(served: Served) -> None:
        answer = await served.ask(post(b"", "content-length: 0", path="/fault"))
        assert answer.startswith(b"HTTP/1.1 500 ")
        assert b"application/problem+json" in answer
        assert b"a mistake" not in answer

    serve(test)
