"""Sessions of browsers: a cookie holds a random id, and this process holds the credential.

Browsers send the cookies of a host to every port of it, so another server on the same machine can
read them. An id is therefore good only in this process, and only for the port, the client address
and, on this machine, the system user that signed in.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from sapwood.server.peers import is_loopback, unmapped, user_of

MAX_SESSIONS: Final = 256
"""Browsers that are signed in at a time; for one more, the one that asked longest ago is out."""


class Client(NamedTuple):
    """What a session of a browser is bound to.

    Attributes:
        port: The port of this server; 0 for a Unix socket.
        address: The address of the client, without port.
        user: The system user whose process is the client, if it is on this machine.
    """

    port: int
    address: str
    user: int | None


class BrowserSession(NamedTuple):
    """A browser that is signed in.

    Attributes:
        credential: What it may do.
        client: The only client that may use the session.
        expires: When it ends, in seconds since 1970.
        reads_only: Whether it may only read, whatever the credential allows.
    """

    credential: str
    client: Client
    expires: float
    reads_only: bool


class BrowserSessions:
    """The sessions of a server, by the hash of their ids.

    Args:
        clock: Returns the time in seconds since 1970.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, BrowserSession] = OrderedDict()

    def open(self, session: BrowserSession) -> str:
        """Add a session and return its id, which is a secret."""
        made = secrets.token_urlsafe(32)
        self._sessions[_key(made)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return made

    def find(self, session_id: str, client: Client) -> BrowserSession | None:
        """Return the session with an id, if this client may use it and it has not ended."""
        key = _key(session_id)
        found = self._sessions.get(key)
        if found is None or found.client != client:
            return None
        if found.expires <= self._clock():
            del self._sessions[key]
            return None
        self._sessions.move_to_end(key)
        return found

    def close(self, session_id: str) -> None:
        """End a session."""
        self._sessions.pop(_key(session_id), None)


class SessionCookie:
    """The cookie of a cluster. Its name has the port, so that two servers share no cookie.

    Args:
        cluster: The id of the cluster.
    """

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def read(self, request: Request) -> str:
        """Return the id that a browser sent; empty if it sent none."""
        names = (self.name(request, secure=secure) for secure in (True, False))
        return next((found for one in names if (found := request.cookies.get(one))), "")

    def set(self, request: Request, response: Response, session_id: str, seconds: float) -> None:
        """Have a browser keep an id for some seconds."""
        secure = _is_secure(request)
        response.set_cookie(
            self.name(request, secure=secure),
            session_id,
            max_age=max(int(seconds), 1),
            httponly=True,
            samesite="strict",
            secure=secure,
        )

    def delete(self, request: Request, response: Response) -> None:
        """Have a browser forget its id."""
        secure = _is_secure(request)
        response.delete_cookie(
            self.name(request, secure=secure), httponly=True, samesite="strict", secure=secure
        )

    def name(self, request: Request, *, secure: bool) -> str:
        """Return the name of the cookie; browsers guard the prefix of those that need TLS."""
        return f"{'__Host-' if secure else ''}sapwood-{self._cluster}-{_port_of(request)}"


def client_of(request: Request) -> Client:
    """Return the client of a request, with its user where the kernel knows that."""
    if request.client is None:
        return Client(_port_of(request), "", None)
    host, port = request.client
    server = request.scope["server"]
    address = "loopback" if is_loopback(host) else unmapped(host)
    if address == "loopback" or host == server[0]:  # the client is on this machine
        return Client(_port_of(request), address, user_of((host, port), server))
    return Client(_port_of(request), address, None)


def _port_of(request: Request) -> int:
    server = request.scope.get("server")
    return int(server[1] or 0) if server else 0


def _is_secure(request: Request) -> bool:
    """Return whether the browser's own connection has TLS, which a proxy may add or remove."""
    origin = request.headers.get("origin", "")
    if origin.startswith(("http:", "https:")):
        return origin.startswith("https:")
    return request.url.scheme == "https"


def _key(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode()).digest()
