"""Runs whose native maps are called without Python after the first iterations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sapwood
from sapwood.core.errors import RunnerCrashError, SapwoodError, TimeLimitError

TREE = (3, 0)
TIMEOUT = 60.0
LIMIT = 0.5
DATA = np.arange(30.0)

SOURCE = r"""
#include <stdio.h>
#include <unistd.h>
// @array points[n], centre[d], event[m]
// @array sums[d]
void shift(const double *points, const double *centre, const long *event, long n, long d,
           double *sums) {
  for (long i = 0; i < n; i++)
    for (long j = 0; j < d; j++) sums[j] += points[i] - centre[j];
  if (event[0] == 1) sums[-1000000] = 1;
  if (event[0] == 2) sums[d] = 1;
  if (event[0] == 3) for (;;) usleep(1000);
  if (event[0] == 4) { printf("last words"); fflush(stdout); _exit(3); }
}
"""
PROGRAM = """
import numpy as np
from sapwood import Program, native, parameter

class Shift(Program):
    sources = ("shift.c",)
    inputs = ("points",)
    map = native("shift")
    reduce = {"sums": "sum"}
    rounds: int = parameter(30)
    what: int = parameter(0)

    def init(self, data):
        return {"centre": np.zeros(2), "event": np.zeros(1, int), "turn": 0, "mean": 0.0}

    def update(self, state, total):
        turn = state["turn"] + 1
        event = np.array([self.what if turn == 15 else 0])
        centre = state["centre"] + total["sums"] / 60
        return {"centre": centre, "event": event, "turn": turn, "mean": float(centre.mean())}

    def done(self, state):
        return state["turn"] >= self.rounds

    def result(self, state):
        return state["centre"]
"""

Load = Callable[..., sapwood.Program]


@pytest.fixture
def shift(tmp_path: Path) -> Load:
    """Return a function that makes the program above."""
    (tmp_path / "shift.c").write_text(SOURCE)
    (tmp_path / "program.py").write_text(PROGRAM)
    return lambda **parameters: sapwood.load_program(tmp_path / "program.py", parameters)


def expected(rounds: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what the program returns."""
    centre = np.zeros(2)
    for _ in range(rounds):
        centre += (DATA[:, None] - centre).sum(0) / 60
    return centre


def test_runs_one_after_the_other_give_what_they_should(
    standing: sapwood.Cluster, shift: Load
) -> None:
    for rounds in (3, 30, 300, 7):
        run = standing.run(shift(rounds=rounds), {"points": DATA})
        assert np.allclose(run.result(TIMEOUT), expected(rounds), rtol=1e-12)
        assert [each.calls for each in run.statistics.agents] == [rounds] * 3
        assert all(each.map_seconds > 0 for each in run.statistics.agents)


def test_runs_at_the_same_time_do_not_mix(standing: sapwood.Cluster, shift: Load) -> None:
    runs = [standing.run(shift(rounds=rounds), {"points": DATA}) for rounds in (50, 100, 70)]
    for run, rounds in zip(runs, (50, 100, 70), strict=True):
        assert np.allclose(run.result(TIMEOUT), expected(rounds), rtol=1e-12)


@pytest.mark.parametrize(
    ("event", "kind", "said"),
    [
        (1, RunnerCrashError, "shift wrote before the begin of parameter sums"),
        (2, SapwoodError, "parameter sums was written past its end, at item 2"),
        (3, TimeLimitError, f"shift ran longer than {LIMIT} s"),
        (4, RunnerCrashError, "shift ended its process with status 3"),
    ],
)
def test_whatever_a_later_call_does_the_caller_is_told(
    standing: sapwood.Cluster,
    shift: Load,
    event: int,
    kind: type[SapwoodError],
    said: str,
) -> None:
    cluster = standing
    run = cluster.run(shift(what=event), {"points": DATA}, time_limit=LIMIT if event == 3 else None)
    error = run.exception(TIMEOUT)
    assert isinstance(error, kind)
    assert said in str(error)
    assert "agent" in error.where or "shift" in error.where
    if event == 4:
        assert error.details is not None
        assert "last words" in error.details["output"]
    run = cluster.run(shift(), {"points": DATA})
    assert np.allclose(run.result(TIMEOUT), expected(30), rtol=1e-12)
