import pytest

from sapwood.comm import events as ev
from sapwood.comm import messages as msg
from sapwood.core.topology import ROOT, flat, kary
from sapwood_simulation import network as network_module
from sapwood_simulation.network import Network


def test_everybody_is_there_after_the_start() -> None:
    network = Network(kary(5, 2))
    network.start()
    joined = {effect.rank for effect in network.observed(ev.PlaceJoined)}
    assert joined == set(range(1, network.tree.size))


def test_seeds_change_the_order_and_only_that() -> None:
    orders = set()
    for seed in range(10):
        network = Network(flat(4), seed)
        network.start()
        orders.add(tuple(effect.rank for effect in network.observed(ev.PlaceJoined)))
    assert len(orders) > 1
    assert {tuple(sorted(order)) for order in orders} == {(1, 2, 3, 4)}


def test_a_paused_place_reads_and_answers_nothing_until_it_goes_on() -> None:
    network = Network(flat(1))
    network.start()
    network.pause(1)
    network.ask(ROOT, 1, 1, "x")
    network.run()
    assert network.observed(ev.Asked) == []
    network.resume(1)
    network.run()
    assert len(network.observed(ev.Answered)) == 1


def test_what_a_killed_place_had_sent_arrives() -> None:
    network = Network(flat(1))
    network.start()
    network.post(1, ev.Ask(ROOT, "test", 1, b"\xc0", None))
    network.kill(1)
    network.run()
    kinds = [type(seen.effect) for seen in network.observations if seen.rank == ROOT]
    assert kinds.index(ev.Asked) < kinds.index(ev.PlacesLost)


def test_time_only_passes_when_told_to() -> None:
    network = Network(flat(1))
    network.start()
    assert network.clock.now() == 0.0
    network.advance(2.5)
    assert network.clock.now() == 2.5


def test_an_endless_exchange_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_module, "MAX_STEPS", 5)
    network = Network(flat(9))
    with pytest.raises(RuntimeError, match="rest"):
        network.start()


def test_there_must_be_a_link_to_send_on() -> None:
    network = Network(flat(2))
    network.start()
    with pytest.raises(KeyError, match="no link"):
        network.send(1, 2, msg.Heartbeat())
