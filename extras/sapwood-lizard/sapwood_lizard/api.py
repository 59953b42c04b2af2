"""What both sides of lizard-slayer's API have in common: requests within bounds, plain answers.

Answers are those of lizard-slayer: JSON, or a word, or ``error: STATUS`` with the status. Behind
that text a second line says what is wrong, which lizard-slayer's own programs do not read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sapwood import SapwoodError
from sapwood.errors import ClosedError, InputError, ResourceError, SecurityError
from sapwood_lizard.events import EventWorker
from sapwood_lizard.gate import ApiGate

MAX_BODY: Final = 256 * 2**20
"""Bytes of a request: a dataset is seven to ten times its own size in it."""

MAX_READING: Final = 2**30
"""Bytes of requests that come in at once."""

SMALL: Final = 2**20
"""Bytes of a request that is read while others wait."""


def answer_json(data: Any) -> Response:
    """Return a value as JSON."""
    return Response(json.dumps(data), media_type="application/json")


def answer_text(text: str) -> Response:
    """Return a word."""
    return Response(text, media_type="text/html")


def answer_error(status: int, why: str = "") -> Response:
    """Return an error as lizard-slayer does, with the reason behind it."""
    text = f"error: {status}\n{why}\n" if why else f"error: {status}"
    headers = {"www-authenticate": 'Basic realm="lizard"'} if status == 401 else {}
    return Response(text, status, headers, media_type="text/plain")


class RequestBody:
    """What a request brought: an object of JSON.

    Args:
        data: The object.
        nbytes: Its size.
    """

    def __init__(self, data: Mapping[str, Any], nbytes: int) -> None:
        self.data = data
        self.nbytes = nbytes

    def need(self, **kinds: type | tuple[type, ...]) -> None:
        """Check that there are some keys, with values of these types.

        Raises:
            InputError: There is none, or it is of another type.
        """
        for key, kind in kinds.items():
            value = self.data.get(key)
            if key not in self.data:
                raise InputError(f"the key {key} is missing")
            if not isinstance(value, kind) or isinstance(value, bool):
                raise InputError(f"{key} cannot be of the type {type(value).__name__}")


async def body_of(request: Request, limit: int = MAX_BODY) -> RequestBody:
    """Read the body of a request.

    Raises:
        HTTPException: It is no JSON, or too large.
        InputError: It is JSON, but no object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "the body must be JSON: Content-Type: application/json")
    pieces: list[bytes] = []
    total = 0
    state = request.app.state
    try:
        async for piece in request.stream():
            total += len(piece)
            state.reading += len(piece)
            if total > limit:
                raise HTTPException(413, f"the body has more than {limit} bytes")
            if state.reading > MAX_READING:
                raise HTTPException(503, "too many large requests come at once; try again")
            pieces.append(piece)
    finally:
        state.reading -= total
    text = b"".join(pieces)
    try:
        data = json.loads(text) if total < SMALL else await run_in_threadpool(json.loads, text)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON: {error}") from None
    if not isinstance(data, dict):
        raise InputError("the body is not a JSON object")
    return RequestBody(data, total)


def event_created(
    worker: EventWorker, kind: str, data: Mapping[str, Any] | None = None, nbytes: int = 0
) -> Response:
    """Have something done, and answer with the event."""
    return answer_json({"event_id": worker.submit(kind, data or {}, nbytes).id})


def common_routes(worker: EventWorker) -> list[BaseRoute]:
    """Return what servers and clients both answer."""

    async def ruok(_request: Request) -> Response:
        return answer_text("imok")

    async def shutdown(_request: Request) -> Response:
        return answer_json({"event_id": (await run_in_threadpool(worker.shut_down)).id})

    async def event(request: Request) -> Response:
        event_id = request.path_params["event_id"]
        if request.method == "DELETE":
            known = await run_in_threadpool(worker.cancel, event_id)
            return answer_text("ok") if known else answer_error(404)
        found = worker.get(event_id)
        if found is None:
            return answer_error(404)
        return Response(found, media_type="application/json")

    return [
        Route("/ruok", ruok),
        Route("/shutdown", shutdown),
        Route("/events/{event_id}", event, methods=["GET", "DELETE"]),
    ]


def application(routes: Sequence[BaseRoute], gate: ApiGate) -> Starlette:
    """Return an application behind a gate."""
    handlers: dict[Any, Any] = {
        SapwoodError: _failed,
        HTTPException: _refused,
    }
    made = Starlette(
        routes=routes, middleware=[Middleware(_Guarded, gate)], exception_handlers=handlers
    )
    made.router.redirect_slashes = False  # a redirect would name the host of the request
    made.state.reading = 0
    return made


class _Guarded:
    """Lets requests through that the gate lets in."""

    def __init__(self, app: ASGIApp, gate: ApiGate) -> None:
        self._app = app
        self._gate = gate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {
                name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
            }
            try:
                self._gate.check(headers, scope.get("client"), scope.get("server"))
            except SecurityError as error:
                status = 401 if "token" in error.what and "wants" in error.what else 403
                await answer_error(status, str(error))(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, SapwoodError)  # noqa: S101 - that is what it is registered for
    status = 400 if isinstance(error, InputError) else 500
    if isinstance(error, (ResourceError, ClosedError)):
        status = 503
    return answer_error(status, str(error))


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - that is what it is registered for
    found = answer_error(error.status_code, error.detail)
    found.headers.update(error.headers or {})
    return found
