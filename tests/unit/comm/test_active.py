from __future__ import annotations

from typing import Any

import pytest

from sapwood.comm import active, values
from sapwood.comm import events as ev
from sapwood.comm import letter_events as le
from sapwood.core.errors import CommunicationError, SapwoodError
from sapwood.core.topology import ROOT, flat, kary
from sapwood.testing.network import Network


def started(**options: Any) -> Network:
    network = Network(kary(4, 2), **options)
    network.start()
    return network


@pytest.mark.row("C2-AM")
@pytest.mark.parametrize("seed", range(10))
def test_requests_of_one_place_are_handled_once_and_in_order(seed: int) -> None:
    network = started(seed=seed)
    for number in range(300):  # more than the window
        network.ask(1, 4, number, number)
    network.run()
    asked = [one.number for one in network.observed(ev.Asked, 4)]
    assert asked == list(range(300))
    answered = network.observed(ev.Answered, 1)
    assert sorted(one.number for one in answered) == list(range(300))
    assert all(values.decode(one.body, b"") == one.number for one in answered)
    assert len(network.nodes[1].requests) == 0


def test_a_request_that_is_taken_back_is_answered_at_once_and_its_handler_told() -> None:
    network = started()
    network.pause(4)
    network.ask(1, 4, 7, None)
    network.run()
    network.post(1, le.Withdraw(7))
    network.post(1, le.Withdraw(7))  # a second time is no harm
    (answered,) = network.observed(ev.Answered, 1)
    assert answered.error is not None
    assert SapwoodError.from_record(answered.error).what == "the request was taken back"
    network.resume(4)
    network.run()
    assert network.observed(le.Withdrawn, 4) == [le.Withdrawn(1, 7)]
    assert len(network.observed(ev.Answered, 1)) == 1  # the late answer is dropped


def test_a_request_that_has_not_left_is_taken_back_without_a_word() -> None:
    network = started()
    network.pause(4)
    count = active.Active.window + 1
    for number in range(count):
        network.ask(1, 4, number, None)
    network.post(1, le.Withdraw(count - 1))
    network.resume(4)
    network.run()
    assert len(network.observed(ev.Asked, 4)) == count - 1
    assert network.observed(le.Withdrawn, 4) == []


def test_an_answer_comes_from_who_was_asked_and_from_nobody_else() -> None:
    network = started()
    network.pause(4)
    network.ask(1, 4, 7, None)
    network.post(3, ev.Answer(1, 7, b"\x01", None))
    network.run()
    assert network.observed(ev.Answered, 1) == []


def test_open_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "MAX_REQUESTS", 1)
    network = Network(flat(1))
    network.start()
    network.ask(ROOT, 1, 1, None)
    with pytest.raises(CommunicationError, match="more than 1 requests"):
        network.ask(ROOT, 1, 2, None)
