"""The drawings of the tables of states: complete, well-formed, one for each table in the code."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


def load() -> ModuleType:
    path = ROOT / "docs" / "_ext" / "state_drawing.py"
    spec = importlib.util.spec_from_file_location("state_drawing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drawing = load()


def test_every_table_of_the_code_is_drawn_and_shown() -> None:
    folders = (ROOT / "src", *(ROOT / "extras").iterdir())
    pattern = re.compile(r"^(\w+_)?TRANSITIONS\b", re.MULTILINE)
    with_tables = {
        ".".join(path.relative_to(folder).with_suffix("").parts)
        + (f":{found[0]}" if found[1] else "")
        for folder in folders
        for path in folder.rglob("*.py")
        for found in pattern.finditer(path.read_text())
    }
    assert set(drawing.TABLES.values()) == with_tables
    page = (ROOT / "docs" / "reference" / "states.md").read_text()
    assert re.findall(r"\{state-diagram\} (\w+)", page) != []
    assert set(re.findall(r"\{state-diagram\} (\w+)", page)) == set(drawing.TABLES)


@pytest.mark.parametrize("name", sorted(drawing.TABLES))
def test_a_drawing_shows_every_state_and_every_event(name: str) -> None:
    found = drawing.arrows(name)
    root = ET.fromstring(drawing.draw(name))  # noqa: S314 - as above
    texts = [text.text or "" for text in root.iter(f"{SVG}text")]
    assert len(list(root.iter(f"{SVG}rect"))) == len(drawing.states(found))
    assert len(list(root.iter(f"{SVG}path"))) == 1 + len({arrow[:2] for arrow in found})
    for state, following, event in found:
        assert state in texts
        assert following in texts
        assert any(event in text for text in texts)
        assert f"| {state} | {event} | {following} |" in drawing.table(name)
