"""Which requests come from pages of this server, and which from elsewhere."""

from __future__ import annotations

import pytest

from sapwood.server.origins import check_origin
from sapwood.server.problems import HttpError

HERE = {"host": "127.0.0.1:8787"}
OWN = {**HERE, "origin": "http://127.0.0.1:8787"}


@pytest.mark.parametrize(
    ("method", "headers", "by_cookie"),
    [
        ("GET", HERE, True),
        ("POST", HERE, False),  # a script with its credential in the header
        ("POST", OWN, True),
        ("POST", {**HERE, "sec-fetch-site": "same-origin"}, True),
        ("GET", {**HERE, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),
        ("GET", {**HERE, "sec-fetch-site": "none"}, True),
        # A proxy with TLS in front of this server has other names than this server.
        ("POST", {**HERE, "origin": "https://gate", "sec-fetch-site": "same-origin"}, True),
    ],
)
def test_own_pages_and_scripts_may_ask(
    method: str, headers: dict[str, str], *, by_cookie: bool
) -> None:
    check_origin(method, "http", headers, by_cookie=by_cookie)


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        ("POST", HERE),
        ("DELETE", {**HERE, "origin": "null"}),
        ("POST", {**HERE, "origin": "https://127.0.0.1:8787"}),  # another scheme
        ("POST", {**HERE, "origin": "http://127.0.0.1:8788"}),
        ("GET", {**HERE, "origin": "http://evil.example"}),
        ("GET", {**HERE, "sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}),
        ("GET", {**HERE, "sec-fetch-site": "same-site", "sec-fetch-mode": "cors"}),
        ("POST", {**OWN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}),
    ],
)
def test_pages_of_others_may_not(method: str, headers: dict[str, str]) -> None:
    with pytest.raises(HttpError) as error:
        check_origin(method, "http", headers, by_cookie=True)
    assert error.value.status == 403
