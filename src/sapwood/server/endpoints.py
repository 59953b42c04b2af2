"""The form of an endpoint: what it takes, what it gives, and how a request becomes a call of it."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from sapwood.core import typed
from sapwood.core.shown import shown
from sapwood.server.head_connections import HeadConnection
from sapwood.server.problems import HttpError

JSON = "application/json"


class NoFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


@dataclasses.dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, with all that was read of it.

    Attributes:
        connection: The connection to the head that speaks for the client.
        path: The parts of its path that vary.
        query: Its parameters.
        request: The request itself.
    """

    connection: HeadConnection
    path: Mapping[str, str]
    query: Any
    request: Request


Handler = Callable[[ApiRequest], Awaitable[Any]]
"""Returns the answer: a structure that becomes JSON, or a whole response."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A route of the API.

    Attributes:
        method: ``GET``, ``POST`` or ``DELETE``.
        path: Its path; parts in braces vary.
        handler: What answers.
        about: What it does, one sentence; it is shown in the reference.
        answer: The type of the answer.
        query: The type of its parameters.
        right: The right that it needs, for the reference; the head decides.
        media: The media type of the answer.
        parts: What the parts of the path that vary mean.
    """

    method: str
    path: str
    handler: Handler
    about: str
    answer: Any
    query: type[msgspec.Struct] = NoFields
    right: str = "connect"
    media: str = JSON
    parts: Mapping[str, str] = dataclasses.field(default_factory=dict)


T = TypeVar("T")
HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])


class Routes:
    """The endpoints of a module or of a class, each declared on the function that answers it.

    The docstring of the function says what it does, and its annotation what it answers.

    Example:
        >>> routes = Routes()
        >>> @routes("GET", "/whoami")
        ... async def whoami(asked: ApiRequest) -> str:
        ...     "Who asks."
        ...     return "ann"
        >>> (made,) = routes.endpoints("/api/v1")
        >>> made.path, made.about, made.answer
        ('/api/v1/whoami', 'Who asks.', <class 'str'>)
    """

    def __init__(self) -> None:
        self._declared: list[tuple[Callable[..., Any], dict[str, Any]]] = []

    def __call__(
        self, method: str, path: str, *, right: str = "connect", **more: Any
    ) -> Callable[[HandlerT], HandlerT]:
        """Declare an endpoint.

        Args:
            method: As of :class:`Endpoint`.
            path: Its path behind the prefix.
            right: As of :class:`Endpoint`.
            more: Likewise.
        """

        def declare(handler: HandlerT) -> HandlerT:
            kept = {"method": method, "path": path, "right": right, **more}
            self._declared.append((handler, kept))
            return handler

        return declare

    def endpoints(self, prefix: str, owner: object = None) -> list[Endpoint]:
        """Return the endpoints.

        Args:
            prefix: How their paths begin.
            owner: The object whose methods they are; None for functions.
        """
        return [
            Endpoint(
                **{
                    "about": " ".join((inspect.getdoc(handler) or "").split()),
                    "answer": typing.get_type_hints(handler)["return"],
                    **kept,
                    "path": prefix + kept["path"],
                    "handler": handler if owner is None else types.MethodType(handler, owner),
                }
            )
            for handler, kept in self._declared
        ]


def read_query(request: Request, kind: type[msgspec.Struct]) -> Any:
    """Return the parameters of a request.

    Raises:
        HttpError: They are not what they should be.
    """
    fields = {one.name: one.type for one in msgspec.structs.fields(kind)}
    given: dict[str, Any] = {}
    for name in request.query_params:
        if name not in fields:
            raise HttpError(
                400,
                f"unknown parameter {shown(name)}",
                where=request.url.path,
                hint=f"there is {', '.join(sorted(fields))}" if fields else "it takes none",
            )
        values = request.query_params.getlist(name)
        several = isinstance(fields[name], types.GenericAlias)
        if len(values) > 1 and not several:
            raise HttpError(400, f"the parameter {name} is given twice", where=request.url.path)
        given[name] = values if several else values[0]
    try:
        return typed.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise HttpError(400, f"a parameter is wrong: {error}", where=request.url.path) from error


async def refuse_body(request: Request) -> None:
    """Refuse a request with a body.

    Raises:
        HttpError: It has one.
    """
    if await request.body():
        raise HttpError(400, "this request takes no body", where=request.url.path)


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises:
        HttpError: It is not what it should be.
    """
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != JSON:
        raise HttpError(415, f"the body must be {JSON}", where=sent[:100])
    try:
        return typed.json_reader(kind)(await request.body())
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise HttpError(400, f"the body is wrong: {error}", where=request.url.path) from error


def answer_of(value: Any) -> Response:
    """Return an answer as a response."""
    if isinstance(value, Response):
        return value
    return Response(msgspec.json.encode(value), media_type=JSON)
