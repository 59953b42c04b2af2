"""Bounds, checks and error answers that every application of ours has in front of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from sapwood.core.errors import SapwoodError
from sapwood.environment.logs import logger
from sapwood.server.limits import HttpLimits
from sapwood.server.problems import HttpError, Problem, problem_of, start_of
from sapwood.server.request_checks import OwnHost, check_request

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
"""An application, as ASGI 3 says."""

_log = logger("http")


class BoundedApplication:
    """An application whose requests are checked and have bounds, and whose errors become answers.

    Args:
        application: The application.
        limits: The bounds.
        refused: Told of bad requests: ``refused(address, reason)``.
        is_own_host: Whether the server has a name.
    """

    def __init__(
        self,
        application: Application,
        limits: HttpLimits,
        refused: Callable[[str, str], None],
        is_own_host: OwnHost,
    ) -> None:
        self._application = application
        self._limits = limits
        self._refused = refused
        self._is_own_host = is_own_host
        self._open = 0

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        answer = _Answer(send)
        self._open += 1
        try:
            self._check(scope)
            check_request(scope, self._is_own_host)
            await self._application(scope, self._bounded(receive), answer.send)
        except HttpError as error:
            if error.status in {400, 413, 421, 503}:
                self._refused(_peer(scope), error.what)
            await answer.fail(error.problem, error.headers)
        except SapwoodError as error:
            await answer.fail(problem_of(error))
        except Exception:  # noqa: BLE001 - a mistake here must not end the server
            _log.exception("request failed", path=str(scope.get("path"))[:200])
            await answer.fail(
                Problem(title="Internal Server Error", status=500, detail="the server has failed")
            )
        finally:
            self._open -= 1

    def _check(self, scope: MutableMapping[str, Any]) -> None:
        if self._open > self._limits.requests:
            raise HttpError(
                503,
                f"{self._limits.requests} requests are worked at",
                hint="try again",
                headers={"retry-after": "1"},
            )
        for name, value in scope["headers"]:
            if name == b"content-length" and int(value) > self._limits.body_bytes:
                raise self._too_large()

    def _bounded(self, receive: Receive) -> Receive:
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > self._limits.body_bytes:
                raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> HttpError:
        return HttpError(
            413, f"the body of the request has more than {self._limits.body_bytes} bytes"
        )


class _Answer:
    """An answer, and whether it has begun."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._started = True
        await self._send(message)

    async def fail(self, problem: Problem, headers: dict[str, str] | None = None) -> None:
        """Say what went wrong; where the answer has begun, it ends without its end."""
        if self._started:
            raise ConnectionAbortedError(problem.detail)
        body = msgspec.json.encode(problem)
        shown = {"content-length": str(len(body)), **(headers or {})}
        await self._send(start_of(problem, shown))
        await self._send({"type": "http.response.body", "body": body})


def _peer(scope: MutableMapping[str, Any]) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "here"
