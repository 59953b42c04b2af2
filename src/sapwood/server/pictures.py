"""What the dashboard asks for: its pages as JSON, and a stream of what changes on them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from sapwood.core import typed
from sapwood.core.errors import ConfigurationError
from sapwood.head import calls
from sapwood.views.live import KEEP, Ask, Live, glance_of, overview_of, run_of

Allow = Callable[[Request], Awaitable[None]]
"""Raises an error unless the client may see what the head knows of everybody."""


class Pictures:
    """The answers behind the pages of the dashboard.

    Args:
        ask: Calls the head.
        version: Of Sapwood.
        allow: Looks whether the client may.
    """

    def __init__(self, ask: Ask, version: str, allow: Allow) -> None:
        self._ask = ask
        self._version = version
        self._allow = allow
        self.live = Live(ask, version)

    def routes(self) -> list[Route]:
        """Return the routes, below the prefix of the API."""
        return [
            Route("/overview", self._overview),
            Route("/glance", self._glance),
            Route("/glance/{name}", self._node),
            Route("/runs/{run}/picture", self._run),
            Route("/live", self._live),
        ]

    async def _overview(self, request: Request) -> Response:
        await self._allow(request)
        return _json(await overview_of(self._ask))

    async def _glance(self, request: Request) -> Response:
        await self._allow(request)
        return _json(await glance_of(self._ask))

    async def _node(self, request: Request) -> Response:
        await self._allow(request)
        name = request.path_params["name"]
        glance = await glance_of(self._ask)
        found = next((one for one in glance.nodes if one.name == name), None)
        if found is None:
            raise ConfigurationError(f"there is no node {name[:80]!r}")
        said = await self._ask(calls.STATUS, [found.host])
        status = typed.convert(said, calls.TreeStatus).nodes
        return _json({"glance": found, "status": status[0] if status else None})

    async def _run(self, request: Request) -> Response:
        await self._allow(request)
        view, _ = await run_of(self._ask, request.path_params["run"], self._version)
        return _json(view)

    async def _live(self, request: Request) -> Response:
        await self._allow(request)
        topics = [one for one in request.query_params.get("topics", "").split(",") if one]
        told = self.live.messages(topics, request.query_params.get("about", ""))
        first = await anext(told)  # what is wrong with the request is an answer, not a stream
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(
            _stream(first, told), media_type="text/event-stream", headers=headers
        )


async def _stream(first: tuple[str, bytes], told: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    yield _event(*first)
    async for message in told:
        yield b": nothing new\n\n" if message == KEEP else _event(*message)


def _event(kind: str, value: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), value)


def _json(value: Any) -> Response:
    return Response(msgspec.json.encode(value), media_type="application/json")
