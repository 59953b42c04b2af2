"""The tool that makes mistakes on purpose: each is one change, in its place."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="module", name="tool")
def tool_fixture() -> Any:
    spec = importlib.util.spec_from_file_location("mutate", HERE / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutate"]


SOURCE = """
def first(a, b=2):
    \"\"\"Not a mistake: 7.\"\"\"
    a.x = 1
    if a.y and b < 3:
        a.call()
    return a.x + b

class Wire(Protocol):
    def send(self): self.x = 1
"""


def test_each_mistake_is_one_change_of_the_source(tool: Any) -> None:
    counted = tool.Mutator("x.py")
    plain = ast.unparse(ast.parse(SOURCE))
    counted.visit(ast.parse(SOURCE))
    made = []
    for mutant in counted.mutants:
        tree = tool.Mutator("x.py", mutant.number).visit(ast.parse(SOURCE))
        made.append(ast.unparse(ast.fix_missing_locations(tree)))
    assert plain not in made
    assert len(set(made)) == len(made)
    assert {mutant.name for mutant in counted.mutants} == {"first"}
    assert [mutant.what for mutant in counted.mutants] == [
        "leave out: a.x = 1",
        "other constant: 1",
        "negate: a.y and b < 3",
        "without its last part: a.y and b < 3",
        "other bound: b < 3",
        "other constant: 3",
        "leave out: a.call()",
        "other operator: a.x + b",
    ]


def test_all_mistakes_of_the_stack_can_be_compiled(tool: Any) -> None:
    routing = tool.SOURCE / "routing.py"
    mutants = tool.mutants_of(routing)
    assert len(mutants) > 30
    for mutant in mutants:
        tool.mutated(mutant)


def test_the_same_seed_draws_the_same_mistakes(tool: Any) -> None:
    first = list(tool.drawn(30, 5, ""))
    assert first == list(tool.drawn(30, 5, ""))
    assert first != list(tool.drawn(30, 6, ""))
    assert {one.path.split("/")[0] for one in tool.drawn(9, 1, "messaging/")} == {"messaging"}


def test_what_is_said_to_do_no_harm_is_there_and_has_a_reason(tool: Any) -> None:
    known = {mutant.key for path in tool.SOURCE.rglob("*.py") for mutant in tool.mutants_of(path)}
    for key, reason in tool.equivalents().items():
        assert key in known, f"{key} is in equivalent.txt, and in no source"
        assert len(reason) > 20, f"{key} has no reason"


@pytest.mark.nightly
def test_a_mistake_is_found_and_one_that_does_nothing_is_not(tool: Any) -> None:
    (missing,) = (
        one
        for one in tool.mutants_of(tool.SOURCE / "routing.py")
        if one.key == "routing.py Router.attach leave out: self._placed[placed.rank] = placed"
    )
    assert tool.run_apart(missing)[0]
