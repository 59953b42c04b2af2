"""The application that the HTTP server of a head runs: authentication, rights and routing."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sapwood.core.errors import SapwoodError, SecurityError
from sapwood.core.hints import naming
from sapwood.head.parts.web import WebServer
from sapwood.nodes.refusals import Refusals, RefusalsByKind
from sapwood.security.capabilities import Capability
from sapwood.server.api import PREFIX, endpoints
from sapwood.server.browser_sessions import (
    BrowserSession,
    BrowserSessions,
    SessionCookie,
    client_of,
)
from sapwood.server.dashboard_api import DashboardApi
from sapwood.server.endpoints import (
    ApiRequest,
    Endpoint,
    answer_of,
    read_body,
    read_query,
    refuse_body,
)
from sapwood.server.head_connections import ConnectionPool, HeadConnection, UnauthorizedError
from sapwood.server.metrics import ServerMetrics
from sapwood.server.openapi import document
from sapwood.server.origins import SAFE, check_origin
from sapwood.server.problems import MEDIA_TYPE, HttpError, Problem, problem_of, title_of
from sapwood.views.front_page import FIRST, FrontPage, page_of
from sapwood.views.live import Live
from sapwood.views.page import STATIC

SESSION_LIFE: Final = 12 * 3600.0
"""Seconds for which a browser is signed in at most."""

HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self'; "
    "object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "form-action 'self'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of each answer: pages load nothing from elsewhere, and cannot be framed."""


class Login(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Let a browser in.

    Attributes:
        ticket: Of the link that ``sapwood dashboard`` shows; it is good once.
        credential: Or a credential.
    """

    ticket: str = ""
    credential: str = ""


class Health(msgspec.Struct, frozen=True):
    """How the server is.

    Attributes:
        status: ``ok``, or ``no head``.
    """

    status: str


class WebApplication:
    """Answers requests by asking the head.

    Args:
        pool: The pool to the head.
        cookie: The cookie of browsers.
        no_token: Whether who comes without TLS needs no credential.
    """

    def __init__(
        self, pool: ConnectionPool, cookie: SessionCookie, *, no_token: bool = False
    ) -> None:
        self._pool = pool
        self._cookie = cookie
        self._sessions = BrowserSessions()
        self._no_token = no_token
        self._refusals = Refusals(self._tell_of_refused)  # of requests; their reasons vary
        self._turned_away = RefusalsByKind()  # of clients, by the reason
        self._statuses: Counter[int] = Counter()
        self.connections: Callable[[], int] = int
        self.dashboard = DashboardApi(pool.own, version("sapwood"), pool.cluster)
        self.live = Live(self.dashboard.ask, version("sapwood"), pool.cluster)
        self._front_page = FrontPage(pool.cluster)
        table = endpoints(self.live, self.metrics)
        self._table = [*table, *self.dashboard.endpoints(PREFIX)]
        self.application = Starlette(
            routes=[*self._routes()],
            exception_handlers={
                HttpError: self._failed,
                SapwoodError: self._failed,
                HTTPException: self._failed,
            },
        )

        # A redirect would name the host of the request, which a proxy may have changed.
        self.application.router.redirect_slashes = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; each answer has the headers that keep browsers safe."""

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                self._statuses[message["status"]] += 1
                own = message.get("headers", [])
                names = {name for name, _ in own}
                safe = ((name.encode(), value.encode()) for name, value in HEADERS.items())
                message["headers"] = [*own, *(one for one in safe if one[0] not in names)]
            await send(message)

        await self.application(scope, receive, with_headers)

    def metrics(self) -> ServerMetrics:
        """Return how the server is."""
        return ServerMetrics(
            requests=self._statuses,
            connections=self.connections(),
            streams=self.live.viewers,
        )

    def refused(self, address: str, reason: str) -> None:
        """Have the ledger tell of a client that was refused, not more often than is of use."""
        left_out = self._turned_away.count(reason.partition(":")[0])
        if left_out is not None:
            self._tell_of_refused(address, reason, left_out)

    def _tell_of_refused(self, address: str, reason: str, left_out: int) -> None:
        self._pool.own.client.ask(WebServer.note_refused, address, reason, left_out)

    # --- routes ----------------------------------------------------------------------------------

    def _routes(self) -> Iterable[Route | Mount]:
        for path, methods in _by_path(self._table).items():
            yield Route(
                path, functools.partial(self._answer, methods), methods=[*methods], name=path
            )
        yield Route(f"{PREFIX}/login", self._login, methods=["POST"])
        yield Route(f"{PREFIX}/logout", self._logout, methods=["POST"])
        yield Route("/healthz", self._health)
        yield Route("/openapi.json", self._reference)
        yield Route("/", self._front)
        yield Route(f"/static/{self._front_page.script_name}", self._script)
        yield Route("/login", self._login_page)
        yield Mount("/static", StaticFiles(directory=STATIC))

    async def _answer(self, methods: Mapping[str, Endpoint], request: Request) -> Response:
        endpoint = methods["GET" if request.method == "HEAD" else request.method]
        credential, by_cookie = self._shown(request)
        check_origin(request.method, request.url.scheme, request.headers, by_cookie=by_cookie)
        async with self._connection(request, credential) as connection:
            query = read_query(request, endpoint.query)
            await refuse_body(request)
            asked = ApiRequest(
                connection=connection, path=request.path_params, query=query, request=request
            )
            return _fresh(answer_of(await endpoint.handler(asked)))

    def _shown(self, request: Request) -> tuple[str, bool]:
        """Return the credential of a request, and whether a browser has added it unasked."""
        header = request.headers.get("authorization")
        if header is not None:
            scheme, _, text = header.partition(" ")
            if scheme.lower() != "bearer" or not text.strip():
                raise UnauthorizedError(
                    "unsupported Authorization header",
                    hint="send `Authorization: Bearer CREDENTIAL`",
                )
            return text.strip(), False
        session_id = self._cookie.read(request)
        session = self._sessions.find(session_id, client_of(request)) if session_id else None
        if session is None:
            return "", True
        if session.reads_only and request.method not in SAFE:
            raise HttpError(
                403,
                "this browser may only read",
                hint="`sapwood dashboard --allow-changes` prints a link that lets it do more",
            )
        return session.credential, True

    @contextlib.asynccontextmanager
    async def _connection(self, request: Request, credential: str) -> Any:
        if credential:
            async with self._pool.of(credential, _peer(request)) as connection:
                yield connection
        elif self._no_token and request.url.scheme == "http":
            yield self._pool.own
        else:
            raise UnauthorizedError(
                "authentication required: this server needs a credential",
                hint="send `Authorization: Bearer CREDENTIAL`; `sapwood credential issue` makes "
                "one, and `sapwood dashboard` lets a browser in",
            )

    # --- browsers --------------------------------------------------------------------------------

    async def _login(self, request: Request) -> Response:
        check_origin(request.method, request.url.scheme, request.headers, by_cookie=True)
        body = await read_body(request, Login)
        if bool(body.ticket) == bool(body.credential):
            raise HttpError(400, "a ticket or a credential is needed, and one of them only")
        text = body.credential
        if body.ticket:
            try:
                text = await self._pool.own.call(WebServer.redeem, body.ticket)
            except SecurityError as error:
                raise UnauthorizedError(error.what, hint=error.hint) from error
        else:
            less = Capability.parse(text).attenuate(not_after=time.time() + SESSION_LIFE)
            text = less.text
        connection: HeadConnection
        async with self._pool.of(text, _peer(request)) as connection:
            rights = connection.rights
        now = time.time()
        expires = now + SESSION_LIFE
        if rights is not None:
            expires = min(expires, rights.not_after)
        session = BrowserSession(text, client_of(request), expires, reads_only=not body.ticket)
        response = _fresh(answer_of(rights))
        self._cookie.set(request, response, self._sessions.open(session), expires - now)
        return response

    async def _logout(self, request: Request) -> Response:
        check_origin(request.method, request.url.scheme, request.headers, by_cookie=True)
        self._sessions.close(self._cookie.read(request))
        response = Response(status_code=204)
        self._cookie.delete(request, response)
        return response

    async def _front(self, request: Request) -> Response:
        """Answer with the first page, and with what it shows inside, for who may see that."""
        first = FIRST.encode()
        with contextlib.suppress(SapwoodError, HttpError, TimeoutError):
            credential, _ = self._shown(request)
            async with self._connection(request, credential) as connection:
                first = await self.dashboard.first(connection)
        page = self._front_page.page(first)
        policy = HEADERS["content-security-policy"].replace(
            "style-src 'self'", self._front_page.policy
        )
        answer = _compressed(page, request, "text/html")
        answer.headers["content-security-policy"] = policy
        return _fresh(answer)

    async def _script(self, request: Request) -> Response:
        """Answer with the script of the pages, which never changes under this name."""
        answer = _compressed(self._front_page.script, request, "text/javascript")
        answer.headers["cache-control"] = "public, max-age=31536000, immutable"
        return answer

    async def _login_page(self, _request: Request) -> Response:
        page = page_of("login.html", self._pool.cluster)
        return HTMLResponse(page, headers={"cache-control": "no-cache"})

    async def _health(self, _request: Request) -> Response:
        there = not self._pool.own.is_over
        response = _fresh(answer_of(Health("ok" if there else "no head")))
        response.status_code = 200 if there else 503
        return response

    async def _reference(self, _request: Request) -> Response:
        return answer_of(self.reference)

    @functools.cached_property
    def reference(self) -> dict[str, Any]:
        """The reference of the API."""
        return document(self._table, version("sapwood"))

    # --- errors ----------------------------------------------------------------------------------

    async def _failed(self, request: Request, error: Exception) -> Response:
        headers: Mapping[str, str] = {}
        if isinstance(error, UnauthorizedError):
            found = problem_of(error, 401)
            headers = {"www-authenticate": "Bearer"}
        elif isinstance(error, HttpError):
            found, headers = error.problem, error.headers
        elif isinstance(error, SapwoodError):
            found = problem_of(error)
        elif isinstance(error, HTTPException):
            found = Problem(
                title=title_of(error.status_code),
                status=error.status_code,
                detail=_in_words(error.status_code),
                where=request.url.path[:200],
                hint="/openapi.json says what there is",
            )
            headers = error.headers or {}
        else:
            raise error
        found = msgspec.structs.replace(found, hint=naming(found.hint, self._pool.cluster))
        if found.status in {401, 421} or (found.status == 403 and isinstance(error, HttpError)):
            self._refusals(_peer(request), f"{request.method} {request.url.path}: {found.detail}")
        return Response(
            msgspec.json.encode(found),
            found.status,
            {**headers, "cache-control": "no-store"},
            MEDIA_TYPE,
        )


def _by_path(table: Iterable[Endpoint]) -> dict[str, dict[str, Endpoint]]:
    found: dict[str, dict[str, Endpoint]] = {}
    for one in table:
        found.setdefault(one.path, {})[one.method] = one
    return found


def _peer(request: Request) -> str:
    return f"{request.client.host}:{request.client.port}" if request.client else "here"


def _compressed(body: bytes, request: Request, media: str) -> Response:
    """Return an answer whose body is compressed already, for a client that may not take that."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers = {"content-encoding": "gzip", "vary": "accept-encoding"}
        return Response(body, headers=headers, media_type=media)
    return Response(gzip.decompress(body), headers={"vary": "accept-encoding"}, media_type=media)


def _fresh(response: Response) -> Response:
    response.headers.setdefault("cache-control", "no-store")
    return response


def _in_words(status: int) -> str:
    return {404: "there is nothing at this path", 405: "this path has no such method"}.get(
        status, title_of(status)
    )


async def close(application: WebApplication, pool: ConnectionPool) -> None:
    """End the streams of an application, and its pool to the head."""
    application.live.close()
    await asyncio.sleep(0)
    await pool.close()
