import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sapwood.cli import topology
from sapwood.cli.main import app
from sapwood.cli.present import WIDTH
from sapwood.client.wave_cost import LinkCost, WaveLoad
from sapwood.core.errors import InputError

LINKS = ["--local-link", "20us,5us,2GB", "--cores", "64"]


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, ["topology", *words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.row("C3-TOPO")
def test_shapes_stand_side_by_side_and_one_is_recommended() -> None:
    text = shown("plan", "--agents", "300", "--hosts", "20", "--bytes", "64KiB", *LINKS)
    assert max(map(len, text.splitlines())) <= WIDTH
    marked = [line.split()[1] for line in text.splitlines() if line.startswith("*")]
    found = json.loads(
        shown("plan", "--agents", "300", "--hosts", "20", "--bytes", "64KiB", *LINKS, "--json")
    )
    best = [one["shape"] for one in found["shapes"] if one["recommended"]]
    assert marked == best
    assert len(best) == 1
    costs = {one["shape"]: one["cost"]["seconds"] for one in found["shapes"]}
    assert costs[best[0]] <= 1.02 * min(costs.values())
    assert found["local"]["latency"] == pytest.approx(20e-6)


def test_only_some_shapes_are_compared(tmp_path: Path) -> None:
    path = tmp_path / "tree"
    path.write_text("front: a b\na @ n1: 1-2\nb @ n2: 3-4\n")
    words = ["plan", "--agents", "4", "--hosts", "2", "--shape", "flat", "--shape", f"file:{path}"]
    found = json.loads(shown(*words, "--host-link", "1ms,1us,1GB", *LINKS, "--json"))
    assert [one["shape"] for one in found["shapes"]] == ["flat", f"file:{path}"]
    assert found["shapes"][1]["cost"]["between_hosts"] == 2 * 2048
    assert max(map(len, shown(*words, *LINKS).splitlines())) <= WIDTH


def test_trees_are_outlined() -> None:
    assert shown("show", "--agents", "5", "--shape", "knomial:2").splitlines() == [
        "5 agents, 1 junction, depth 2",
        "client",
        "├─ agent[1-2]",
        "├─ junction 6",
        "│  └─ agent[3-4]",
        "└─ agent 5",
    ]
    by_host = shown("show", "--agents", "3", "--hosts", "2")
    assert "junction 4 on host 1" in by_host
    assert "agent 3 on host 2" in by_host
    tree = json.loads(shown("show", "--agents", "3", "--json"))
    assert tree["parents"] == [-1, 0, 0, 0]
    assert "more lines" in shown("show", "--agents", "900", "--shape", "kary:2")


@pytest.mark.row("C3-TOPO")
def test_the_tree_over_machines_is_known_before_they_are() -> None:
    lines = shown("show", "--on", "ssh:n1,gpu[1-2]", "--agents", "5").splitlines()
    assert lines == [
        "5 agents, 2 junctions, depth 2",
        "client",
        "├─ junction 6 on n1",
        "│  └─ agent[1-2] on n1",
        "├─ junction 7 on gpu1",
        "│  └─ agent[3-4] on gpu1",
        "└─ agent 5 on gpu2",
    ]
    below = shown("show", "--on", "slurm:3", "--agents", "3", "--shape", "kary:2")
    assert "junction 4 on host 2" in below
    found = json.loads(shown("show", "--on", "nodes:3", "--json"))
    assert (found["agents"], found["parents"]) == (3, [-1, 0, 0, 0])
    assert shown("show", "--on", "local", "--agents", "2").startswith("2 agents, 0 junctions")


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["show", "--on", "ssh:n1"], "unknown until the machines are allocated"),
        (["show", "--on", "slurm", "--agents", "2"], "not known before it is used"),
        (["show", "--on", "ssh:n1", "--hosts", "2"], "--on names the machines"),
        (["show", "--on", "cloud"], "names no machines"),
        (["plan", "--agents", "4", "--local-link", "quick"], "how fast a link is"),
        (["plan", "--agents", "4", "--local-link", "1us,1us,0B"], "how fast a link is"),
        (["plan", "--agents", "4", *LINKS, "--bytes", "many"], "is not a size"),
        (["plan", "--agents", "4", *LINKS, "--host-link", "1us,1us,1GB"], "several machines"),
        (["plan", "--agents", "4", "--hosts", "5", *LINKS], "5 machines for 4 agents"),
        (["plan", "--agents", "4", "--shape", "cube", *LINKS], "not a shape"),
        (["show", "one", "--agents", "3"], "is fixed"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: list[str], what: str) -> None:
    result = CliRunner().invoke(app, ["topology", *words])
    assert result.exit_code == 2
    assert what in " ".join(result.output.split())


def test_links_between_machines_are_slower_unless_they_are_given() -> None:
    here, between = topology.links("20us,5us,2GB", "", several=True)
    assert between.latency > here.latency
    assert between.per_byte > here.per_byte
    with pytest.raises(InputError, match="5 machines"):
        topology.compare([], 3, 5, WaveLoad(1, 1), (here, LinkCost(1.0, 1.0, 1.0)))
