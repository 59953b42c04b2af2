from __future__ import annotations

from typing import Any

import pytest

from sapwood_cuda_cpu.control import arms, branches, condition, jumps_out, target_loop
from sapwood_cuda_cpu.parse import parse, plain, walk


def first(text: str, kind: str) -> Any:
    root = parse(f"void f() {{ {text} }}".encode()).root_node
    return next(node for node in walk(root) if node.type == kind)


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("if (a) break;", True),
        ("if (a) { while (b) break; }", False),
        ("if (a) switch (b) { default: break; }", False),
        ("if (a) switch (b) { default: continue; }", True),
        ("if (a) b();", False),
    ],
)
def test_jumps_out_of_a_statement(text: str, *, out: bool) -> None:
    assert jumps_out(first(text, "if_statement")) is out


def test_the_loop_of_a_jump() -> None:
    outer = first("for (;;) { while (a) { if (b) break; } }", "for_statement")
    jump = next(node for node in walk(outer) if node.type == "break_statement")
    assert target_loop(jump, outer).type == "while_statement"


def test_arms_and_branches() -> None:
    node = first("if (a) { b; c; } else d;", "if_statement")
    assert plain(condition(node).text) == "(a)"
    assert [each.type for each in arms(node)] == ["compound_statement", "expression_statement"]
    assert [plain(each.text) for each in branches(node)] == ["b;", "c;", "d;"]
