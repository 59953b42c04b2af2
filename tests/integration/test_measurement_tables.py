"""The documentation's tables of measurements equal the figures in benchmarks/results."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", BENCHMARKS / "tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_pages_have_what_the_figures_say(tables: ModuleType) -> None:
    for page in tables.PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == tables.written(text), "run `python benchmarks/tables.py`"


def test_every_table_is_on_one_page(tables: ModuleType) -> None:
    shown = [name for page in tables.PAGES for name in tables.names_in(page.read_text())]
    assert sorted(shown) == sorted(tables.TABLES)


def test_every_row_has_figures(tables: ModuleType) -> None:
    for table in tables.TABLES.values():
        figures = tables.load(table.source)["figures"]
        known = {one["name"] for one in figures}
        for row in table.rows:
            assert known & {row.figure + suffix for suffix in ("", *table.peers.values())}, row


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "results").glob("*.json")), ids=str)
def test_a_ratio_is_the_value_by_the_floor(path: Path) -> None:
    source: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    script = re.match(r"python (benchmarks/\w+\.py)", source["command"])
    assert script is not None
    assert (BENCHMARKS.parent / script[1]).is_file()
    assert source["machine"]
    assert re.fullmatch(r"20\d\d-\d\d", source["date"])
    for one in source["figures"]:
        if one["floor"] is None:
            assert one["ratio"] is None
        else:
            assert one["ratio"] == pytest.approx(one["value"] / one["floor"], rel=1e-3)


def test_a_figure_changes_the_table(tables: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tables.table_text(tables.TABLES["messages"])
    source = tables.load("messages")
    source["figures"][0] |= {"value": 2345.0, "floor": 1000.0, "ratio": 2.345}
    monkeypatch.setattr(tables, "load", lambda _: source)
    after = tables.table_text(tables.TABLES["messages"])
    assert "| on the client's loop | 2.3 ms | 1 ms | 2.35 |" in after != before
