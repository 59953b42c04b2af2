"""How a session is ended whose session server does not answer."""

from __future__ import annotations

import pytest

from sapwood.client.attaching import END_ATTEMPTS, END_PAUSE, end_session
from sapwood.core.errors import NodeLostError, ResourceError, SapwoodError


def test_a_session_that_is_starting_again_is_ended_when_it_has_started() -> None:
    answers: list[Exception | None] = [ResourceError("it is starting"), None]
    pauses: list[float] = []

    def ask(_cluster: str, _handle: str) -> None:
        answer = answers.pop(0)
        if answer is not None:
            raise answer

    end_session("night#5b9a", "default", ask=ask, pause=pauses.append)
    assert (answers, pauses) == ([], [END_PAUSE])


@pytest.mark.parametrize(
    ("cluster", "command"),
    [
        ("default", "sapwood session delete 'night#5b9a'"),
        ("nw", "sapwood session delete 'night#5b9a' --cluster nw"),
    ],
)
def test_a_session_that_is_not_ended_is_an_error_with_the_command_that_ends_it(
    cluster: str, command: str
) -> None:
    def ask(_cluster: str, _handle: str) -> None:
        raise NodeLostError("no head is up")

    with pytest.raises(SapwoodError, match="may still be running") as caught:
        end_session("night#5b9a", cluster, ask=ask)
    assert "no head is up" in caught.value.what
    assert caught.value.hint == f"end it with `{command}`"


def test_a_session_that_starts_for_ever_is_given_up() -> None:
    pauses: list[float] = []

    def ask(_cluster: str, _handle: str) -> None:
        raise ResourceError("it is starting")

    with pytest.raises(SapwoodError, match="it is starting"):
        end_session("night#5b9a", "default", ask=ask, pause=pauses.append)
    assert len(pauses) == END_ATTEMPTS - 1
