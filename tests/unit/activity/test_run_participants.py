"""The agents of a run while they get ready: lost, replaced, cut off and attached again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from sapwood.activity.agent_requests import OPEN_RUN
from sapwood.activity.run_participants import RunParticipants
from sapwood.core.errors import AgentLostError, CancelledError, SapwoodError
from sapwood.session.options import PlacesChanged


class Session:
    """A session whose agents answer when the test says so."""

    failure: SapwoodError | None = None

    def __init__(self) -> None:
        self.asked: list[tuple[int, Future[Any]]] = []
        self.tell: Callable[[PlacesChanged], None]

    def ask(self, rank: int, handler: str, _value: Any) -> Future[Any]:
        assert handler == OPEN_RUN
        future: Future[Any] = Future()
        self.asked.append((rank, future))
        return future

    def subscribe(self, listener: Callable[[PlacesChanged], None]) -> Callable[[], None]:
        self.tell = listener
        return lambda: None


class Opening:
    """The opening message of an agent; it is not read here."""


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def run(session: Session, monkeypatch: pytest.MonkeyPatch) -> RunParticipants:
    monkeypatch.setattr("msgspec.to_builtins", lambda value, **_: value)
    made = RunParticipants(session, {1: Opening(), 2: Opening()}, replace=True)  # type: ignore[arg-type, dict-item]  # the test's own
    made.open()
    return made


def back(*, disconnected: bool) -> PlacesChanged:
    return PlacesChanged((2,), (2,), back=True, disconnected=disconnected)


def gone(*, disconnected: bool) -> PlacesChanged:
    return PlacesChanged((2,), (2,), back=False, reason="x", disconnected=disconnected)


def is_ready(run: RunParticipants) -> bool:
    return not run._unready


def test_an_agent_that_was_cut_off_goes_on_getting_ready(
    session: Session, run: RunParticipants
) -> None:
    """To ask it again would have it fetch anew what it has half."""
    session.tell(gone(disconnected=True))
    session.tell(back(disconnected=True))
    assert [rank for rank, _ in session.asked] == [1, 2]
    for _, future in session.asked:
        future.set_result(None)
    assert is_ready(run)
    run.wait_ready()


def test_an_agent_whose_answer_was_lost_is_asked_again(
    session: Session, run: RunParticipants
) -> None:
    session.tell(gone(disconnected=True))
    session.tell(back(disconnected=True))
    session.asked[1][1].set_exception(AgentLostError("on its way"))
    assert [rank for rank, _ in session.asked] == [1, 2, 2]
    for index in (0, 2):
        session.asked[index][1].set_result(None)
    assert is_ready(run)


def test_an_agent_whose_answer_is_lost_before_it_is_back_is_asked_again(
    session: Session, run: RunParticipants
) -> None:
    session.tell(gone(disconnected=True))
    session.asked[1][1].set_exception(AgentLostError("on its way"))
    session.tell(back(disconnected=True))
    assert [rank for rank, _ in session.asked] == [1, 2, 2]
    assert not is_ready(run)


def test_what_becomes_of_an_older_request_says_nothing(
    session: Session, run: RunParticipants
) -> None:
    session.tell(gone(disconnected=False))
    session.tell(back(disconnected=False))
    session.asked[1][1].set_exception(CancelledError("the run has ended"))
    assert not is_ready(run)
    for index in (0, 2):
        session.asked[index][1].set_result(None)
    run.wait_ready()
    assert run.replaced == 1
