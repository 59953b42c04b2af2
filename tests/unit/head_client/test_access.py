"""A front end that looks for the next head does so until it has found it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.core.errors import CommunicationError
from sapwood.head_client.access import HeadAccess


@pytest.mark.parametrize(
    "problem",
    [
        msgspec.ValidationError("Object missing required field `started`"),
        CommunicationError("nothing answers"),
        KeyError("a mistake"),
    ],
)
def test_a_head_of_another_version_does_not_end_the_search(
    problem: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.head_client.access.LOOK_PAUSE", 0.001)
    answers: list[Any] = [problem, problem, ("client", SimpleNamespace(cluster="c"))]
    found: list[tuple[Any, Any]] = []

    def connected(_number: int) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def returned(client: Any, facts: Any) -> bool:
        found.append((client, facts))
        return True

    access: Any = SimpleNamespace(
        _closed=threading.Event(),
        _heads=[],
        _lock=threading.Lock(),
        _records={},
        _name="main",
        _connection=0,
        _connected=connected,
        _handed=SimpleNamespace(ask_again=lambda _client: None),
        _returned=returned,
        facts=SimpleNamespace(cluster="c"),
    )
    HeadAccess._look_for_head(access)
    assert found == [("client", SimpleNamespace(cluster="c"))]
