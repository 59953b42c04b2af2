"""A client that looks for the next head does so until it has found it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from sapwood.core.errors import CommunicationError
from sapwood.head_client.reconnecting import ReconnectingClient


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
    monkeypatch.setattr("sapwood.head_client.reconnecting.LOOK_PAUSE", 0.001)
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

    connection: Any = ReconnectingClient("main", None, None, "", SimpleNamespace())
    monkeypatch.setattr(connection, "_connected", connected)
    monkeypatch.setattr(connection, "_returned", returned)
    connection._look_for_head()
    assert found == [("client", SimpleNamespace(cluster="c"))]
