from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.comm import events as ev
from sapwood.comm import values
from sapwood.comm.messages.messaging import RoutedMessage
from sapwood.comm.messaging import active
from sapwood.comm.messaging import events as mev
from sapwood.core.errors import (
    CommunicationError,
    DataValueError,
    ExecutionError,
    SapwoodError,
)
from sapwood.core.topology import ROOT, Tree, flat, kary, plan
from sapwood_simulation.network import Network

seeds = st.integers(0, 2**16)
shapes = st.builds(plan, st.integers(1, 17), st.sampled_from([0, 2, 3, 4]))


def started(**options: Any) -> Network:
    network = Network(kary(4, 2), **options)
    network.start()
    return network


@pytest.mark.row("C2-AM")
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.slow
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
    network.post(1, mev.CancelRequest(7))
    network.post(1, mev.CancelRequest(7))  # a second time is harmless
    (answered,) = network.observed(ev.Answered, 1)
    assert answered.error is not None
    assert SapwoodError.from_record(answered.error).what == "the request was cancelled"
    network.resume(4)
    network.run()
    assert network.observed(mev.RequestCancelled, 4) == [mev.RequestCancelled(1, 7)]
    assert len(network.observed(ev.Answered, 1)) == 1  # the late answer is dropped


def test_a_request_that_has_not_left_is_taken_back_without_a_word() -> None:
    network = started()
    network.pause(4)
    count = active.ActiveMessages.window + 1
    for number in range(count):
        network.ask(1, 4, number, None)
    network.post(1, mev.CancelRequest(count - 1))
    network.resume(4)
    network.run()
    assert len(network.observed(ev.Asked, 4)) == count - 1
    assert network.observed(mev.RequestCancelled, 4) == []


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


# --- over whole trees -----------------------------------------------------------------------------


@given(shapes, seeds, st.data())
@pytest.mark.slow
def test_a_request_goes_from_anywhere_to_anywhere(
    tree: Tree, seed: int, data: st.DataObject
) -> None:
    source = data.draw(st.integers(0, tree.size - 1))
    destination = data.draw(st.integers(0, tree.size - 1).filter(lambda rank: rank != source))
    network = Network(tree, seed, lambda rank, value: [rank, value])
    network.start()
    network.ask(source, destination, 7, {"x": np.arange(3)})
    network.run()
    (answered,) = network.observed(ev.Answered)
    assert answered.error is None
    assert answered.number == 7
    view = answered.payload.view if answered.payload is not None else b""
    rank, value = values.decode(answered.body, view)
    assert rank == destination
    assert value["x"].tolist() == [0, 1, 2]
    (asked,) = network.observed(ev.Asked)
    assert asked.source == source


def loss_of(tree: Tree, lost: int) -> mev.AnnounceMembership:
    return mev.AnnounceMembership(tuple((rank, 1) for rank in tree.subtree(lost)), (), "killed")


def error_of(answered: ev.Answered) -> SapwoodError:
    assert answered.error is not None
    return SapwoodError.from_record(answered.error)


@given(shapes, seeds, st.data())
@pytest.mark.slow
def test_a_request_to_a_place_that_is_gone_is_answered_with_its_loss(
    tree: Tree, seed: int, data: st.DataObject
) -> None:
    lost = data.draw(st.integers(1, tree.size - 1))
    network = Network(tree, seed)
    network.start()
    network.kill(lost)
    network.run()
    network.post(ROOT, loss_of(tree, lost))
    network.run()
    source = data.draw(st.sampled_from(sorted(network.nodes)))
    network.ask(source, lost, 7, None)
    network.run()
    (answered,) = network.observed(ev.Answered)
    assert error_of(answered).code == "SW402"


@given(shapes, seeds, st.data())
@pytest.mark.slow
def test_a_request_of_the_root_under_way_is_answered_when_its_place_is_lost(
    tree: Tree, seed: int, data: st.DataObject
) -> None:
    lost = data.draw(st.integers(1, tree.size - 1))
    network = Network(tree, seed)
    network.start()
    network.ask(ROOT, lost, 7, None)
    network.run(data.draw(st.integers(0, 4)))
    network.kill(lost)
    network.run()
    network.post(ROOT, loss_of(tree, lost))
    network.run()
    (answered,) = network.observed(ev.Answered)
    if answered.error is not None:
        assert error_of(answered).code == "SW402"
    assert len(network.nodes[ROOT].requests) == 0


def test_a_request_to_a_place_that_does_not_exist_is_answered() -> None:
    network = Network(kary(4, 2))
    network.start()
    for source in (ROOT, 1):
        network.ask(source, 99, 7, None)
    network.run()
    assert [error_of(answered).code for answered in network.observed(ev.Answered)] == ["SW402"] * 2


def test_an_error_is_an_answer() -> None:
    def refuse(_rank: int, _value: Any) -> Any:
        raise ExecutionError("no")

    network = Network(flat(1), 0, refuse)
    network.start()
    network.ask(ROOT, 1, 7, None)
    network.run()
    (answered,) = network.observed(ev.Answered)
    assert error_of(answered).what == "no"


def test_an_answer_that_nobody_waits_for_is_dropped() -> None:
    network = Network(flat(1))
    network.start()
    network.post(1, ev.Answer(ROOT, 99, b"", None))
    network.run()
    assert network.observed(ev.Answered) == []
    assert network.problems == []


def test_who_waits_for_an_answer_of_another_agent_hears_of_its_loss() -> None:
    tree = kary(4, 2)
    network = Network(tree)
    network.start()
    network.pause(4)
    network.ask(1, 4, 7, None)
    network.run()
    network.kill(4)
    network.run()
    assert network.observed(ev.Answered) == []
    network.post(ROOT, loss_of(tree, 4))
    network.run()
    (answered,) = network.observed(ev.Answered, 1)
    assert error_of(answered).what == "agent 4 is gone: killed"


@pytest.mark.parametrize("destination", [ROOT, 2])
@pytest.mark.parametrize("source", [ROOT, 3])
def test_a_message_in_the_name_of_somebody_else_is_dropped(source: int, destination: int) -> None:
    network = Network(flat(3))
    network.start()
    network.send(1, ROOT, RoutedMessage(source, destination, 0, 1 << 32, 0, 1, 0, 1, 1, "test"))
    network.run()
    assert network.observed(ev.Asked) == []


@pytest.mark.parametrize("sender", [1, ROOT])
def test_an_answer_that_no_link_carries_is_an_error_of_its_request(
    monkeypatch: pytest.MonkeyPatch, sender: int
) -> None:
    network = Network(kary(4, 2), 0, lambda _rank, value: "x" * value)
    network.start()
    monkeypatch.setattr(active, "MAX_BODY", 1000)
    network.ask(sender, 4, 7, 2000)
    network.run()
    (answered,) = network.observed(ev.Answered, sender)
    assert isinstance(error_of(answered), DataValueError)
    assert not answered.body
    network.ask(sender, 4, 8, 5)  # the channel is not blocked by it
    network.run()
    assert network.observed(ev.Answered, sender)[-1].error is None


def test_a_request_that_no_link_carries_is_answered_with_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = started()
    monkeypatch.setattr(active, "MAX_BODY", 1000)
    network.post(1, ev.Ask(4, "long", 7, bytes(1001), None))
    network.run()
    (answered,) = network.observed(ev.Answered, 1)
    assert isinstance(error_of(answered), DataValueError)
    assert not network.observed(ev.Asked, 4)


def test_what_waits_behind_a_large_request_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active, "MAX_QUEUED", 3)
    delivery: Any = SimpleNamespace(use=lambda *_use: None)
    transfers: Any = SimpleNamespace(fetch=lambda *_fetch: [], serve=lambda _owner: None)
    requests = active.ActiveMessages(delivery, transfers)

    def asks(number: int, large: int = 0) -> Any:
        message = RoutedMessage(2, 1, 0, 1, 0, number, 0, 0, 0, size=large, large=large)
        return requests.arrived(0.0, message, None)

    assert asks(1, 2**20) == []  # its payload is being fetched
    assert [asks(2), asks(3)] == [[], []]
    assert asks(4) is None  # it is sent again later
