"""Runs of which some agents begin an iteration later than others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.session.express import armed
from sapwood.session.express.pacing import Pacing

Until = Callable[[Callable[[], object]], None]

TREE = (3, 0)
TIMEOUT = 60.0

PROGRAM = """
import numpy as np
import sapwood
from sapwood import Program, parameter

class Turns(Program):
    inputs = ("points",)
    reduce = {"sums": "sum"}
    rounds: int = parameter(40)
    together: bool = parameter(False)

    def init(self, data):
        return {"turn": 0, "total": 0.0}

    def map(self, slice, state):
        seen = state["turn"]
        if self.together:
            here = sapwood.here()
            here.send(here.rank % 3 + 1, state["turn"] + here.rank)
            message = here.receive()
            seen = message.value - message.source
        return {"sums": slice.points * (seen + 1)}

    def update(self, state, total):
        return {"turn": state["turn"] + 1, "total": state["total"] + float(total["sums"].sum())}

    def done(self, state):
        return state["turn"] >= self.rounds
"""


def test_agents_that_wait_for_each_other_do(
    standing: sapwood.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: Until
) -> None:
    made: list[int] = []

    class OneByOne(Pacing):
        def __init__(self, children: int) -> None:
            super().__init__(children)
            self.limit, self.enough = 1, float("inf")
            made.append(children)

    monkeypatch.setattr(armed, "Pacing", OneByOne)
    (tmp_path / "program.py").write_text(PROGRAM)
    points = np.arange(12.0)

    def total(rounds: int, *, together: bool) -> float:
        parameters = {"together": together, "rounds": rounds}
        program = sapwood.load_program(tmp_path / "program.py", parameters)
        found: float = standing.run(program, {"points": points}).result(TIMEOUT)["total"]
        return found

    def is_exchanged() -> bool:
        assert total(40, together=False) == points.sum() * sum(range(1, 41))
        return bool(made)

    until(is_exchanged)
    assert set(made) == {3}
    for rounds in (40, 10):
        assert total(rounds, together=True) == points.sum() * sum(range(1, rounds + 1))
