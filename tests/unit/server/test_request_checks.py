"""Requests that no application sees, whichever it is."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.server.problems import HttpError
from sapwood.server.request_checks import check_request

NAMES = {"127.0.0.1", "localhost", "::1"}


def request(*headers: tuple[str, str], path: str = "/") -> dict[str, Any]:
    return {"path": path, "headers": [(name.encode(), value.encode()) for name, value in headers]}


def refused(scope: dict[str, Any]) -> int:
    with pytest.raises(HttpError) as error:
        check_request(scope, NAMES.__contains__)
    return error.value.status


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80", "LOCALHOST:8787", "[::1]:8787"])
def test_own_names(host: str) -> None:
    check_request(request(("host", host)), NAMES.__contains__)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "127.0.0.1.evil.example",
        "evil@127.0.0.1",
        "evil:8787@127.0.0.1",
        "127.0.0.1/evil",
        "127.0.0.1:80, evil",
        "127.0.0.1:",
        "::1",
        "[::1",
        "a@b",
    ],
)
def test_other_names(host: str) -> None:
    assert refused(request(("host", host))) == 421


def test_a_request_needs_one_host() -> None:
    assert refused(request()) == 421
    assert refused(request(("host", "localhost"), ("host", "evil.example"))) == 421


def test_any_name_still_has_the_form_of_one() -> None:
    check_request(request(("host", "example.org:80")), lambda name: name == "example.org")
    with pytest.raises(HttpError):
        check_request(request(("host", "evil@example.org")), lambda name: "?" not in name)


def test_a_request_has_one_length() -> None:
    both = ("content-length", "5"), ("transfer-encoding", "chunked")
    assert refused(request(("host", "localhost"), *both)) == 400


@pytest.mark.parametrize("path", ["http://localhost/", "*", ""])
def test_targets_are_paths(path: str) -> None:
    assert refused(request(("host", "localhost"), path=path)) == 400
