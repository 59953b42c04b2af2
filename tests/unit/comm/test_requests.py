import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.comm import requests
from sapwood.comm.requests import Requests, unreachable
from sapwood.core.errors import AgentLostError, CommunicationError, SapwoodError


def test_an_answer_is_wanted_once() -> None:
    open_requests = Requests()
    open_requests.asked(1, 5)
    assert open_requests.answered(1)
    assert not open_requests.answered(1)
    assert not open_requests.answered(2)
    assert len(open_requests) == 0


def test_the_loss_of_a_place_answers_its_requests_and_no_others() -> None:
    open_requests = Requests()
    for number, rank in enumerate([5, 6, 5]):
        open_requests.asked(number, rank)
    effects = open_requests.lost({5}, "killed")
    answered = [effect for effect in effects if isinstance(effect, ev.Answered)]
    assert [effect.number for effect in answered] == [0, 2]
    error = answered[0].error
    assert error is not None
    assert isinstance(SapwoodError.from_record(error), AgentLostError)
    assert "agent 5 is gone: killed" in error.what
    assert len(open_requests) == 1


def test_open_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_REQUESTS", 1)
    open_requests = Requests()
    open_requests.asked(1, 5)
    with pytest.raises(CommunicationError, match="more than 1"):
        open_requests.asked(2, 5)


def test_what_cannot_go_on_is_answered_from_where_it_is() -> None:
    reply = unreachable(msg.Request(3, 9, "x", 7, b""), 0)
    assert (reply.source, reply.destination, reply.number) == (0, 3, 7)
    assert reply.error is not None
    assert "rank 0" in reply.error.what
