"""Errors as clients get them: problem details (RFC 9457) with what, where and hint."""

from __future__ import annotations

import http
from typing import Any, Final

import msgspec

from sapwood.core.errors import (
    ClosedError,
    CommunicationError,
    InputError,
    NodeLostError,
    ProtocolError,
    ResourceError,
    SapwoodError,
    SecurityError,
    StoreError,
)

MEDIA_TYPE: Final = "application/problem+json"
"""The media type of a :class:`Problem`."""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a request was not answered as it should be.

    Attributes:
        type: Names the kind of error: ``urn:sapwood:error:`` and its code.
        title: What the status means.
        status: The status of the answer.
        detail: What happened.
        code: The code of the error, as in the reference of errors.
        where: The place.
        hint: What to do about it.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str = ""
    where: str = ""
    hint: str = ""


class HttpError(Exception):
    """Ends a request with a status of HTTP that no other error stands for.

    Args:
        status: The status.
        what: What happened.
        where: The place.
        hint: What the client can do.
        headers: More headers of the answer.
    """

    def __init__(
        self,
        status: int,
        what: str,
        *,
        where: str = "",
        hint: str = "",
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(what)
        self.status = status
        self.what = what
        self.where = where
        self.hint = hint
        self.headers = dict(headers or {})

    @property
    def problem(self) -> Problem:
        """The same for the client."""
        return Problem(
            title=title_of(self.status),
            status=self.status,
            detail=self.what,
            where=self.where,
            hint=self.hint,
        )


def title_of(status: int) -> str:
    """Return what a status means, in words.

    Example:
        >>> title_of(404)
        'Not Found'
    """
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return str(status)


def status_of(error: SapwoodError) -> int:
    """Return the status that stands for an error.

    Example:
        >>> status_of(SecurityError("no")), status_of(InputError("no")), status_of(SapwoodError(""))
        (403, 400, 500)
    """
    statuses: tuple[tuple[type[SapwoodError], int], ...] = (
        (SecurityError, 403),
        (InputError, 400),
        (ProtocolError, 400),
        (NodeLostError, 503),
        (ClosedError, 503),
        (CommunicationError, 503),
        (ResourceError, 503),
        (StoreError, 503),
    )
    return next((status for kind, status in statuses if isinstance(error, kind)), 500)


def problem_of(error: SapwoodError, status: int = 0) -> Problem:
    """Return an error for a client.

    Args:
        error: The error.
        status: The status; 0 for the one that stands for it.
    """
    found = status or status_of(error)
    return Problem(
        type=f"urn:sapwood:error:{error.code}",
        title=title_of(found),
        status=found,
        detail=error.what,
        code=error.code,
        where=error.where,
        hint=error.hint,
    )


def start_of(problem: Problem, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the beginning of an answer, as ASGI sends it; the body follows."""
    safe = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    shown = {"content-type": MEDIA_TYPE, **safe, **(headers or {})}
    return {
        "type": "http.response.start",
        "status": problem.status,
        "headers": [(name.encode(), value.encode()) for name, value in shown.items()],
    }
