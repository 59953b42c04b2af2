"""Lines of the HTTP server to the head: how many there are, and which of them go."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from sapwood.server import lines as module
from sapwood.server.lines import MAX_LINES, Line, Lines


class Connection:
    """A connection to a head."""

    def __init__(self) -> None:
        self.is_over = False

    def close(self) -> None:
        self.is_over = True


@pytest.fixture(autouse=True)
def lines_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_line(_cluster: str, loop: asyncio.AbstractEventLoop, _client: Any) -> Line:
        return Line(Connection(), None, loop)  # type: ignore[arg-type]  # the test's own

    def close(line: Line) -> None:
        line.client.close()

    monkeypatch.setattr(module, "open_line", open_line)
    monkeypatch.setattr(module, "_close", close)


def new_lines() -> Lines:
    own = Line(Connection(), None, asyncio.get_running_loop())  # type: ignore[arg-type]  # as above
    return Lines("lab", own)


def test_one_more_client_than_lines_are_kept_gets_one() -> None:
    """Viewers may have all lines that are kept in use for hours."""

    async def come() -> None:
        lines = new_lines()
        async with contextlib.AsyncExitStack() as all_there:
            for number in range(MAX_LINES + 1):
                line = await all_there.enter_async_context(lines.of(f"c{number}", "n1:1"))
                assert not line.is_over
        await lines.close()

    asyncio.run(come())


def test_of_too_many_lines_those_go_that_nobody_uses() -> None:
    async def come() -> None:
        lines = new_lines()
        async with lines.of("first", "n1:1") as first:
            for number in range(2 * MAX_LINES):
                async with lines.of(f"c{number}", "n1:1"):
                    pass
            assert len(lines._lines) <= MAX_LINES + 1
            assert not first.is_over
        await lines.close()
        assert first.is_over

    asyncio.run(come())
