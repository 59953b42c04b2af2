"""Connections of the HTTP server to the head: their number, and which of them are closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from sapwood.server import head_connections as module
from sapwood.server.head_connections import MAX_CONNECTIONS, ConnectionPool, HeadConnection


class Service:
    """A client of a head."""

    def __init__(self) -> None:
        self.is_over = False

    def close(self) -> None:
        self.is_over = True


@pytest.fixture(autouse=True)
def connections_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_connection(
        _cluster: str, loop: asyncio.AbstractEventLoop, _client: Any
    ) -> HeadConnection:
        return HeadConnection(Service(), None, loop)  # type: ignore[arg-type]  # the test's own

    def close(connection: HeadConnection) -> None:
        connection.client.close()

    monkeypatch.setattr(module, "open_connection", open_connection)
    monkeypatch.setattr(module, "_close", close)


def new_pool() -> ConnectionPool:
    own = HeadConnection(Service(), None, asyncio.get_running_loop())  # type: ignore[arg-type]  # as above
    return ConnectionPool("lab", own)


def test_one_more_client_than_lines_are_kept_gets_one() -> None:
    """Viewers may have all connections that are kept in use for hours."""

    async def come() -> None:
        pool = new_pool()
        async with contextlib.AsyncExitStack() as all_there:
            for number in range(MAX_CONNECTIONS + 1):
                connection = await all_there.enter_async_context(pool.of(f"c{number}", "n1:1"))
                assert not connection.is_over
        await pool.close()

    asyncio.run(come())


def test_of_too_many_lines_those_go_that_nobody_uses() -> None:
    async def come() -> None:
        pool = new_pool()
        async with pool.of("first", "n1:1") as first:
            for number in range(2 * MAX_CONNECTIONS):
                async with pool.of(f"c{number}", "n1:1"):
                    pass
            assert len(pool._connections) <= MAX_CONNECTIONS + 1
            assert not first.is_over
        await pool.close()
        assert first.is_over

    asyncio.run(come())
