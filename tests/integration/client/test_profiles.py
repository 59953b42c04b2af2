"""How often user code was seen where, on all agents."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sapwood
from sapwood.activity import agent_profile
from sapwood.core.errors import ClosedError, ConfigurationError
from sapwood.types import ProfileResult

MakeCluster = Callable[..., sapwood.Cluster]

SPIN = """
static volatile int never;
__attribute__((noinline)) static int inner(int x) {
  while (never == 0) x++;
  return x;
}
int spin(int x) { return inner(x) + 1; }
"""


def waits() -> None:
    threading.Event().wait()


def outer() -> None:
    waits()


def seen(cluster: sapwood.Cluster, function: str, **options: Any) -> ProfileResult:
    """Sample until a function is seen on all agents."""
    while function not in (found := cluster.profile(0.3, rate=100, **options)).folded():
        pass
    return found


def test_stacks_of_all_agents_are_added_up(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(4, fanout=2)
    for rank in (1, 2, 4):
        cluster.submit_to(rank, outer)
    seen(cluster, "waits")
    found = cluster.profile(0.5, rate=100)
    assert found.agents == 4
    assert found.idle > 0
    assert found.samples > 0
    (stack,) = (one for one in found.folded().splitlines() if "waits" in one)
    assert stack.startswith("outer (test_profiles.py);waits (test_profiles.py);wait (threading.py)")
    only = cluster.profile(0.2, agents=[3])
    assert (only.agents, only.samples) == (1, 0)


def test_native_functions_have_their_names(make_cluster: MakeCluster, tmp_path: Path) -> None:
    (tmp_path / "spin.c").write_text(SPIN)
    (tmp_path / "program.toml").write_text(
        '[program]\nsources = ["spin.c"]\n[parameters.x]\ndefault = 1\n'
        '[map]\nfunction = "spin"\n[reduce]\nreturn = "sum"\n'
    )
    cluster = make_cluster(2)
    run = cluster.run(sapwood.load_program(tmp_path), range(10))
    found = seen(cluster, "spin (library.so)")
    while "inner" not in found.folded():  # a sample may be older than the call
        found = cluster.profile(0.3, rate=100)
    assert "spin (library.so);inner (spin.c)" in found.folded()
    run.cancel()


def test_many_stacks_are_bounded(make_cluster: MakeCluster) -> None:
    def varies() -> None:
        for number in range(10**9):
            exec(f"def f{number}(): pass\nf{number}()")  # noqa: S102 - many functions are wanted

    cluster = make_cluster(1)
    cluster.submit(varies)
    found = cluster.profile(1.0, rate=200)
    assert len(found.stacks) <= agent_profile.MAX_STACKS
    forms = found.speedscope()
    assert len(forms["profiles"][0]["samples"]) == len(found.stacks)
    json.dumps(forms)


@pytest.mark.parametrize(
    ("seconds", "options"),
    [
        (0, {}),
        (61, {}),
        (1, {"rate": 0.5}),
        (1, {"rate": 201}),
        (1, {"rate": "x"}),
        (1, {"agents": [9]}),
    ],
)
def test_bounds_are_named(make_cluster: MakeCluster, seconds: float, options: Any) -> None:
    with pytest.raises(ConfigurationError):
        make_cluster(1).profile(seconds, **options)


def test_a_closed_cluster_has_no_profile(make_cluster: MakeCluster) -> None:
    cluster = make_cluster(1)
    cluster.close()
    with pytest.raises(ClosedError):
        cluster.profile(1.0)
