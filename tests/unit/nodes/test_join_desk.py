"""Machines that join get an answer, whatever goes wrong at the desk."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sapwood.core.errors import InternalError
from sapwood.nodes.join_desk import JoinDesk
from sapwood.nodes.joining import JoinRequest


def desk(monkeypatch: pytest.MonkeyPatch, redeem: Callable[..., Any]) -> JoinDesk:
    """Return a desk whose tokens are redeemed by a function, on this thread."""
    no: Any = SimpleNamespace()
    made = JoinDesk(
        no,
        no,
        no,
        cast("Any", SimpleNamespace(redeem=redeem)),
        no,
        lambda *_event, **_facts: None,
        lambda _seconds, function, *args: function(*args),
        lambda _name, function, *args: function(*args),
    )
    monkeypatch.setattr(made, "_checked_token", lambda _request: "token")
    return made


def request() -> JoinRequest:
    facts = SimpleNamespace(name="n7", user="ann")
    return cast("JoinRequest", SimpleNamespace(token="swd1.x", facts=facts))  # noqa: S106


def test_a_store_that_fails_unexpectedly_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def redeem(_token: str, _name: str) -> None:
        raise OSError("the disk is gone")

    made = desk(monkeypatch, redeem)
    error = made.admit(request(), "", "10.0.0.7").exception(0.0)
    assert isinstance(error, InternalError)
    assert "the disk is gone" in error.what
    (refused,) = made.refusals
    assert (refused.name, refused.address) == ("n7", "10.0.0.7")


def test_a_machine_that_cannot_be_admitted_after_all_gets_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = desk(monkeypatch, lambda _token, _name: SimpleNamespace(id="7"))
    error = made.admit(request(), "", "10.0.0.7").exception(0.0)
    assert isinstance(error, InternalError)
    assert "AttributeError" in error.what  # nothing of the desk's parts is there
