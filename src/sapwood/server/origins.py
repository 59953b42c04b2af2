"""The origin of requests: pages of this server or of other sites.

A browser sends its cookie with each request to this server, whichever page makes it. So a request
that changes something must say that it comes from a page of this server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sapwood.server.problems import HttpError

SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""


def check_origin(method: str, scheme: str, headers: Mapping[str, str], *, by_cookie: bool) -> None:
    """Refuse what a page of another site has made a browser send.

    Args:
        method: Of the request.
        scheme: ``http`` or ``https``, as the request came.
        headers: Its headers.
        by_cookie: Whether a browser added the credential unasked, or none is needed.

    Raises:
        HttpError: It comes from another site, or changes something and does not say where it
            comes from.

    Example:
        >>> here = {"host": "127.0.0.1:8787", "origin": "http://127.0.0.1:8787"}
        >>> check_origin("POST", "http", here, by_cookie=True)
        >>> check_origin("POST", "http", {**here, "origin": "http://evil.example"}, by_cookie=True)
        Traceback (most recent call last):
        sapwood.server.problems.HttpError: a page of another site has sent this request
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if site == "same-origin":  # the browser says so, and no page can; a proxy may change the rest
        return
    own = f"{scheme}://{headers.get('host', '')}".lower()
    foreign = origin is not None and origin.lower() != own
    if foreign or (site in {"cross-site", "same-site"} and not _is_visit(method, headers)):
        raise HttpError(
            403,
            "a page of another site has sent this request",
            where=(origin or site or "")[:100],
            hint="scripts send no Origin header, and pages must be of this server",
        )
    if by_cookie and method not in SAFE and origin is None:
        raise HttpError(
            403,
            "a request that changes something must say where it comes from",
            hint="browsers do; scripts show their credential in the Authorization header",
        )


def _is_visit(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a user follows a link to here: a page may be shown, and its cookie is not sent."""
    return method in SAFE and headers.get("sec-fetch-mode") == "navigate"
