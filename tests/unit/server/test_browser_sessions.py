"""Sessions of browsers: what an id is good for, and where."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from sapwood.server import browser_sessions
from sapwood.server.browser_sessions import (
    MAX_SESSIONS,
    BrowserSession,
    BrowserSessions,
    Client,
    SessionCookie,
    client_of,
)

HERE = Client(8787, "loopback", 1000)


def session(name: str = "secret", expires: float = 100.0) -> BrowserSession:
    return BrowserSession(name, HERE, expires, reads_only=True)


def test_an_id_is_good_for_its_client_only() -> None:
    sessions = BrowserSessions(lambda: 0.0)
    made = sessions.open(session())
    assert sessions.find(made, HERE) == session()
    for thief in (Client(8788, "loopback", 1000), Client(8787, "loopback", 1001)):
        assert sessions.find(made, thief) is None
    assert sessions.find(made, Client(8787, "10.0.0.9", None)) is None
    assert sessions.find(made[:-1], HERE) is None
    assert sessions.find(made, HERE) == session()


def test_a_session_ends_with_its_time_and_at_logout() -> None:
    now = [0.0]
    sessions = BrowserSessions(lambda: now[0])
    short, long = sessions.open(session(expires=5.0)), sessions.open(session())
    now[0] = 5.0
    assert sessions.find(short, HERE) is None
    assert sessions.find(long, HERE) is not None
    sessions.close(long)
    sessions.close(long)
    assert sessions.find(long, HERE) is None


def test_the_session_that_was_used_longest_ago_makes_room() -> None:
    sessions = BrowserSessions(lambda: 0.0)
    ids = [sessions.open(session(str(number))) for number in range(MAX_SESSIONS)]
    assert sessions.find(ids[0], HERE) is not None
    sessions.open(session())
    assert sessions.find(ids[0], HERE) is not None
    assert sessions.find(ids[1], HERE) is None


@pytest.mark.parametrize(
    ("scheme", "origin", "name"),
    [
        ("https", "", "__Host-sapwood-ab12-7700"),
        ("http", "", "sapwood-ab12-7700"),
        ("http", "https://gate.example", "__Host-sapwood-ab12-7700"),  # a proxy adds TLS
        ("https", "http://localhost:9000", "sapwood-ab12-7700"),  # or removes it
    ],
)
def test_the_cookie(scheme: str, origin: str, name: str) -> None:
    cookie, response = SessionCookie("ab12"), Response()
    cookie.set(_request(scheme, origin=origin), response, "an-id", 60.5)
    value, *attributes = response.headers["set-cookie"].split("; ")
    assert value == f"{name}=an-id"
    secure = ["Secure"] if name.startswith("__Host-") else []
    assert sorted(attributes) == sorted(
        ["HttpOnly", "Max-Age=60", "Path=/", "SameSite=strict", *secure]
    )
    assert cookie.read(_request(scheme, cookie=value)) == "an-id"
    assert cookie.read(_request(scheme, cookie=value, port=7701)) == ""


@pytest.mark.parametrize(
    ("client", "server", "found"),
    [
        ("127.0.0.1", "127.0.0.1", Client(7700, "loopback", 1000)),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", Client(7700, "loopback", 1000)),
        ("10.0.0.5", "10.0.0.5", Client(7700, "10.0.0.5", 1000)),  # this machine by its address
        ("10.0.0.9", "10.0.0.5", Client(7700, "10.0.0.9", None)),
        ("::ffff:10.0.0.9", "::ffff:10.0.0.5", Client(7700, "10.0.0.9", None)),
    ],
)
def test_clients_on_this_machine_are_told_apart_by_their_users(
    client: str, server: str, found: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser_sessions, "user_of", lambda *_: 1000)
    request = _request("https")
    request.scope.update(client=(client, 40000), server=(server, 7700))
    assert client_of(request) == found


def _request(scheme: str, port: int = 7700, **headers: str) -> Request:
    scope: dict[str, Any] = {
        "type": "http",
        "scheme": scheme,
        "method": "GET",
        "path": "/",
        "query_string": b"",
        "server": ("127.0.0.1", port),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    return Request(scope)
