"""C2-GROUP, D-2: groups whose members all live complete, whatever fails around them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sapwood.comm.groups.groups import GroupRecovery, OpenGroup
from sapwood_simulation.faults import Faults
from sapwood_simulation.group_simulation import GroupSimulation
from sapwood_simulation.simulation import InvariantError, SimulationOptions, SimulationReport

Apart = Callable[[Callable[[], Any]], Any]
BLOCKS, SEEDS_OF_A_BLOCK, NIGHTLY = 6, 15, 5
"""More seeds run with ``make torture``."""


def drawn(seed: int) -> SimulationOptions:
    chance = random.Random(seed)  # noqa: S311 - chance that can be repeated
    return SimulationOptions(
        seed=seed,
        spares=seed % 4 == 3,
        agents=chance.randint(5, 60),
        fanout=chance.choice([0, 2, 3, 6]),
        waves=8,
        faults=Faults.drawn(
            chance,
            crash=(0.0, 0.0003, 0.002),
            pause=(0.0, 0.0, 0.0003),
            sever=(0.0, 0.003),
            clog=(0.0, 0.0, 0.001),
            zygote=(0.0, 0.0, 0.0001),
            swizzle=(0.0, 0.0, 0.0002),
            partition=(0.0, 0.0, 0.0005),
            split=(0.0, 0.2),
        ),
    )


@pytest.mark.row("C2-GROUP")
@pytest.mark.row("D-2")
@pytest.mark.parametrize(
    "block",
    [
        *range(BLOCKS - NIGHTLY),
        *(pytest.param(one, marks=pytest.mark.nightly) for one in range(BLOCKS - NIGHTLY, BLOCKS)),
    ],
)
@pytest.mark.slow
def test_groups_complete_or_name_who_is_gone(block: int, apart: Apart) -> None:
    seeds = range(block * SEEDS_OF_A_BLOCK, (block + 1) * SEEDS_OF_A_BLOCK)

    def simulated() -> list[tuple[SimulationReport, int]]:
        done = []
        for seed in seeds:
            simulation = GroupSimulation(drawn(seed))
            done.append((simulation.run(), simulation.failed))
        return done

    runs = apart(simulated)
    assert sum(report.attached for report, _ in runs) > 20
    assert 0 < sum(failed for _, failed in runs) < sum(report.waves for report, _ in runs) / 2


LEFT = [
    (
        {"seed": 22, "agents": 13, "fanout": 2, "waves": 4},
        Faults(
            crash=0.002, zygote=0.0001, sever=0.01, swizzle=0.0002, partition=0.0002, reorder=0.01
        ),
    ),
    (
        {"seed": 122, "agents": 37, "fanout": 2, "waves": 12},
        Faults(crash=0.0005, sever=0.01, clog=0.0005, partition=0.0005, reorder=0.01),
    ),
    (
        {"seed": 162, "agents": 8, "fanout": 2, "waves": 12},
        Faults(crash=0.0003, pause=0.0002, sever=0.003, clog=0.001, partition=0.0002),
    ),
    (
        {"seed": 508, "agents": 39, "fanout": 6, "waves": 8},
        Faults(
            zygote=0.0001,
            sever=0.003,
            clog=0.0005,
            partition=0.0005,
            drop=0.01,
            duplicate=0.01,
            reorder=0.01,
        ),
    ),
    (
        {"seed": 1672, "agents": 39, "fanout": 3, "waves": 4},
        Faults(sever=0.01, partition=0.0005, drop=0.01, duplicate=0.01, reorder=0.01),
    ),
    (
        {"seed": 1617, "agents": 36, "fanout": 2, "waves": 8},
        Faults(
            crash=0.0003,
            pause=0.0005,
            sever=0.01,
            swizzle=0.0002,
            partition=0.0005,
            reorder=0.01,
        ),
    ),
    (
        {"seed": 3254, "agents": 30, "fanout": 6, "waves": 8},
        Faults(clog=0.001, duplicate=0.01),
    ),
]
"""A group numbered above its turn; a process that received notice of its predecessor's end;
a number for members that are lost; a move whose withdrawal was lost with the former link;
one by which a number was lost; a place that had no members below it for a while;
one that waited for a member which was elsewhere by then."""


@pytest.mark.parametrize(
    ("what", "faults"), LEFT, ids=["turn", "former", "lost", "moved", "number", "empty", "waiting"]
)
@pytest.mark.slow
def test_courses_of_events_that_left_an_entry_behind(what: dict[str, Any], faults: Faults) -> None:
    GroupSimulation(SimulationOptions(**what, faults=faults)).run()


def until_one_fails(agents: int, fanout: int) -> None:
    """Run seeds in which places stop for a while and come back: no member ends by that."""
    for seed in range(30):
        options = SimulationOptions(
            seed=seed, agents=agents, fanout=fanout, waves=8, faults=Faults(pause=0.002)
        )
        GroupSimulation(options).run()


@pytest.mark.slow
def test_a_place_that_says_nothing_of_a_disturbance_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """About one seed in seven shows it: a member waits in vain for the others, or for a round."""
    monkeypatch.setattr(GroupRecovery, "parent_changed", lambda _regrouping: [])
    with pytest.raises(InvariantError, match=r"all members of group \d+ live|no progress"):
        until_one_fails(agents=12, fanout=2)


@pytest.mark.slow
def test_a_value_that_is_counted_in_two_attempts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    original = GroupRecovery._begin

    def begin(self: GroupRecovery, group: OpenGroup, attempt: int) -> Any:
        rounds = dict(group.rounds)
        effects = original(self, group, attempt)
        for number, kept in rounds.items():
            if number in group.rounds:
                group.rounds[number]._gathering = kept._gathering
        return effects

    monkeypatch.setattr(GroupRecovery, "_begin", begin)
    monkeypatch.setattr(
        GroupRecovery,
        "disturb",
        lambda self, group: keep_rounds(self, group, disturb),
    )
    with pytest.raises(InvariantError, match=r"to round|got \[.*\], expected"):
        until_one_fails(agents=20, fanout=3)


disturb = GroupRecovery.disturb


def keep_rounds(regrouping: GroupRecovery, group: OpenGroup, original: Any) -> Any:
    rounds = dict(group.rounds)
    effects = original(regrouping, group)
    group.rounds.update({n: one for n, one in rounds.items() if n not in group.rounds})
    return effects
