"""Authorization of clients of lizard-slayer's API."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from sapwood.core.errors import ConfigurationError, SecurityError
from sapwood.server.peers import Address
from sapwood_lizard import gate
from sapwood_lizard.gate import ApiGate, read_token

TOKEN = "0123456789abcdef" * 4
HERE = {"host": "localhost:5000"}


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> tuple[Address, Address]:
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


def test_this_user_may_on_loopback(connection: tuple[Address, Address]) -> None:
    ApiGate().check(HERE, *connection)


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
    connection: tuple[Address, Address], header: dict[str, str]
) -> None:
    with pytest.raises(SecurityError, match="another site"):
        ApiGate().check({**HERE, **header}, *connection)
    with pytest.raises(SecurityError, match="another site"):
        ApiGate(TOKEN).check({"authorization": f"Bearer {TOKEN}", **HERE, **header}, *connection)


def test_another_user_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "user_of", lambda _client, _server: os.getuid() + 1)
    with pytest.raises(SecurityError, match="only the user"):
        ApiGate().check(HERE, ("127.0.0.1", 1), ("127.0.0.1", 2))


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "at least 32 characters"),
        (TOKEN, 0o644, "other users may read"),
        (f"{TOKEN} {TOKEN}", 0o600, "no blanks"),
        ("é" * 40, 0o600, "not a token"),
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
