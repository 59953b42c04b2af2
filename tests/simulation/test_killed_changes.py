"""C3-SESS-1, 2: killed at each step of expand, contract, detach and attach."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sapwood_simulation.killed_changes import CHANGES, VICTIMS, KilledChange
from sapwood_simulation.session_simulation import MainTree, SessionSimulation
from sapwood_simulation.simulation import InvariantError


def killed_at(change: str, step: int, victims: tuple[str, ...]) -> str:
    """Return how a session is after a kill; empty if the change was over before that step."""
    simulation = KilledChange(change, step, victims)
    simulation.run()
    return simulation.outcome if simulation.killed else ""


@pytest.mark.row("C3-SESS-1", "C3-SESS-2")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.slow
def test_killed_at_some_steps_a_session_is_as_before_or_as_after(change: str) -> None:
    for step, victims in zip(range(1, 60, 12), itertools.cycle(VICTIMS)):
        outcome = killed_at(change, step, victims)
        assert outcome == "over" if "root" in victims else outcome in {"before", "after"}


def _tree_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MainTree, "end", lambda _tree: None)


def _process_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(KilledChange, "_let_go", lambda *_: None)


def _forgets_an_agent(patch: pytest.MonkeyPatch) -> None:
    """Its process begins, and the tree does not have it."""
    change = SessionSimulation._new_tree

    def forgets(simulation: SessionSimulation, tree: Any) -> None:
        before = simulation.tree
        change(simulation, tree)
        if tree.size > before.size:
            change(simulation, tree.without([tree.size - 1]))

    patch.setattr(SessionSimulation, "_new_tree", forgets)


@pytest.mark.parametrize(
    ("mistake", "change", "victims"),
    [
        (_tree_stays, "expand", ("root",)),
        (_process_stays, "contract", ("head",)),
        (_forgets_an_agent, "expand", ("owner",)),
    ],
)
@pytest.mark.slow
def test_a_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    change: str,
    victims: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises((InvariantError, AssertionError)):
        killed_at(change, 20, victims)


@pytest.mark.nightly
@pytest.mark.row("C3-SESS-1", "C3-SESS-2")
@pytest.mark.parametrize("victims", VICTIMS, ids="+".join)
@pytest.mark.parametrize("change", CHANGES)
def test_killed_at_every_step_a_session_is_as_before_or_as_after(
    change: str, victims: tuple[str, ...]
) -> None:
    outcomes, step = set(), 1
    while outcome := killed_at(change, step, victims):
        outcomes.add(outcome)
        step += 1
    assert step > 20, "so many steps there are"
    if "root" in victims:
        assert outcomes == {"over"}
    elif change == "expand":
        assert outcomes >= {"after"}
        assert outcomes <= {"before", "after"}
    else:
        assert outcomes <= {"before", "after"}
