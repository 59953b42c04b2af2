"""Owners of the processes of a session on a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sapwood.contexts.plan import ZygotePlan
from sapwood.core.errors import SecurityError
from sapwood.environment.lifecycle import State
from sapwood.nodes import messages
from sapwood.nodes.session_processes import SessionZygotes
from sapwood.security.denials import DenialUpdate


class OneRequest:
    """A request of the head."""

    def __init__(self, value: Any) -> None:
        self._value = value if isinstance(value, str) else messages.to_value(value)
        self.answers: list[Any] = []

    def value(self) -> Any:
        return self._value

    def reply(self, value: Any) -> None:
        self.answers.append(value)


def begun_by(*credential: str) -> tuple[SessionZygotes, Any]:
    """A node with a session that a former head has started for a user."""
    zygotes = SessionZygotes(cast("Any", None), lambda _report: None)
    session = SimpleNamespace(
        credential=credential,
        is_open=True,
        life=1,
        resume=lambda: messages.ResumedProcesses([]),
    )
    zygotes._former["s"] = cast("Any", session)
    return zygotes, session


class Closing:
    """A session whose processes take a while to end."""

    is_open = True
    gone = False
    credential = ()

    def close(self, _done: Any) -> None:
        self.is_open = False


def ask(zygotes: SessionZygotes, handler: str, value: Any) -> list[Any]:
    request = OneRequest(value)
    zygotes.requests[handler](cast("Any", request))
    return request.answers


@pytest.mark.parametrize("other", [(), ("b",), ("a", "b")])
def test_nobody_takes_over_what_was_begun_for_others(other: tuple[str, ...]) -> None:
    zygotes, session = begun_by("a")
    opening = messages.OpenProcesses(
        session="s",
        host=1,
        plan=ZygotePlan(()),
        configuration=b"",
        environment={},
        life=2,
        credential=other,
    )
    resuming = messages.ResumeProcesses("s", 1, other)
    for handler, value in ((messages.OPEN, opening), (messages.RESUME, resuming)):
        with pytest.raises(SecurityError, match="another credential"):
            ask(zygotes, handler, value)
    assert zygotes._former == {"s": session}
    answers = ask(zygotes, messages.RESUME, messages.ResumeProcesses("s", 1, ("a",)))
    assert messages.from_value(answers[0], messages.ResumedProcesses).living == []
    assert zygotes._sessions == {"s": session}


def test_what_was_revoked_meanwhile_is_not_resumed() -> None:
    zygotes, _ = begun_by("a")
    ask(zygotes, messages.DENY, DenialUpdate(since=0, epoch=1, ids=["a"], generation=1))
    with pytest.raises(SecurityError, match="revoked"):
        ask(zygotes, messages.RESUME, messages.ResumeProcesses("s", 1, ("a",)))


def test_a_session_that_is_over_is_no_failure_of_the_component() -> None:
    zygotes = SessionZygotes(cast("Any", None), lambda _report: None)
    session = Closing()
    zygotes._opened.append(cast("Any", session))
    zygotes._sessions["s"] = cast("Any", session)
    ask(zygotes, messages.CLOSE, "s")
    assert not session.is_open
    assert zygotes.check() is State.READY


def test_it_starts_again_when_the_processes_of_its_earlier_life_are_gone() -> None:
    zygotes = SessionZygotes(cast("Any", None), lambda _report: None)
    session = Closing()
    zygotes._opened.append(cast("Any", session))
    zygotes._sessions["s"] = cast("Any", session)
    zygotes.stop()
    zygotes.start(cast("Any", None))
    assert zygotes.check() is State.STARTING
    session.gone = True
    assert zygotes.check() is State.READY
