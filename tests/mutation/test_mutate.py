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
def first(a, b: int | None=2) -> int | None:
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
    routing = tool.SOURCE / "comm/routing.py"
    mutants = tool.mutants_of(routing)
    assert len(mutants) > 30
    for mutant in mutants:
        tool.mutated(mutant)


@pytest.mark.nightly
def test_the_same_seed_draws_the_same_mistakes(tool: Any) -> None:
    first = list(tool.drawn(30, 5, ""))
    assert first == list(tool.drawn(30, 5, ""))
    assert first != list(tool.drawn(30, 6, ""))
    assert {one.path.split("/")[0] for one in tool.drawn(9, 1, "lifecycle/")} == {"lifecycle"}


def test_what_is_said_to_do_no_harm_is_there_and_has_a_reason(tool: Any) -> None:
    known = {mutant.key for path in tool.sources() for mutant in tool.mutants_of(path)}
    for key, reason in tool.equivalents().items():
        assert key in known, f"{key} is in equivalent.txt, and in no source"
        assert len(reason) > 20, f"{key} has no reason"


def test_marks_say_which_statements_of_functions_are_reached(tool: Any) -> None:
    source = """
x = 1
def first(a):
    'Words.'
    if a:
        return 1
    elif a is None:
        return 2
    try:
        return [one for one in a]
    except TypeError:
        return 3
    finally:
        len('')
"""
    reached: set[int] = set()
    tree = ast.fix_missing_locations(tool.Marker(1000).visit(ast.parse(source)))
    names: dict[str, Any] = {tool.REACHED: reached.add}
    exec(compile(tree, "x.py", "exec"), names)  # noqa: S102 - the source above
    assert reached == set()
    for value, result, lines in (
        (1, 1, {5, 6}),
        (None, 2, {5, 7, 8}),
        ([], [], {5, 7, 9, 10, 14}),
        (0, 3, {5, 7, 9, 10, 12, 14}),
    ):
        reached.clear()
        assert names["first"](value) == result
        assert {number - 1000 for number in reached} == lines


def routing(tool: Any, what: str) -> Any:
    (found,) = (
        one for one in tool.mutants_of(tool.SOURCE / "comm/routing.py") if one.key.endswith(what)
    )
    return found


def test_what_reaches_a_mistake_is_tried_the_shortest_first_as_long_as_time_allows(
    tool: Any,
) -> None:
    missing = routing(tool, "leave out: self._placed[placed.rank] = placed")
    there = frozenset({tool.files().index("comm/routing.py") * tool.LINES + missing.statement})
    notes = {
        "tests/unit/comm/test_routing.py::slow": tool.Notes(1.0, there),
        "tests/unit/comm/test_routing.py::short": tool.Notes(0.1, there),
        "tests/unit/comm/test_routing.py::for_ever": tool.Notes(99.0, there),
        "tests/unit/comm/test_link.py::other": tool.Notes(0.1, there),
        "tests/unit/comm/test_link.py::elsewhere": tool.Notes(0.1, frozenset({3})),
        f"{tool.SIMULATED}late": tool.Notes(tool.SECONDS[0], there),
        f"{tool.SIMULATED}first": tool.Notes(0.1, there),
        f"{tool.SIMULATED}elsewhere": tool.Notes(0.1, frozenset()),
    }
    assert tool.chosen(missing, notes) == [
        [f"{tool.SIMULATED}first"],
        [
            "tests/unit/comm/test_routing.py::short",
            "tests/unit/comm/test_routing.py::slow",
            "tests/unit/comm/test_link.py::other",
        ],
        [f"{tool.SIMULATED}late"],
    ]
    assert tool.run_apart(missing, {}) == (False, "nothing runs it", 0.0)


@pytest.mark.nightly
def test_a_mistake_is_found_and_one_that_does_nothing_is_not(tool: Any) -> None:
    missing = routing(tool, "leave out: self._placed[placed.rank] = placed")
    there = frozenset({tool.files().index("comm/routing.py") * tool.LINES + missing.statement})
    name = "test_the_end_of_an_attachment_takes_along_what_is_below_it"
    test = f"tests/unit/comm/test_routing.py::{name}"
    notes = {test: tool.Notes(1.0, there)}
    assert tool.run_apart(missing, notes)[:2] == (True, test)
    none = missing._replace(number=-1)
    assert tool.run_apart(none, notes)[:2] == (False, "")
