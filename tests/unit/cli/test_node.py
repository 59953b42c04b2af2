from __future__ import annotations

import io
import time

import pytest
from rich.console import Console

from sapwood.cli.node import components_shown, owners_of
from sapwood.core.errors import InputError
from sapwood.environment.component import ComponentView
from sapwood.head.calls import NodeRecord, NodeStatus

NOW = time.time()


def view(name: str, state: str = "ready", reason: str = "", restarts: int = 0) -> ComponentView:
    return ComponentView(name=name, state=state, since=NOW, reason=reason, restarts=restarts)


def test_nodes_in_the_same_state_share_a_line() -> None:
    owners = [(f"n{number}", [view("link"), view("zygotes")]) for number in range(1, 5)]
    owners.append(("n5", [view("link"), view("zygotes", "stopped", "given up: " + "x " * 60, 5)]))
    console = Console(file=io.StringIO(), width=80)
    console.print(components_shown(owners, NOW))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["n[1-5]", "link", "ready"],
        ["n[1-4]", "zygotes", "ready"],
        ["n5", "zygotes", "stopped"],
    ]
    assert max(map(len, lines)) <= 80


def test_the_head_has_a_name_among_the_nodes() -> None:
    nodes = [
        NodeStatus(record=NodeRecord(host=n, name=f"n{n}", node="", state="ready")) for n in (1, 2)
    ]
    assert owners_of(nodes, "") == (nodes, True)
    assert owners_of(nodes, "head") == ([], True)
    assert owners_of(nodes, "n2") == (nodes[1:], False)
    assert owners_of(nodes, "n[1-2],head") == (nodes, True)
    with pytest.raises(InputError, match="node n3 does not exist"):
        owners_of(nodes, "n3,head")
