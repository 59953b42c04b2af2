import json

import pytest
from typer.testing import CliRunner

from sapwood.cli.main import app


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, ["topology", *words])
    assert result.exit_code == 0, result.output
    return result.output


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
        (["show", "one", "--agents", "3"], "is fixed"),
        (["plan", "--agents", "4", "--bytes", "1KiB"], "is a script of Sapwood's repository"),
    ],
)
def test_what_cannot_be_planned_is_refused(words: list[str], what: str) -> None:
    result = CliRunner().invoke(app, ["topology", *words])
    assert result.exit_code == 2
    assert what in " ".join(result.output.split())
