"""Stencils give what one process gives, bit for bit, also when an agent is lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sapwood
from sapwood.code.stencil import MODES
from sapwood.core.errors import DataValueError, ProgramError

pytestmark = pytest.mark.row("D-25")

EXAMPLES = Path(__file__).parents[3] / "examples" / "stencil"


class Weighted(sapwood.Stencil):
    """Adds up all neighbours within the halo, corners too, each with another weight."""

    halo = 2
    mode = "wrap"

    def step(self, block: Any, out: Any) -> None:
        weighted(block, out, 2)


class Constant(Weighted):
    mode = "constant"


class Edge(Weighted):
    mode = "edge"


class Reflect(Weighted):
    mode = "reflect"


class Symmetric(Weighted):
    mode = "symmetric"


class Dying(Weighted):
    """The runner of one agent is killed once, in the middle."""

    once: str = sapwood.parameter("")

    def map(self, slice: Any, state: Any) -> Any:  # noqa: A002 - as Program.map
        if state["step"] == 7 and slice.start == 0 and not Path(self.once).exists():
            Path(self.once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().map(slice, state)


def weighted(block: Any, out: Any, halo: int) -> None:
    out[...] = 0
    for weight, shift in enumerate(np.ndindex((2 * halo + 1,) * block.ndim), 1):
        cut = tuple(
            slice(first, first + size) for first, size in zip(shift, out.shape, strict=True)
        )
        out += block[cut] * weight
    out %= 1009


def alone(grid: Any, steps: int, mode: Any) -> Any:
    for _ in range(steps):
        new = np.empty_like(grid)
        weighted(np.pad(grid, 2, mode=mode), new, 2)
        grid = new
    return grid


@pytest.fixture(scope="module")
def standing(nothing_is_left_behind_by_all: None) -> Iterator[sapwood.Cluster]:
    del nothing_is_left_behind_by_all  # it looks when the cluster has ended
    with sapwood.local(agents=3) as cluster:
        cluster.run(Weighted(), data=np.zeros((9, 9))).result()  # all runners run
        yield cluster


@pytest.fixture
def cluster(standing: sapwood.Cluster) -> sapwood.Cluster:
    return standing


KINDS = {kind.mode: kind for kind in (Constant, Edge, Reflect, Symmetric, Weighted)}


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    shape=st.lists(st.integers(3, 9), min_size=1, max_size=3),
    steps=st.integers(1, 7),
    every=st.integers(1, 4),
    mode=st.sampled_from(MODES),
    seed=st.integers(0, 99),
)
def test_equals_one_process(
    cluster: sapwood.Cluster, shape: list[int], steps: int, every: int, mode: str, seed: int
) -> None:
    grid = np.random.default_rng(seed).integers(0, 1009, shape)
    program = KINDS[mode](steps=steps, gather_every=every)
    found = cluster.run(program, data=grid).result()
    assert np.array_equal(found, alone(grid, steps, mode))


def test_a_lost_runner_costs_the_steps_since_the_last_whole_grid(
    cluster: sapwood.Cluster, tmp_path: Path
) -> None:
    grid = np.random.default_rng(5).integers(0, 1009, (17, 6))
    once = tmp_path / "once"
    run = cluster.run(Dying(steps=12, gather_every=5, once=str(once)), data=grid)
    found = run.result()
    assert once.exists()
    assert np.array_equal(found, alone(grid, 12, "wrap"))


class Killing(Weighted):
    """An agent is killed in the middle, by the client."""

    victim: int = sapwood.parameter(0)

    def update(self, state: Any, total: Any) -> Any:
        if state["step"] == 7 and self.victim and not vars(self).get("killed"):
            self.killed = True
            os.kill(self.victim, signal.SIGKILL)
        return super().update(state, total)


def test_an_agent_that_is_killed_does_not_change_the_grid(cluster: sapwood.Cluster) -> None:
    grid = np.random.default_rng(6).integers(0, 1009, (17, 6))
    run = cluster.run(Killing(steps=12, gather_every=5, victim=cluster.agents[1].pid), data=grid)
    assert np.array_equal(run.result(), alone(grid, 12, "wrap"))
    assert run.statistics.iterations > 12


def test_agents_that_join_change_nothing() -> None:
    grid = np.random.default_rng(7).integers(0, 1009, (17, 6))
    with sapwood.local(agents=2) as cluster:
        run = cluster.run(Weighted(steps=200, gather_every=5), data=grid)
        cluster.expand(1)
        assert np.array_equal(run.result(), alone(grid, 200, "wrap"))
        after = cluster.run(Weighted(steps=9), data=grid).result()
    assert np.array_equal(after, alone(grid, 9, "wrap"))


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["Life", "LifeInC"])
def test_a_glider_moves_one_cell_in_four_steps(cluster: sapwood.Cluster, kind: str) -> None:
    grid = np.zeros((12, 10), np.uint8)
    grid[[0, 1, 2, 2, 2], [1, 2, 0, 1, 2]] = 1
    found = cluster.run(getattr(load("life"), kind)(steps=40), data=grid).result()
    assert np.array_equal(found, np.roll(grid, (10, 10), (0, 1)))


@pytest.mark.parametrize("kind", ["Heat", "HeatInC"])
def test_heat_equals_one_process(cluster: sapwood.Cluster, kind: str) -> None:
    grid = np.random.default_rng(3).random((23, 8))
    found = cluster.run(getattr(load("heat"), kind)(steps=30, gather_every=7), data=grid).result()
    for _ in range(30):
        b = np.pad(grid, 1, mode="edge")
        grid = b[1:-1, 1:-1] + 0.2 * (
            b[:-2, 1:-1] + b[2:, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] - 4 * b[1:-1, 1:-1]
        )
    assert np.allclose(found, grid, rtol=1e-13, atol=0)


def test_refuses_a_grid_thinner_than_the_halo(cluster: sapwood.Cluster) -> None:
    with pytest.raises(DataValueError, match="need at least 3 cells"):
        cluster.run(Reflect(), data=np.zeros((8, 2))).result()


@pytest.mark.parametrize(("name", "value"), [("halo", 0), ("halo", True), ("mode", "periodic")])
def test_refuses_a_wrong_declaration(name: str, value: Any) -> None:
    with pytest.raises(ProgramError, match=name):
        type("Wrong", (sapwood.Stencil,), {name: value})
