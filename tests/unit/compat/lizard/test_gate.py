"""Who may use lizard-slayer's API."""

from __future__ import annotations

import base64
import os
import socket
from pathlib import Path

import pytest

from sapwood.compat.lizard import gate
from sapwood.compat.lizard.gate import ApiGate, read_token, user_of
from sapwood.core.errors import ConfigurationError, SecurityError

TOKEN = "0123456789abcdef" * 4
HERE = {"host": "localhost:5000"}


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> tuple[gate.Address, gate.Address]:
    """Two addresses of which the kernel says that this user's process has the first."""
    monkeypatch.setattr(gate, "user_of", lambda client, _server: client and os.getuid())
    return ("127.0.0.1", 40000), ("127.0.0.1", 5000)


def basic(password: str) -> str:
    return f"Basic {base64.b64encode(f'any:{password}'.encode()).decode()}"


@pytest.mark.row("B-API-1")
@pytest.mark.parametrize("shown", [f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN)])
def test_whoever_shows_the_token_may(shown: str) -> None:
    ApiGate(TOKEN).check({"authorization": shown, "host": "n1"}, None, None)


@pytest.mark.row("B-API-1")
@pytest.mark.parametrize(
    "shown", ["", "Bearer", f"Bearer {TOKEN}x", f"Token {TOKEN}", basic(""), "Basic !", "Basic é"]
)
def test_without_it_nobody_may(shown: str) -> None:
    with pytest.raises(SecurityError, match="wants its token"):
        ApiGate(TOKEN).check({"authorization": shown, **HERE}, ("127.0.0.1", 1), ("127.0.0.1", 2))


@pytest.mark.parametrize("host", ["localhost:5000", "127.0.0.1", "[::1]:5000", "LOCALHOST"])
def test_this_user_may_on_loopback(
    connection: tuple[gate.Address, gate.Address], host: str
) -> None:
    ApiGate().check({"host": host}, *connection)


@pytest.mark.parametrize("host", ["", "example.org", "localhost.example.org", "10.0.0.1", "["])
def test_another_name_of_this_machine_may_not(
    connection: tuple[gate.Address, gate.Address], host: str
) -> None:
    with pytest.raises(SecurityError):
        ApiGate().check({"host": host}, *connection)


@pytest.mark.parametrize(
    "header",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://example.org"},
        {"origin": "null"},
    ],
)
def test_pages_of_other_sites_may_not(
    connection: tuple[gate.Address, gate.Address], header: dict[str, str]
) -> None:
    with pytest.raises(SecurityError, match="another site"):
        ApiGate().check({**HERE, **header}, *connection)
    with pytest.raises(SecurityError, match="another site"):
        ApiGate(TOKEN).check({"authorization": f"Bearer {TOKEN}", **HERE, **header}, *connection)


def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "user_of", lambda _client, _server: os.getuid() + 1)
    with pytest.raises(SecurityError, match="only the user"):
        ApiGate().check(HERE, ("127.0.0.1", 1), ("127.0.0.1", 2))


def test_the_kernel_says_whose_a_connection_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with client, server:
            assert user_of(server.getpeername(), server.getsockname()) == os.getuid()
            assert user_of(("127.0.0.1", 1), server.getsockname()) is None
    assert user_of(None, None) is None


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "at least 32 characters"),
        (TOKEN, 0o644, "other users may read"),
        (f"{TOKEN} {TOKEN}", 0o600, "no blanks"),
        ("é" * 40, 0o600, "no token"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_file_that_is_no_token(tmp_path: Path, text: str | None, mode: int, why: str) -> None:
    path = tmp_path / "token"
    if text is not None:
        path.write_text(text)
        path.chmod(mode)
    with pytest.raises(ConfigurationError, match=why) as caught:
        read_token(path)
    assert str(path) in caught.value.where


def test_a_token_is_read(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    assert read_token(path) == TOKEN


@pytest.mark.parametrize("heard", [False, True], ids=["before it is heard", "afterwards"])
def test_nobody_is_at_the_other_end_once_that_is_closed(heard: bool) -> None:
    """The kernel says that such an end is root's, whoever had it, and root may."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        client = socket.create_connection(listening.getsockname())
        server, _ = listening.accept()
        with server:
            client.sendall(b"GET /shutdown HTTP/1.1\r\n\r\n")
            client.close()
            while heard and server.recv(1024):
                pass
            assert user_of(server.getpeername(), server.getsockname()) is None
