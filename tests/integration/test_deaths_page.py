"""The page that says what follows when a process dies, held against the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest

from sapwood.code.runner.crash import ATTEMPTS
from sapwood.environment.settings import Settings
from sapwood.head.run_ends import FOLLOWS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "deaths.md").read_text()

pytestmark = pytest.mark.row("C1-EXEC-1")


def rows(title: str) -> list[list[str]]:
    """Return the cells of the table below a title, without its head."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def killed_kinds() -> set[str]:
    """Return the kinds of processes that are killed at random."""
    tree = ast.parse((ROOT / "benchmarks" / "kills.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KINDS":
            found: tuple[str, ...] = ast.literal_eval(node.value)
            return set(found)
    raise AssertionError


def test_it_has_each_kind_that_is_killed_and_the_client() -> None:
    assert {row[0] for row in rows("Each kind")} == killed_kinds() | {"client"}


def test_the_ends_of_a_driver_are_those_of_the_table_in_the_code() -> None:
    told = {how: then for how, then, _ in rows("How the driver of a detached run ended")}
    assert told == {end.value: follows.value for end, follows in FOLLOWS.items()}


def test_its_settings_exist() -> None:
    named = {name for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", PAGE) if ".py" not in name}
    assert len(named) > 10
    for name in named:
        section: Any = Settings
        for part in name.split("."):
            assert part in {field.name for field in msgspec.structs.fields(section)}, name
            section = get_type_hints(section)[part]


def test_its_tests_exist() -> None:
    text = "\n".join(
        path.read_text()
        for folder in ("integration", "system")
        for path in (ROOT / "tests" / folder).rglob("test_*.py")
    )
    for row in rows("Each kind"):
        name = row[-1].strip("`")
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), name


def test_how_often_a_call_is_made_is_that_of_the_code() -> None:
    (runner,) = (row for row in rows("Each kind") if row[0] == "runner")
    assert f"{ATTEMPTS} times in all" in runner[2]
