"""The script that predicts what a wave costs in trees of several shapes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import plan_topology
from sapwood.cli.present import WIDTH
from sapwood.core.errors import InputError
from wave_cost import LinkCost, WaveLoad

LINKS = ["--local-link", "20us,5us,2GB", "--cores", "64"]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return what the script prints."""

    def call(*words: str) -> str:
        assert plan_topology.main(words) == 0
        return capsys.readouterr().out

    return call


@pytest.mark.row("C3-TOPO")
def test_shapes_stand_side_by_side_and_one_is_recommended(shown: Callable[..., str]) -> None:
    text = shown("--agents", "300", "--hosts", "20", "--bytes", "64KiB", *LINKS)
    assert max(map(len, text.splitlines())) <= WIDTH
    marked = [line.split()[1] for line in text.splitlines() if line.startswith("*")]
    found = json.loads(
        shown("--agents", "300", "--hosts", "20", "--bytes", "64KiB", *LINKS, "--json")
    )
    best = [one["shape"] for one in found["shapes"] if one["recommended"]]
    assert marked == best
    assert len(best) == 1
    costs = {one["shape"]: one["cost"]["seconds"] for one in found["shapes"]}
    assert costs[best[0]] <= 1.02 * min(costs.values())
    assert found["local"]["latency"] == pytest.approx(20e-6)


def test_only_some_shapes_are_compared(shown: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "tree"
    path.write_text('root = ["a", "b"]\na = ["1-2"]\nb = ["3-4"]\n')
    words = ["--agents", "4", "--hosts", "2", "--shape", "flat", "--shape", f"file:{path}"]
    found = json.loads(shown(*words, "--host-link", "1ms,1us,1GB", *LINKS, "--json"))
    assert [one["shape"] for one in found["shapes"]] == ["flat", f"file:{path}"]
    assert found["shapes"][1]["cost"]["between_hosts"] == 2 * 2048
    assert max(map(len, shown(*words, *LINKS).splitlines())) <= WIDTH


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--agents", "4", "--local-link", "quick"], "how fast a link is"),
        (["--agents", "4", "--local-link", "1us,1us,0B"], "how fast a link is"),
        (["--agents", "4", *LINKS, "--bytes", "many"], "is not a size"),
        (["--agents", "4", *LINKS, "--host-link", "1us,1us,1GB"], "several machines"),
        (["--agents", "4", "--hosts", "5", *LINKS], "5 machines for 4 agents"),
        (["--agents", "4", "--shape", "cube", *LINKS], "not a shape"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    capsys: pytest.CaptureFixture[str], words: list[str], what: str
) -> None:
    assert plan_topology.main(words) == 2
    assert what in capsys.readouterr().err


def test_links_between_machines_are_slower_unless_they_are_given() -> None:
    here, between = plan_topology.links("20us,5us,2GB", "", several=True)
    assert between.latency > here.latency
    assert between.per_byte > here.per_byte
    with pytest.raises(InputError, match="5 machines"):
        plan_topology.compare([], 3, 5, WaveLoad(1, 1), (here, LinkCost(1.0, 1.0, 1.0)))
