"""Checks of every request before an application sees it.

A name can be pointed at this machine from elsewhere (DNS rebinding), so no request may name a host
that this server is not. A proxy in front of this server may see another end of a request than
this server does where two headers give its length (request smuggling).
"""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from typing import Any, Final

from sapwood.server.problems import HttpError

OwnHost = Callable[[str], bool]
"""Returns whether a server has a name: in small letters, without port, IPv6 without brackets."""

_CLOSE: Final = {"connection": "close"}
_HOST: Final = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?", re.ASCII)


def check_request(scope: MutableMapping[str, Any], is_own_host: OwnHost) -> None:
    """Refuse a request that is ambiguous, or for another host.

    Args:
        scope: The request, as in ASGI 3.
        is_own_host: Whether the server has a name.

    Raises:
        HttpError: The request is refused.
    """
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    names = {name for name, _ in headers}
    if {b"content-length", b"transfer-encoding"} <= names:
        raise HttpError(
            400,
            "the request has both Content-Length and Transfer-Encoding",
            hint="send one of them",
            headers=_CLOSE,
        )
    if not scope["path"].startswith("/"):
        raise HttpError(
            400, "the target of the request does not begin with '/'", where=scope["path"][:100]
        )
    named = ", ".join(value.decode("latin-1") for name, value in headers if name == b"host")
    if not is_own_host(host_of(named) or "?"):
        raise HttpError(
            421,
            "this server is not the host that the request names",
            where=named[:100],
            hint="use an address that the server prints when it starts",
        )


def host_of(header: str) -> str:
    """Return the host that a ``Host`` header names; empty if it is malformed.

    Example:
        >>> host_of("LOCALHOST:8787"), host_of("[::1]:80"), host_of("evil@127.0.0.1")
        ('localhost', '::1', '')
    """
    found = _HOST.fullmatch(header.lower())
    return "" if found is None else found[1] or found[2]
