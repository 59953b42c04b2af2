"""A-ENV-5: machines join a head, are cut off, come again and are removed, while orders go out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sapwood.core.errors import ConfigurationError
from sapwood.lifecycle.core import ProcessLifecycle
from sapwood.nodes.join_desk import JoinDesk
from sapwood.nodes.starting import AwaitedDaemon
from sapwood_simulation.faults import Faults
from sapwood_simulation.node_simulation import NodeReport, NodeSimulation
from sapwood_simulation.simulation import InvariantError, SimulationOptions

FAULTS = Faults(
    crash=0.0005,
    pause=0.0003,
    sever=0.002,
    clog=0.0005,
    partition=0.001,
    split=0.1,
    pause_seconds=8.0,
)


def simulated(seed: int, faults: Faults = FAULTS) -> NodeReport:
    options = SimulationOptions(seed=seed, agents=1 + seed % 10, waves=2, faults=faults)
    return NodeSimulation(options).run()


@pytest.mark.row("A-ENV-5")
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(one, marks=pytest.mark.nightly) for one in range(1, 20))]
)
@pytest.mark.slow
def test_orders_are_done_once_and_machines_come_again(
    block: int, apart: Callable[[Callable[[], Any]], Any]
) -> None:
    seeds = range(20 * block, 20 * block + 20)
    reports = apart(lambda: [simulated(seed) for seed in seeds])
    assert sum(report.crashes for report in reports) > 2
    assert sum(report.clogged for report in reports) > 10
    assert sum(report.again for report in reports) > 5
    assert sum(report.removed for report in reports) > 2


@pytest.mark.slow
def test_without_faults_machines_join_once_and_all_orders_are_done() -> None:
    for seed in range(5):
        report = simulated(seed, Faults())
        assert report.again == 0
        assert report.joined == 1 + seed % 10 + report.removed


def test_it_has_no_zygotes() -> None:
    with pytest.raises(ConfigurationError, match="no zygotes"):
        simulated(0, Faults(zygote=0.1))


def until_one_fails(first: int = 0) -> None:
    for seed in range(first, first + 60):
        simulated(seed)


@pytest.mark.slow
def test_a_head_that_does_not_wait_for_a_lost_node_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(AwaitedDaemon, "_gone", lambda *_: None)
    with pytest.raises(InvariantError, match=r"no progress|nothing is under way"):
        until_one_fails()


@pytest.mark.slow
def test_a_node_that_is_shut_out_because_an_answer_got_lost_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ProcessLifecycle, "_restart", lambda *_: None)
    with pytest.raises(InvariantError, match="no progress"):
        until_one_fails(first=90)


def test_a_token_that_is_lost_with_an_answer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JoinDesk, "_former_claim", lambda *_: None)
    with pytest.raises(InvariantError, match="is refused: the join token was used before"):
        until_one_fails()
